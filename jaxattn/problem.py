"""One learning problem: tokens, queries, labels and the parameters of the head."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from jaxattn.parallel import forks

__all__ = ["Problem", "every_position", "every_prefix", "of_arrays"]

# Trailing axes of each numeric field; axes with the same letter have the same length.
_AXES = {"X": "nTd", "Z": "nd", "Y": "n", "v": "d"}
_FIELDS = (*_AXES, "present")


def is_concrete(value: Any) -> bool:
    """Return whether the numbers of `value` can be read now, as those of arguments under `jit` and `vmap` cannot."""
    return isinstance(value, np.ndarray | jax.Array) and not isinstance(value, Tracer)


def as_array(name: str, value: Any) -> Array:
    """Convert `value` to a finite JAX array in single or double precision; whole numbers become floating-point ones.

    Raises:
        ValueError: complex or non-numeric entries, another precision, a mask, NaN or infinite entries, or float64
            numbers that JAX would round to float32 because x64 is off.
        RuntimeError: a process that was forked after JAX was used.
    """
    forks.check()
    if isinstance(value, Tracer):
        value = value if jnp.issubdtype(value.dtype, jnp.floating) else jnp.asarray(value, float)
        check_precision(name, value.dtype)
        return value
    if any(map(np.ma.isMaskedArray, value if isinstance(value, list | tuple) else [value])):
        raise ValueError(f"{name}: expected an array without a mask, found a masked one; `present=` says what counts")
    try:
        array = value if isinstance(value, jax.Array) else np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name}: expected an array of numbers, found {error}") from error
    if array.dtype.kind in "iub":
        array = array.astype(float)
    elif not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(f"{name}: expected real numbers, found dtype {array.dtype}")
    elif isinstance(array, np.ndarray):
        # Files may have the other byte order, which JAX does not read.
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
    check_precision(name, array.dtype)
    if (
        isinstance(value, np.ndarray)
        and array.dtype == np.float64
        and jax.dtypes.canonicalize_dtype(np.float64) != np.float64
    ):
        raise ValueError(
            f"{name}: expected float32 while JAX's x64 mode is off, found float64, which JAX would round; "
            'call jax.config.update("jax_enable_x64", True) first, or pass float32'
        )
    finite = np.isfinite(np.asarray(array))
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ValueError(
            f"{name}: expected finite numbers, found {np.asarray(array)[where]} at index {where} "
            f"({int((~finite).sum())} of {finite.size} entries are not finite)"
        )
    # `jnp.asarray` would compile a program for every shape. Copy, because this may share the caller's memory.
    return array if isinstance(array, jax.Array) else jax.device_put(np.array(array))


def check_precision(name: str, dtype: Any) -> None:
    """Raise ValueError unless a type is single or double precision in the machine's byte order."""
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"{name}: expected float32 or float64, found {dtype}")


def check_labels(labels: Any) -> None:
    """Raise ValueError unless every label is +1 or -1."""
    wrong = np.asarray(labels)[np.abs(np.asarray(labels)) != 1]
    if wrong.size:
        raise ValueError(f"Y: expected labels +1 or -1, found {wrong.ravel()[0]} (and {wrong.size - 1} more)")


