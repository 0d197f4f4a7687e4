"""The constraints (rows) of a max-margin problem: `<A_k, W> >= b_k`, `A_k = (difference of two tokens) (query)^T`."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxattn.parallel import forks
from jaxattn.problem import check_precision, is_concrete
from jaxattn.svm.pivoting import LAST, AnyArray, diagonal, module_of, orthonormal, per_lane, pivot

__all__ = ["Constraints", "combination", "margins"]


class Constraints(NamedTuple):
    """`differences[i, t]^T W queries[i] >= targets[i, t]` for all i and t, as hard or soft constraints.

    A pytree. The rows of a group share a query; unrelated rows form groups of one row (`listed`). W is (d, e): square
    for attention weights, (d, 1) for a prompt.

    Attributes:
        differences: token differences, (n, m, d).
        queries: the query of each group, (n, e).
        targets: (n, m). Default: 1.
        equal: which rows are equations `=` instead of `>=`, (n, m). Default: none.
        present: which rows are constraints, (n, m); the others only pad groups of different lengths. Default: all.
        penalty: the cost C of a unit of shortfall (soft margin), (n, m); inf for hard rows and equalities. Default: all
            hard.
    """

    differences: Float[Array, "*batch n m d"]
    queries: Float[Array, "*batch n e"]
    targets: Float[Array, "*batch n m"] | None = None
    equal: Bool[Array, "*batch n m"] | None = None
    present: Bool[Array, "*batch n m"] | None = None
    penalty: Float[Array, "*batch n m"] | None = None


def check(constraints: Constraints, batch: int = 0) -> None:
    """Check the arrays for consistency, and their numbers if they can be read.

    Raises:
        ValueError: not a Constraints, fields that are not arrays, shapes that do not fit behind `batch` batch axes,
            different precisions, NaN or infinity (also from an alpha out of range under `vmap`), a penalty that is not
            positive, or a finite penalty on an equality.
    """
    check_kind(constraints)
    for name, array in constraints._asdict().items():
        is_array = hasattr(array, "dtype") and not np.ma.isMaskedArray(array)
        if not is_array and (array is not None or name in ("differences", "queries")):
            raise ValueError(f"constraints: expected {name} to be an array, found {type(array).__name__}")
    differences, queries = constraints.differences, constraints.queries
    if differences.ndim != 3 + batch or queries.ndim != 2 + batch or queries.shape[:-1] != differences.shape[:-2]:
        leading = "batch, " * batch
        raise ValueError(
            f"constraints: expected differences ({leading}n, m, d) and queries ({leading}n, e), "
            f"found {tuple(differences.shape)} and {tuple(queries.shape)}"
        )
    if 0 in differences.shape or 0 in queries.shape:
        raise ValueError(f"constraints: expected at least one, found differences of shape {differences.shape}")
    check_precision("constraints", differences.dtype)
    for name, array in constraints._asdict().items():
        if array is None:
            continue
        if name not in ("differences", "queries") and array.shape != differences.shape[:-1]:
            raise ValueError(f"constraints: expected {name} {differences.shape[:-1]}, found {tuple(array.shape)}")
        if name in ("equal", "present"):
            if array.dtype != bool:
                raise ValueError(f"constraints: expected {name} of truth values, found {array.dtype}")
        elif array.dtype != differences.dtype:
            raise ValueError(f"constraints: expected one precision, found {differences.dtype} and {array.dtype}")
        elif name == "penalty":
            low = float(np.min(np.asarray(array))) if is_concrete(array) else 1.0
            if not low > 0:
                raise ValueError(f"constraints: expected a positive penalty, found {low}")
        else:
            wrong = int((~np.isfinite(np.asarray(array))).sum()) if is_concrete(array) else 0
            if wrong:
                raise ValueError(
                    f"constraints: expected finite {name}, found {wrong} NaN or infinite entries "
                    "(is every alpha within 0..T-1?)"
                )
    equal, present, penalty = constraints.equal, constraints.present, constraints.penalty
    if equal is not None and penalty is not None and is_concrete(equal) and is_concrete(penalty):
        counts = True if present is None or not is_concrete(present) else np.asarray(present)
        priced = np.asarray(penalty)[np.asarray(equal) & counts & np.isfinite(np.asarray(penalty))]
        if priced.size:
            raise ValueError(f"constraints: expected a penalty of inf on every equality, found {priced[0]}")


def check_kind(constraints: Any) -> None:
    """Raise ValueError unless the argument is a Constraints, and RuntimeError where JAX cannot compute."""
    forks.check()
    fits = isinstance(constraints, Constraints)
    if not fits:
        raise ValueError(
            "constraints: expected Constraints, as svm.token_constraints(problem, alpha) makes them, "
            f"found {type(constraints).__name__}"
        )


def margins(constraints: Constraints, W: Float[AnyArray, "*lanes d e"]) -> Float[AnyArray, "*lanes n m"]:
    """Return the margins `<A_k, W>`, (n, m).

    Raises:
        ValueError: not a Constraints, or W of another shape than the rows.

    Example:
        >>> bool(svm.margins(constraints, solution.W).min() > 1 - 1e-9)
        True
    """
    check_kind(constraints)
    *lanes, _, _, d = constraints.differences.shape
    shape = (*lanes, d, constraints.queries.shape[-1])
    found = getattr(W, "shape", type(W).__name__)
    if found != shape:
        raise ValueError(f"margins: expected W {shape}, found {found}")
    einsum = module_of(W, *constraints[:2]).einsum
    return einsum("...nmd,...nd->...nm", constraints.differences, constraints.queries @ W.mT)


def combination(constraints: Constraints, duals: Float[AnyArray, "*lanes n m"]) -> Float[AnyArray, "*lanes d e"]:
    """Return `sum_k a_k A_k`, (d, e), the adjoint of `margins`.

    Raises:
        ValueError: not a Constraints, or a number of multipliers other than that of the rows.

    Example:
        >>> W = svm.combination(constraints, solution.duals)  # sum_k a_k A_k
        >>> round(float(metrics.correlation(W, solution.W)), 9)
        1.0
    """
    check_kind(constraints)
    if jnp.shape(duals) != constraints.differences.shape[:-1]:
        raise ValueError(f"duals: expected {constraints.differences.shape[:-1]}, found {jnp.shape(duals)}")
    einsum = module_of(duals, *constraints[:2]).einsum
    return einsum("...nmd,...nm->...nd", constraints.differences, duals).mT @ constraints.queries


def lengths(constraints: Constraints) -> Float[AnyArray, "*lanes n m"]:
    """Return `||A_k||_F`, (n, m)."""
    xp = module_of(*constraints[:2])
    return xp.linalg.norm(constraints.differences, axis=-1) * xp.linalg.norm(constraints.queries, axis=-1)[..., None]


def unit_lengths(constraints: Constraints) -> Float[AnyArray, "*lanes n m"]:
    """Return the divisor that gives each row length 1; 1 for zero rows and rows that are not present."""
    of_rows = lengths(constraints)
    return module_of(of_rows).where(rows(constraints).present & (of_rows > 0), of_rows, 1.0)


def gram(constraints: Constraints) -> Float[AnyArray, "*lanes c c"]:
    """Return the Gram matrix `<A_k, A_l>` of all rows, (n m, n m)."""
    flat, queries, xp = flattened(constraints), constraints.queries, module_of(*constraints[:2])
    m = constraints.differences.shape[-2]
    return (flat @ flat.mT) * xp.repeat(xp.repeat(queries @ queries.mT, m, axis=-2), m, axis=-1)


def flattened(constraints: Constraints) -> Float[AnyArray, "*lanes c d"]:
    """Return the differences of all rows, (n m, d)."""
    *lanes, n, m, d = constraints.differences.shape
    return constraints.differences.reshape(*lanes, n * m, d)


class Rows(NamedTuple):
    """Targets, kinds and multiplier bounds of all rows, without defaults.

    A row's multiplier lies in [lower, upper]: `[0, inf)` for a hard inequality, all of R for an equality, `[0, C]` for
    a soft row, and 0 for a row that is not present.
    """

    targets: Float[AnyArray, "*lanes n m"]
    lower: Float[AnyArray, "*lanes n m"]
    upper: Float[AnyArray, "*lanes n m"]
    equal: Bool[AnyArray, "*lanes n m"]
    present: Bool[AnyArray, "*lanes n m"]

    @property
    def hard(self) -> Bool[AnyArray, "..."]:
        """The rows that must be satisfied."""
        return self.present & (self.upper == jnp.inf)


def rows(constraints: Constraints) -> Rows:
    """Return targets, kinds and multiplier bounds of the rows, (n, m) each."""
    shape, dtype = constraints.differences.shape[:-1], constraints.differences.dtype
    _, _, targets, equal, present, penalty = constraints
    xp = module_of(*(leaf for leaf in constraints if leaf is not None))
    targets = xp.ones(shape, dtype) if targets is None else targets
    equal = xp.zeros(shape, bool) if equal is None else equal
    present = xp.ones(shape, bool) if present is None else present
    price = xp.full(shape, xp.inf, dtype) if penalty is None else penalty
    upper = xp.where(present, xp.where(equal, xp.inf, price), 0.0)
    return Rows(targets, xp.where(equal, -upper, 0.0), upper, equal & present, present)


def hard_part(constraints: Constraints) -> Constraints:
    """Return constraints in which only the hard rows are present."""
    if constraints.penalty is None:
        return constraints
    return constraints._replace(penalty=None, present=rows(constraints).hard)


def is_free(constraints: Constraints) -> Bool[AnyArray, "*lanes"]:
    """Return whether W can be scaled up: inequalities have targets above 0, and equalities have target 0."""
    of = rows(constraints)
    xp = module_of(of.targets)
    bound = of.hard & xp.where(of.equal, of.targets != 0, of.targets <= 0)
    return ~bound.any(axis=LAST) & (of.hard & ~of.equal).any(axis=LAST)


def worst_margin(constraints: Constraints, W: Float[AnyArray, "*lanes d e"]) -> Float[AnyArray, "*lanes"]:
    """Return the divisor of W that satisfies the hard inequalities as closely as possible, ().

    It is 1 if the scale of W is not free: an equality has a nonzero target, an inequality has a target that is not
    above 0, or there is no hard inequality. With soft rows it is at most 1, since they may favour a longer W.
    """
    return worst_of(constraints, margins(constraints, W))


def worst_of(constraints: Constraints, margins: Float[AnyArray, "*lanes n m"]) -> Float[AnyArray, "*lanes"]:
    """Return the same from the margins of W."""
    of = rows(constraints)
    xp = module_of(margins, of.targets)
    inequality = of.hard & ~of.equal
    ratio = margins / xp.where(inequality, of.targets, 1.0)
    worst = xp.min(xp.where(inequality, ratio, xp.inf), axis=LAST)
    worst = xp.where((of.present & ~of.hard).any(axis=LAST), xp.minimum(worst, 1.0), worst)
    return xp.where(is_free(constraints), worst, 1.0)


def violation(constraints: Constraints, W: Float[AnyArray, "*lanes d e"]) -> Float[AnyArray, "*lanes"]:
    """Return the largest shortfall of a hard row from its target, at least 0.

    If all targets are below 1, it is relative to the largest one: W = 0 is not close to targets of 1e-10.
    """
    return _largest_shortfall(rows(constraints), margins(constraints, W))


def violation_of_zero(constraints: Constraints) -> Float[AnyArray, "*lanes"]:
    """Return the violation of W = 0.

    Its margins are not computed. XLA for CPUs (jaxlib 0.10 to 0.12) fuses a product with a constant matrix and a sum in
    a way that reads memory before it is written: with jaxlib 0.12, one compilation in eight gave NaN.
    """
    return _largest_shortfall(rows(constraints), 0.0)


def _largest_shortfall(of: Rows, margins: Float[AnyArray, "*lanes n m"] | float) -> Float[AnyArray, "*lanes"]:
    short, xp = of.targets - margins, module_of(of.targets)
    short = xp.max(xp.where(of.hard, xp.where(of.equal, xp.abs(short), short), 0.0), axis=LAST)
    largest = xp.max(xp.where(of.hard, xp.abs(of.targets), 0.0), axis=LAST)
    return xp.maximum(0.0, short / xp.where(largest > 0, xp.minimum(largest, 1.0), 1.0))


class Equations(NamedTuple):
    """The equalities that are independent of earlier ones, and the inverse of their Gram matrix (0 elsewhere)."""

    taken: Bool[AnyArray, "*lanes c"]
    inverse: Float[AnyArray, "*lanes c c"]


def equations(constraints: Constraints) -> Equations:
    """Find independent equalities; the other ones, if consistent, follow from them."""
    G = gram(constraints)
    equal = rows(constraints).equal.reshape(G.shape[:-1])
    if isinstance(G, np.ndarray):
        lanes = [_independent(*lane) for lane in zip(equal, G, strict=True)]
        return Equations(*map(np.stack, zip(*lanes, strict=True)))
    dependent = _dependent(G)
    order = jnp.argsort(~equal, stable=True)

    def take(i: Int[Array, ""], now: tuple[Array, Array]) -> tuple[Array, Array]:
        tableau, taken = now
        k = order[i]
        takes = equal[k] & (tableau[k, k] > dependent[k])
        return jnp.where(takes, pivot(tableau, k), tableau), taken.at[k].set(takes)

    tableau, taken = jax.lax.fori_loop(0, jnp.sum(equal), take, per_lane((G, jnp.zeros_like(equal)), G))
    return Equations(taken, jnp.where(taken[:, None] & taken[None, :], tableau, 0.0))


def _independent(equal: Bool[np.ndarray, " c"], G: Float[np.ndarray, "c c"]) -> Equations:
    """Return those of one lane."""
    tableau, dependent, taken = G, _dependent(G), np.zeros_like(equal)
    for k in np.flatnonzero(equal):
        taken[k] = tableau[k, k] > dependent[k]
        tableau = pivot(tableau, k) if taken[k] else tableau
    return Equations(taken, np.where(taken[:, None] & taken[None, :], tableau, 0.0))


def _dependent(G: Float[AnyArray, "c c"]) -> Float[AnyArray, " c"]:
    """Return the pivots up to which rows depend on earlier ones, to rounding."""
    return 1e3 * float(jnp.finfo(G.dtype).eps) * diagonal(G)


def onto(constraints: Constraints, found: Equations, W: Float[AnyArray, "*lanes d e"]) -> Float[AnyArray, "*lanes d e"]:
    """Return the matrix closest to W that satisfies the equalities."""
    of, xp = rows(constraints), module_of(W)
    for _ in range(2):
        short = xp.where(of.equal, of.targets - margins(constraints, W), 0.0)
        flat = short.reshape(*found.taken.shape, 1)
        W = W + combination(constraints, (found.inverse @ flat).reshape(short.shape))
    return W


def without_absent(constraints: Constraints) -> Constraints:
    """Return constraints with zeros in rows that are not present, and in the queries of groups without a row."""
    if (present := constraints.present) is None:
        return constraints
    xp = module_of(present, *constraints[:2])
    return constraints._replace(
        differences=xp.where(present[..., None], constraints.differences, 0.0),
        queries=xp.where(present.any(axis=-1)[..., None], constraints.queries, 0.0),
    )


class Reduction(NamedTuple):
    """The same constraints in orthonormal bases of the spans of the differences and of the queries.

    Any unitarily invariant norm has a minimizer in these spans, `W = left W_reduced right^T`.
    """

    constraints: Constraints
    left: Float[AnyArray, "*lanes d p"]
    right: Float[AnyArray, "*lanes e q"]

    def lift(self, W: Float[AnyArray, "*lanes p q"]) -> Float[AnyArray, "*lanes d e"]:
        """Return the (d, e) matrix of a reduced one."""
        return self.left @ W @ self.right.mT


def reduce(constraints: Constraints) -> Reduction:
    """Express constraints in p = min(d, n m) and q = min(e, n) coordinates.

    Rows that are not present are not read and become 0, as do the queries of groups without a row.
    """
    constraints = without_absent(constraints)
    left, right = _basis(flattened(constraints)), _basis(constraints.queries)
    differences = constraints.differences @ left[..., None, :, :]
    return Reduction(constraints._replace(differences=differences, queries=constraints.queries @ right), left, right)


def _basis(vectors: Float[AnyArray, "*lanes k d"]) -> Float[AnyArray, "*lanes d p"]:
    """Return the basis of the span of fewer than d vectors, otherwise of the whole space."""
    *lanes, k, d = vectors.shape
    if k < d:
        return orthonormal(vectors)
    xp = module_of(vectors)
    return xp.broadcast_to(xp.eye(d, dtype=vectors.dtype), (*lanes, d, d))
