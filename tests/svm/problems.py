"""Max-margin problems of one shape, n = 3 groups of m = 3 rows in d = 5, so that each solver compiles once.

The planted ones are built backwards: first multipliers and W, then the rows. A pair (W, a) with `a >= 0`, margins
`<A_k, W> >= 1` and `sum_k a_k A_k` a subgradient of the norm at W, with `a_k = 0` wherever the margin exceeds 1, is
optimal: the answer is known before any solver has run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn import Problem, svm, tokens
from jaxattn.norms import named
from jaxattn.svm import Status
from jaxattn.svm import constraints as cons
from tests import instances

INF = float("inf")
# Two lanes of rows that may be absent, in the Frobenius norm.
LIFTED = jax.jit(jax.vmap(svm.solve))


class Planted(NamedTuple):
    """Constraints with the known solution, multipliers (to sum to the value), and value."""

    constraints: svm.Constraints
    W: np.ndarray
    duals: np.ndarray
    value: float


def conjugate(p: float) -> float:
    return INF if p == 1 else 1.0 if p == INF else p / (p - 1)


def of_entries(p: float):
    return lambda W: np.linalg.norm(np.ravel(W), p), lambda M: np.linalg.norm(np.ravel(M), conjugate(p))


def of_singular_values(p: float):
    value, dual = of_entries(p)
    return (lambda W: value(np.linalg.svd(W)[1])), (lambda M: dual(np.linalg.svd(M)[1]))


def of_lengths(p: float, axis: int):
    value, dual = of_entries(p)
    return (lambda W: value(np.linalg.norm(W, axis=axis))), (lambda M: dual(np.linalg.norm(M, axis=axis)))


# The value and the dual norm in NumPy, by the norm's name.
NORMS: dict[str, tuple[Callable, Callable]] = {
    "frobenius": of_entries(2.0),
    "nuclear": of_singular_values(1.0),
    "spectral": of_singular_values(INF),
    "schatten_1.5": of_singular_values(1.5),
    "schatten_4": of_singular_values(4.0),
    "l1": of_entries(1.0),
    "l_1.5": of_entries(1.5),
    "l_3": of_entries(3.0),
    "max": of_entries(INF),
    "2,inf": of_lengths(INF, 1),
    "2,1": of_lengths(1.0, 1),
    "2,inf of columns": of_lengths(INF, 0),
    "2,1 of columns": of_lengths(1.0, 0),
}


def smooth(seed: int, p: float = 2.0, support: int = 2, n: int = 3, m: int = 3, d: int = 5, *, of_values=False):
    """`W = ` the gradient of the dual norm at `sum a_k A_k`, for the l_p norm of entries, or of singular values.

    Each of the n groups has `support` support rows, and rows of margin at least 1.5.
    """
    rng = np.random.default_rng(seed)

    def gradient(s: np.ndarray) -> np.ndarray:
        return np.sign(s) * np.abs(s) ** (1 / (p - 1))

    while True:
        queries, differences, duals = rng.normal(size=(n, d)), rng.normal(size=(n, m, d)), np.zeros((n, m))
        duals[:, :support] = rng.uniform(0.5, 2.0, size=(n, support))
        M = np.einsum("nm,nmd,ne->de", duals, differences, queries)
        if of_values:
            U, s, Vt = np.linalg.svd(M)
            s[n:] = 0.0  # Rounding, which a small exponent would enlarge.
            W = (U * gradient(s)) @ Vt
        else:
            W = gradient(M)
        margins = np.einsum("nmd,de,ne->nm", differences, W, queries)
        if np.all(margins[:, :support] > 0.2):
            break
    # Support rows of margin exactly 1: what divides A_k multiplies its multiplier.
    differences[:, :support] /= margins[:, :support, None]
    duals[:, :support] *= margins[:, :support]
    _lift_margins(differences[:, support:], W, queries)
    value = (of_singular_values if of_values else of_entries)(p)[0](W)
    return _planted(differences, queries, W, duals, value)


def nuclear(seed: int, n: int = 3, m: int = 3, d: int = 5, r: int = 2) -> Planted:
    """`W = U diag(s) V^T` of rank r, and `sum a_k A_k = U V^T + M` with M between the complements, of norm 0.8.

    The n support constraints, one in each group, fix W among the matrices `U S V^T` (S symmetric), the only ones that
    have this subgradient, where `r (r + 1) / 2 <= n`.
    """
    rng = np.random.default_rng(seed)
    while True:
        queries = rng.normal(size=(n, d))
        span = np.linalg.qr(queries.T)[0]
        left, right = np.linalg.qr(rng.normal(size=(d, d)))[0], span @ np.linalg.qr(rng.normal(size=(n, n)))[0]
        W = left[:, :r] @ np.diag(rng.uniform(1.0, 3.0, r)) @ right[:, :r].T
        subgradient = left[:, :r] @ right[:, :r].T + 0.8 * left[:, r:n] @ right[:, r:n].T
        # subgradient = sum_i g_i z_i^T, and g_i = a_i (difference of margin 1).
        parts = (subgradient @ np.linalg.pinv(queries)).T
        margins = np.einsum("nd,de,ne->n", parts, W, queries)
        if np.all(margins > 0.2):
            break
    differences, duals = rng.normal(size=(n, m, d)), np.zeros((n, m))
    differences[:, 0], duals[:, 0] = parts / margins[:, None], margins
    _lift_margins(differences[:, 1:], W, queries)
    return _planted(differences, queries, W, duals, np.linalg.norm(W, "nuc"))


def planted(name: str) -> list[Planted]:
    """Problems with known answers in a norm."""
    if name == "frobenius":
        return [smooth(seed, support=support) for seed in range(3) for support in (1, 2, 3)]
    if name == "nuclear":
        return [nuclear(seed, r=r) for seed in range(3) for r in (1, 2)]
    if isinstance(p := getattr(named(name), "p", None), float) and 1 < p < INF:
        return [smooth(0, p, of_values=name.startswith("schatten"))]
    return []


def _lift_margins(differences: np.ndarray, W: np.ndarray, queries: np.ndarray) -> None:
    """Move each difference along `W z` until its margin is at least 1.5, in place."""
    along = queries @ W.T
    margins = np.einsum("nmd,nd->nm", differences, along)
    missing = np.maximum(1.5 - margins, 0.0) / np.sum(along**2, axis=1)[:, None]
    differences += missing[..., None] * along[:, None, :]


def _planted(differences, queries, W, duals, value) -> Planted:
    constraints = svm.Constraints(jnp.asarray(differences), jnp.asarray(queries))
    return Planted(constraints, W, duals * value / duals.sum(), float(value))


def mixed(seed: int, norm: svm.Norm, n: int = 3, m: int = 3, d: int = 5) -> Planted:
    """Rows of every kind, for the Frobenius or the nuclear norm, squared or not.

    First tokens, queries and multipliers: W is along the (top singular pair of the) combination of the rows, and the
    targets are what complementarity asks for at W. In random places, each at least once where n m >= 7: hard rows that
    are tight (kind 0) and slack, equalities, soft rows with a multiplier inside its bounds, at the price and at zero,
    and absent ones.
    """
    rng = np.random.default_rng(seed)
    queries, differences = rng.normal(size=(n, d)), rng.normal(size=(n, m, d))
    kind = rng.permutation(np.arange(n * m) % 7).reshape(n, m)
    slack, equal, inside, bound, idle, absent = (kind == k for k in range(1, 7))
    duals = rng.uniform(0.5, 2.0, size=(n, m))
    duals[slack | idle | absent] = 0.0
    duals[equal] *= rng.choice([-1.0, 1.0], size=int(equal.sum()))
    M = np.einsum("nm,nmd,ne->de", duals, differences, queries)
    left, s, right = np.linalg.svd(M)
    is_frobenius = norm.plain == svm.frobenius
    size = np.linalg.norm(M) if is_frobenius else s[0]
    along = M / size if is_frobenius else np.outer(left[:, 0], right[0])
    if norm.power == 2:
        W = size * along
    else:
        duals, W = duals / size, rng.uniform(0.5, 3.0) * along
    margins = np.einsum("nmd,de,ne->nm", differences, W, queries)
    length = np.linalg.norm(W) if is_frobenius else np.linalg.norm(W, "nuc")
    away = rng.uniform(0.2, 1.0, size=(n, m))
    targets = margins + away * (1.0 * bound - 1.0 * (slack | idle)) + 100.0 * absent
    penalty = np.where(inside | idle, np.abs(duals) + away, np.where(bound, duals, np.inf))
    cost = np.sum((penalty * away)[bound])
    value = (length**2 / 2 if norm.power == 2 else length) + cost
    rows = svm.Constraints(
        *map(jnp.asarray, (differences, queries, targets)),
        equal=jnp.asarray(equal),
        present=jnp.asarray(~absent),
        penalty=jnp.asarray(penalty),
    )
    return Planted(rows, W, duals, float(value))


@partial(jax.jit, static_argnames="priced")
def full(constraints: svm.Constraints, *, priced: bool = False) -> svm.Constraints:
    """The same rows with every field written out, so that all kinds of problems share one program."""
    of = cons.rows(constraints)
    penalty = jnp.where(jnp.logical_or(of.hard, ~of.present), jnp.inf, of.upper) if priced else None
    return constraints._replace(targets=of.targets, equal=of.equal, present=of.present, penalty=penalty)


def one_row(b, z) -> svm.Constraints:
    """`b^T W z >= 1` in the shared shape; the other rows ask for half of it."""
    b, z = np.asarray([*b, 0.0, 0.0]), np.asarray([*z, 0.0, 0.0])
    differences = np.where(np.arange(9).reshape(3, 3, 1) == 0, b, 2 * b)
    return svm.Constraints(jnp.asarray(differences), jnp.tile(jnp.asarray(z), (3, 1)))


# Lengths of rows that each ask for one entry of W (see `uneven`).
UNEVEN = {
    "lengths over 6 decades": (1e-3, 1.0, 1e3),
    "lengths over 10 decades": (1e5, 1e-5, 1.0),
    "one short row": (1.0, 1e-4, 1.0),
}


def uneven(lengths) -> svm.Constraints:
    """`c W_ii >= 1` for each of three lengths c, and weaker rows beside each: the solution is the diagonal `1 / c`."""
    eye = np.eye(instances.n, instances.d)
    differences = np.einsum("n,m,nd->nmd", lengths, [1.0, 2.0, 5.0], eye)
    return svm.Constraints(jnp.asarray(differences), jnp.asarray(eye))


def near_hull() -> svm.Constraints:
    """Select tokens that lie 0.1 outside the hull of the others: feasible, with a Frobenius solution of norm 30.

    At 0.01 (norm 300) Clarabel's own answer has a gap above 1e-8, so there would be no witness.
    """
    problem = instances.problem()
    mixture = jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(3), size=3))
    X = problem.X.at[:, 0].set(jnp.einsum("nt,ntd->nd", mixture, problem.X[:, 1:]) + 0.1 * problem.X[:, 0])
    return svm.token_constraints(Problem(X=X, Z=problem.Z, Y=problem.Y, v=problem.v), [0, 0, 0])


def self_attention() -> svm.Constraints:
    """Queries that are tokens."""
    problem = instances.problem(1)
    itself = Problem(X=problem.X, Z=problem.X[:, 0], Y=problem.Y, v=problem.v)
    return svm.token_constraints(itself, tokens.selected(instances.free(), itself))


@cache
def table() -> dict[str, tuple[svm.Constraints, Status]]:
    """Plain problems by name, each with the status that every solver has to reach."""
    drawn = instances.constraints(4)
    first = instances.lane(drawn, 0)
    D, Z, *_ = first
    scaled = {
        f"{what} times {c:g}": svm.Constraints(*((c * D, Z) if what == "tokens" else (D, c * Z)))
        for what in ("tokens", "queries")
        for c in (1e-6, 3.0, 1e5)
    }
    feasible = {
        **{f"sphere {i}": instances.lane(drawn, i) for i in range(4)},
        **scaled,
        "a repeated row": svm.Constraints(D.at[:, 2].set(D[:, 1]), Z),
        "an implied row": svm.Constraints(D.at[:, 2].set(2 * D[:, 1]), Z),
        "inputs and tokens in another order": svm.Constraints(D[::-1, ::-1], Z[::-1]),
        "one row": one_row([3.0, 0.0, 4.0], [0.0, 2.0, 0.0]),
        "self-attention": self_attention(),
        "near the hull": near_hull(),
        **{name: uneven(lengths) for name, lengths in UNEVEN.items()},
    }
    infeasible = {
        **{kind: make()[0] for kind, make in instances.INFEASIBLE.items()},
        "a token and its copy": svm.Constraints(D.at[1, 2].set(0.0), Z),
        "rows that cancel": svm.Constraints(D.at[1].set(-D[0]), Z.at[1].set(Z[0])),
    }
    return {name: (rows, Status.OPTIMAL) for name, rows in feasible.items()} | {
        name: (rows, Status.INFEASIBLE) for name, rows in infeasible.items()
    }


def of_kind(kind: str, C: float = 0.4) -> svm.Constraints:
    """A batch with rows of one kind: "hard", "soft", "squared" (as soft), or "sets"."""
    if kind == "sets":
        selected = jnp.zeros((instances.n, instances.T), bool).at[:, 0].set(True).at[0, 2].set(True)
        return instances.stacked([svm.set_constraints(instances.problem(i), selected) for i in range(3)])
    hard = instances.constraints(3)
    return hard if kind == "hard" else svm.soft(hard, C)