@dataclass(frozen=True, init=False, eq=False)
class Problem:
    """`n` inputs of `T` tokens in R^d, each with a query and a label, and the parameters of one head.

    Input `i` has tokens `X[i]`, query `Z[i]` and label `Y[i]`. The head reads `v`: a direction, or a matrix whose
    columns are the directions of a hidden layer. Self-attention is the case `Z = X[:, 0]`; `every_position` and
    `every_prefix` make one input of each position of a sequence. A Problem is a pytree: `vmap` adds leading batch axes,
    and the functions of this package take one problem without them.

    Attributes:
        X: tokens, (..., n, T, d) with T >= 2.
        Z: queries, (..., n, d).
        Y: labels, (..., n), each +1 or -1.
        v: the parameters of the head: a direction, (..., d), or a layer, (..., d, width). The shape of X determines the
            number of batch axes.
        present: truth values, (..., n, T): which tokens the attention of each input can see. Default: all.

    Raises:
        ValueError: a wrong shape, T = 1, a label other than +-1, NaN or infinity, mixed precisions; an input that sees
            no token, or a problem in which no input sees two.
    """

    X: Float[Array, "*batch n T d"]
    Z: Float[Array, "*batch n d"]
    Y: Float[Array, "*batch n"]
    v: Float[Array, "*batch d"] | Float[Array, "*batch d width"]
    present: Bool[Array, "*batch n T"] | None

    def __init__(self, X: Any, Z: Any, Y: Any, v: Any, present: Any = None) -> None:
        fields = {name: as_array(name, value) for name, value in zip(_AXES, (X, Z, Y, v), strict=True)}
        _check_shapes(fields)
        if is_concrete(fields["Y"]):
            check_labels(fields["Y"])
        # The labels are exact in every precision; any other mixture of precisions is a mistake.
        fields["Y"] = fields["Y"].astype(fields["X"].dtype)
        dtypes = {name: field.dtype.name for name, field in fields.items()}
        if len(set(dtypes.values())) > 1:
            raise ValueError(f"Problem: expected one precision, found {dtypes}")
        for name, field in fields.items():
            object.__setattr__(self, name, field)
        object.__setattr__(self, "present", None if present is None else _as_present(present, fields["X"].shape[:-1]))

    @property
    def arrays(self) -> dict[str, Any]:
        """The fields by name, without `present` if it is None. `of_arrays` is the inverse."""
        return {name: array for name in _FIELDS if (array := getattr(self, name)) is not None}

    @property
    def n(self) -> int:
        """Number of inputs."""
        return self.X.shape[-3]

    @property
    def T(self) -> int:
        """Number of tokens of an input."""
        return self.X.shape[-2]

    @property
    def d(self) -> int:
        """Dimension of a token."""
        return self.X.shape[-1]


def check_kind(problem: Any) -> None:
    """Raise ValueError unless `problem` is a Problem, and RuntimeError where JAX cannot compute (see `forks`)."""
    forks.check()
    if not isinstance(problem, Problem):
        kind = type(problem).__name__
        raise ValueError(f"problem: expected a Problem(X=..., Z=..., Y=..., v=...), found {kind}")  # noqa: TRY004


def check_one(problem: Any) -> None:
    """Raise ValueError unless `problem` is one Problem, without batch axes, and RuntimeError as in `check_kind`."""
    check_kind(problem)
    if problem.X.ndim != 3:
        raise ValueError(
            f"problem: expected one, with X of shape (n, T, d), found X of shape {problem.X.shape}; use jax.vmap "
            "for a batch"
        )


def check_batch(problems: Any) -> int:
    """Return the number of problems in a batch with one leading axis.

    Raises:
        ValueError: not a Problem, another number of batch axes, or an empty batch.
    """
    check_kind(problems)
    if problems.X.ndim != 4:
        raise ValueError(
            f"problems: expected a batch with one leading axis, X of shape (seeds, n, T, d), found {problems.X.shape}"
        )
    if problems.X.shape[0] == 0:
        raise ValueError("problems: expected at least one problem, found an empty batch")
    return problems.X.shape[0]


def _check_shapes(fields: dict[str, Array]) -> None:
    """Raise ValueError, naming the field, unless the four shapes agree."""
    shapes = {name: tuple(field.shape) for name, field in fields.items()}
    if len(shapes["X"]) < 3:
        raise ValueError(f"X: expected shape (..., n, T, d), found {shapes['X']}")
    batch, size = shapes["X"][:-3], dict(zip("nTd", shapes["X"][-3:], strict=True))
    for name, axes in _AXES.items():
        expected = batch + tuple(size[axis] for axis in axes)
        # The matrix of a layer has one more axis, of any length.
        layer = shapes[name][:-1] if name == "v" and shapes[name][-1:] != (0,) else None
        if expected not in (shapes[name], layer):
            letters = ", ".join(axes)
            wide = f" or {(*expected, 'width')}".replace("'", "") if name == "v" else ""
            raise ValueError(
                f"{name}: expected shape {expected}{wide}, (..., {letters}) as X has it, found {shapes[name]}"
            )
    if size["T"] < 2:
        raise ValueError(f"X: expected at least T = 2 tokens to choose between, found T = {size['T']}")
    if 0 in size.values():
        raise ValueError(f"X: expected n, T and d of at least 1, found {size}")


