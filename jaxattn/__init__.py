"""The implicit bias of softmax attention, reproduced.

Gradient descent on the attention weights of a one-layer transformer converges in direction to a
hard-margin SVM that separates the selected token of every input from the rest. This package holds
the pure functions: data, attention, losses, descent, and SVM solutions with a certificate.

Importing it changes no JAX setting. For float64, which the papers use, say so first::

    import jax

    jax.config.update("jax_enable_x64", True)

The examples in docstrings take some names for granted: `key = jax.random.key(0)`, `problem = data.sphere(key, n=3, T=4,
d=5)`, `start = initial.free(key, 5)`, `run = descent.train(start, problem, steps=20)`, the tokens `alpha` that it
selects, `constraints = svm.token_constraints(problem, alpha)` and `solution = svm.solve(constraints)`.
"""

__version__ = "0.1.0"

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxattn import attention, bias, data, descent, heads, initial, language, losses, metrics, models, svm, tokens
    from jaxattn.parallel import batch
    from jaxattn.problem import Problem

__all__ = [
    "Problem",
    "attention",
    "batch",
    "bias",
    "data",
    "descent",
    "heads",
    "initial",
    "language",
    "losses",
    "metrics",
    "models",
    "svm",
    "tokens",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command `jaxattn` answers before JAX is imported."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "Problem":
        return importlib.import_module("jaxattn.problem").Problem
    return importlib.import_module("jaxattn.parallel.batch" if name == "batch" else f"jaxattn.{name}")


def __dir__() -> list[str]:
    """Return the public names with all others, whether they are imported yet or not."""
    return sorted({*globals(), *__all__})
