"""Check a user's own values, above all the head, before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn import attention, checks
from jaxattn.data import Spheres
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.study.mistakes import UsageError
from jaxattn.study.settings import recording

# The arguments of a setting's fields that are functions of numbers.
_ARGUMENTS = {"head": ("x", "v"), "loss": ("margin",)}
# Other fields that are called, with their keys in the configuration.
_CALLED = {"law": "data", "initial": "weights", "tokens": "tokens", "snapshots": "snapshots", "radii": "radii"}
_TRIED = 4


def check_fields(fields: Mapping[str, Any]) -> None:
    """Raise an error for a field that cannot be called or takes other arguments, or an optimizer not of optax."""
    for name, value in fields.items():
        if name == "optimizer":
            checks.transformation(name, value)
        elif name in _CALLED and not callable(value):
            raise UsageError(f"{_CALLED[name]}: expected a function, found {value!r}")
        elif arguments := _ARGUMENTS.get(name):
            if isinstance(value, type):
                raise UsageError(
                    f"{name}: expected a function {name}({', '.join(arguments)}), found the class {value.__name__}; "
                    f"with {name}._partial_=false it is an instance, made of its own arguments"
                )
            checks.function(name, value, arguments)


def check_output(setting: Any) -> None:
    """Raise UsageError, or the head's own error, unless the head returns one number for one attention output.

    A setting without a head, or whose law draws no problems, reports such mistakes itself.
    """
    if not hasattr(setting, "head") or isinstance(setting.law, Spheres):
        return
    problem = jax.eval_shape(setting.law, jax.random.key(setting.key))
    if not isinstance(problem, Problem):
        return
    x = jax.ShapeDtypeStruct((problem.d,), problem.X.dtype)
    try:
        output = jax.eval_shape(setting.head, x, problem.v)
    except (ValueError, TypeError):
        raise
    except Exception as error:  # A user's head may raise anything.
        raise UsageError(
            f"head: raised {type(error).__name__}: {error}, for x {x.shape}, v {problem.v.shape}"
        ) from error
    if getattr(output, "shape", None) != () or not jnp.issubdtype(output.dtype, jnp.floating):
        found = f"{output.dtype} of shape {output.shape}" if hasattr(output, "shape") else repr(output)
        raise UsageError(f"head: expected one real number of x {x.shape} and v {problem.v.shape}, found {found}")


def check_numbers(setting: Any) -> None:
    """Raise UsageError if the values or slopes of the head are NaN or infinite on all of a few drawn problems.

    They are computed at uniform attention. One problem with finite values suffices: a head need not be defined
    everywhere, and seeds that leave its domain are counted as diverged.
    """
    if not hasattr(setting, "head") or isinstance(setting.law, Spheres):
        return
    root = jax.random.key_data(jax.random.key(setting.key))

    def read(seed: Any) -> tuple[Any, Any]:
        problem = setting.law(jax.random.wrap_key_data(recording.keys(seed, root)[0]))
        uniform = attention.probabilities(jnp.zeros((problem.d, problem.d), problem.X.dtype), problem)
        outputs = attention.attended(uniform, problem)
        return jax.vmap(jax.value_and_grad(setting.head), in_axes=(0, None))(outputs, problem.v)

    seeds = min(_TRIED, setting.seeds)
    values, slopes = batch.over_seeds(read, np.arange(seeds))
    for what, numbers in (("", values), (" as its slope", slopes.reshape(*values.shape, -1).sum(axis=-1))):
        wrong = ~np.isfinite(numbers)
        if wrong.any(axis=1).all():
            raise UsageError(
                f"head: expected finite numbers, found {numbers[wrong][0]}{what} on {int(wrong.sum())} of "
                f"{wrong.size} inputs of the first {seeds} problems, where the attention is uniform"
            )