def _as_present(present: Any, shape: tuple[int, ...]) -> Bool[Array, "*batch n T"]:
    """Convert `present` to an array of truth values of this shape, or raise ValueError."""
    present = present if hasattr(present, "dtype") else np.asarray(present)
    if present.dtype != bool or present.shape != shape:
        raise ValueError(
            f"present: expected truth values of shape {shape}, (..., n, T) as X has it, "
            f"found shape {tuple(present.shape)} of {present.dtype}"
        )
    if is_concrete(present):
        seen = np.asarray(present).sum(axis=-1)
        if not seen.all():
            raise ValueError(
                "present: expected at least one token of every input, found none "
                f"of input {tuple(int(i) for i in np.argwhere(seen == 0)[0])}"
            )
        if not (seen > 1).any(axis=-1).all():
            raise ValueError("present: expected an input with at least two tokens to choose between, found none")
    return present if isinstance(present, jax.Array) else jax.device_put(np.array(present))


def of_arrays(arrays: Mapping[str, Any]) -> Problem:
    """Return the problem with these arrays as its fields, for example the arrays of a record.

    Raises:
        KeyError: no X, Z, Y or v.
        ValueError: as `Problem`.

    Example:
        >>> from jaxattn.problem import of_arrays
        >>> of_arrays(problem.arrays).n
        3
    """
    return Problem(**{name: arrays[name] for name in _FIELDS if name in _AXES or name in arrays})


def every_position(X: Any, Y: Any, v: Any) -> Problem:
    """Return sequence-to-sequence self-attention as a problem with one input per position.

    Input `i T + j`, of n T, has all tokens of sequence i, the query `x_ij` and the label of position j. `losses.risk`
    is then the mean over all positions of `loss(Y_ij h(X_i^T softmax(X_i W x_ij)))` (2308.16898, section on
    sequence-to-sequence attention).

    Args:
        X: tokens, (..., n, T, d).
        Y: labels of the positions, (..., n, T), each +1 or -1.
        v: the parameters of the head, as in `Problem`.

    Raises:
        ValueError: as in `Problem`; labels of another shape.

    Example:
        >>> from jaxattn.problem import every_position
        >>> every_position(jnp.ones((2, 3, 4)), jnp.ones((2, 3)), jnp.ones(4)).n
        6
    """
    X, Y = as_array("X", X), as_array("Y", Y)
    if X.ndim < 3 or Y.shape != X.shape[:-1]:
        raise ValueError(
            f"Y: expected a label of every position, (..., n, T), of X (..., n, T, d), found {Y.shape} and {X.shape}"
        )
    T, d = X.shape[-2:]
    return Problem(X=jnp.repeat(X, T, axis=-3), Z=X.reshape(*X.shape[:-3], -1, d), Y=Y.reshape(*Y.shape[:-2], -1), v=v)


def every_prefix(X: Any, Y: Any, v: Any) -> Problem:
    """Return causal self-attention: like `every_position`, but position j sees only the tokens 0 to j.

    Position 0 sees one token: it adds a constant to the risk and no constraint to an SVM.

    Raises:
        ValueError: as in `every_position`.

    Example:
        >>> from jaxattn.problem import every_prefix
        >>> every_prefix(jnp.ones((2, 3, 4)), jnp.ones((2, 3)), jnp.ones(4)).present[1].tolist()
        [True, True, False]
    """
    whole = every_position(X, Y, v)
    T = whole.T
    prefixes = jnp.tile(jnp.tri(T, dtype=bool), (whole.n // T, 1))
    return Problem(**whole.arrays, present=jnp.broadcast_to(prefixes, whole.X.shape[:-1]))


def _flatten_with_keys(problem: Problem) -> tuple[Iterable[tuple[Any, Any]], None]:
    return [(jax.tree_util.GetAttrKey(name), getattr(problem, name)) for name in _FIELDS], None


def _unflatten(_: None, fields: Iterable[Any]) -> Problem:
    # Leaves may be anything here (tracers, shapes, axis numbers): the checks belong to the constructor.
    problem = object.__new__(Problem)
    for name, field in zip(_FIELDS, fields, strict=True):
        object.__setattr__(problem, name, field)
    return problem


jax.tree_util.register_pytree_with_keys(Problem, _flatten_with_keys, _unflatten)
