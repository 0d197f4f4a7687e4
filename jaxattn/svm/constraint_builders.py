"""Make the constraints of max-margin problems: for tokens, token sets, lists, soft margins and prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxattn import metrics
from jaxattn.problem import Problem, as_array, check_one, is_concrete
from jaxattn.svm.constraints import Constraints, check_kind, rows
from jaxattn.svm.pivoting import positive

__all__ = [
    "finite_constraints",
    "listed",
    "prompt_constraints",
    "set_constraints",
    "soft",
    "token_constraints",
    "with_finite_part",
]


def token_constraints(problem: Problem, alpha: Any) -> Constraints:
    """Return the Att-SVM constraints that select token `alpha[i]` in input `i` (2308.16898, eq. Att-SVM).

    The differences `x_i,alpha_i - x_it` run over `t != alpha_i` in increasing order, (n, T-1, d); duals and margins
    have the same order. Rows of tokens that input i cannot see are marked as not present.

    Raises:
        ValueError: not a Problem; alpha of a wrong shape or type, outside 0..T-1, or a token that its input cannot see.
            Under `jit` and `vmap`, where numbers cannot be checked, such an alpha gives NaN constraints, which `solve`
            refuses.

    Example:
        >>> constraints = svm.token_constraints(problem, tokens.optimal(problem))
        >>> svm.solve(constraints).W.shape
        (5, 5)
    """
    check_one(problem)
    n, T = problem.n, problem.T
    alpha = _array("alpha", alpha)
    if alpha.dtype.kind not in "iu" or alpha.shape != (n,):
        raise ValueError(f"alpha: expected {n} integers, found shape {alpha.shape} of {alpha.dtype}")
    if is_concrete(alpha):
        numbers = np.asarray(alpha)
        outside = numbers[(numbers < 0) | (numbers >= T)]
        if outside.size:
            raise ValueError(f"alpha: expected tokens 0..{T - 1}, found {outside.tolist()}")
    alpha = jnp.asarray(alpha, int)
    good = (alpha >= 0) & (alpha < T)
    if problem.present is not None:
        seen = jnp.take_along_axis(problem.present, jnp.clip(alpha, 0, T - 1)[:, None], axis=1)[:, 0]
        unseen = np.flatnonzero(~np.asarray(seen)).tolist() if is_concrete(seen) else []
        if unseen:
            raise ValueError(f"alpha: expected tokens that their inputs can see, found others of the inputs {unseen}")
        good = good & seen
    differences, _, present = _against_others(problem, alpha, good)
    return Constraints(differences=differences, queries=problem.Z, present=present)


def set_constraints(problem: Problem, selected: Any) -> Constraints:
    """Return the Gen-SVM constraints that select a set `O_i` of tokens in each input (2308.16898, eq. Gen-SVM).

    They require margins of at least 1 between `O_i` and the other tokens, and of 0 inside `O_i`. Comparing the first
    token of `O_i` with all other tokens is equivalent, and needs only T-1 rows.

    Args:
        problem: a problem of n inputs of T tokens.
        selected: truth values, (n, T): whether a token is in `O_i`.

    Raises:
        ValueError: selected of a wrong shape or type, an input without a selected token, or with one that it cannot
            see. Under `jit` and `vmap` such an input gives NaN constraints, which `solve` refuses.

    Example:
        >>> s = attention.probabilities(run.weights, problem)
        >>> W_mm = svm.solve(svm.set_constraints(problem, s >= jnp.sort(s)[:, -2:-1])).W
    """
    differences, _, _, inside, present = _split(problem, selected)
    return Constraints(
        differences=differences,
        queries=problem.Z,
        targets=jnp.where(inside, 0.0, 1.0).astype(problem.X.dtype),
        equal=inside,
        present=present,
    )


def finite_constraints(problem: Problem, selected: Any, logits: Any) -> Constraints:
    """Return the equations of the finite part: `(x_it - x_iu)^T W z_i` as in the logits, for t, u in `O_i`.

    Their least-norm solution is `W_fin` of the multi-token limit (2308.16898, eq. 9): the differences of the logits are
    the log ratios of the attention inside `O_i`.

    Args:
        problem: a problem of n inputs of T tokens.
        selected: as in `set_constraints`.
        logits: the logits of the trained weights, (n, T), as returned by `attention.logits`.

    Raises:
        ValueError: as in `set_constraints`; logits of a wrong shape or type.

    Example:
        >>> logits = attention.logits(run.weights, problem)
        >>> W_fin = svm.solve(svm.finite_constraints(problem, logits > logits.mean(axis=1, keepdims=True), logits)).W
    """
    differences, reference, others, inside, _ = _split(problem, selected)
    logits = jnp.asarray(_numbers("logits", logits))
    if logits.shape != (problem.n, problem.T):
        raise ValueError(f"logits: expected shape ({problem.n}, {problem.T}), found {logits.shape}")
    own = jnp.take_along_axis(logits, reference[:, None], axis=1)
    return Constraints(
        differences=differences,
        queries=problem.Z,
        targets=jnp.where(inside, own - jnp.take_along_axis(logits, others, axis=1), 0.0),
        equal=inside,
        present=inside,
    )


def with_finite_part(
    W: Float[Array, "d e"], W_fin: Float[Array, "d e"], W_mm: Float[Array, "d e"]
) -> Float[Array, "d e"]:
    """Return `W_SVMeq = W_fin + C W_mm` with the `C >= 0` that brings it closest to the trained W in least squares.

    In the limit of training W approaches `W_fin` plus a growing multiple of `W_mm`; C is the multiple reached so far.
    (The unnormalized inner product with W has no maximum in C.)

    Args:
        W: trained weights, (d, e).
        W_fin: the least-norm solution of `svm.finite_constraints`, (d, e).
        W_mm: the solution of `svm.set_constraints`, (d, e). If it is zero, as for an infeasible problem, W_fin is
            returned.

    Raises:
        ValueError: three arrays of different shapes.

    Example:
        >>> W = svm.with_finite_part(run.weights, jnp.zeros((5, 5)), solution.W)
        >>> round(float(metrics.correlation(W, solution.W)), 9)
        1.0
    """
    shapes = [getattr(one, "shape", type(one).__name__) for one in (W, W_fin, W_mm)]
    if len(set(shapes)) > 1:
        raise ValueError(f"with_finite_part: expected three matrices of one shape, found {shapes}")
    length = metrics.norm(W_mm)
    direction = W_mm / positive(length)
    return W_fin + jnp.maximum(jnp.sum((W - W_fin) * direction), 0.0) * direction


def prompt_constraints(X: Any, alpha: Any) -> Constraints:
    """Return the constraints `(x_i,alpha_i - x_it)^T p >= 1` on a prompt p, a (d, 1) matrix (2306.13596).

    Args:
        X: tokens, (n, T, d).
        alpha: the selected tokens, (n,).

    Raises:
        ValueError: as in `token_constraints` and `Problem`.

    Example:
        >>> svm.solve(svm.prompt_constraints(problem.X, alpha)).W.shape  # a prompt p
        (5, 1)
    """
    X = as_array("X", X)
    if X.ndim != 3:
        raise ValueError(f"X: expected shape (n, T, d), found {X.shape}")
    n, _, d = X.shape
    filling = Problem(X=X, Z=jnp.ones((n, d), X.dtype), Y=jnp.ones(n, X.dtype), v=jnp.ones(d, X.dtype))
    return token_constraints(filling, alpha)._replace(queries=jnp.ones((n, 1), X.dtype))


def listed(differences: Sequence[Any], queries: Any) -> Constraints:
    """Return constraints in groups of any lengths: all rows of `differences[i]`, (m_i, d), have the query `queries[i]`.

    Use it for sequence-to-sequence and causal attention (one group per input and position, with all or earlier tokens)
    and for next-token prediction. Shorter groups are padded with absent rows; a group may be empty. The groups must be
    concrete, so the function does not work under `jit`; its result does.

    Raises:
        ValueError: no rows; groups that are not (m_i, d) with one d and one precision, or not as many as queries; NaN
            or infinity.

    Example:
        >>> rows = svm.listed([np.eye(3), -np.eye(3)[:1]], np.eye(3)[:2])
        >>> svm.solve(rows).W.shape
        (3, 3)
    """
    if not isinstance(differences, Sequence | np.ndarray | jax.Array) or getattr(differences, "ndim", 1) == 0:
        raise ValueError(
            f"differences: expected a list of groups, an (m, d) array each, found {type(differences).__name__}"
        )
    groups = [np.asarray(as_array(f"differences[{i}]", group)) for i, group in enumerate(differences)]
    queries = as_array("queries", queries)
    shapes = sorted({group.shape for group in groups})
    widths = {shape[-1] if len(shape) == 2 else 0 for shape in shapes}
    if queries.ndim != 2 or len(groups) != len(queries) or len(widths) != 1 or 0 in widths:
        raise ValueError(
            "listed: expected queries (n, e) and for each a group of differences (m, d), all of one d, "
            f"found queries {queries.shape} and {len(groups)} groups of shapes {shapes}"
        )
    precisions = sorted({group.dtype.name for group in groups})
    if len(precisions) != 1:
        raise ValueError(f"listed: expected one precision, found {precisions}")
    longest = max(len(group) for group in groups)
    if longest == 0:
        raise ValueError(f"listed: expected at least one row, found {len(groups)} empty groups")
    filled = np.zeros((len(groups), longest, *widths), precisions[0])
    present = np.zeros((len(groups), longest), bool)
    for i, group in enumerate(groups):
        filled[i, : len(group)], present[i, : len(group)] = group, True
    return Constraints(jnp.asarray(filled), queries, present=None if present.all() else jnp.asarray(present))


def soft(constraints: Constraints, C: Any = 10.0) -> Constraints:
    """Return the soft-margin version of constraints, with the objective `min ||W|| + C sum of shortfalls`.

    Equalities stay hard. `solve` with a squared norm (`svm.squared`) minimizes `||W||^2 / 2 + C sum of shortfalls`.

    Args:
        constraints: constraints of any kind.
        C: the cost of a unit of shortfall, one number or one per row, (n, m); rows with C = inf are hard.

    Raises:
        ValueError: C is not positive, not a number, or of another shape.

    Example:
        >>> svm.solve(svm.soft(constraints, C=10.0)).W.shape
        (5, 5)
    """
    check_kind(constraints)
    C = _numbers("C", C)
    shape = constraints.differences.shape[:-1]
    if C.shape not in ((), shape):
        raise ValueError(f"C: expected a number or one for each row, {shape}, found shape {C.shape}")
    if is_concrete(C) or isinstance(C, np.generic):
        numbers = np.asarray(C, float)
        wrong = numbers[~(numbers > 0)]
        if wrong.size:
            raise ValueError(f"C: expected positive numbers, found {wrong[0]}")
    price = jnp.broadcast_to(jnp.asarray(C, constraints.differences.dtype), shape)
    return constraints._replace(penalty=jnp.where(rows(constraints).equal, jnp.inf, price))


def _array(name: str, value: Any) -> Any:
    """Return an array unchanged, and lists of one shape as an array."""
    try:
        return value if hasattr(value, "dtype") else np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name}: expected an array, found {error}") from error


def _numbers(name: str, value: Any) -> Any:
    """Return an array of real numbers unchanged, and lists of them as an array."""
    array = _array(name, value)
    if not (jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer)):
        raise ValueError(f"{name}: expected real numbers, found {array.dtype}")
    return array


def _others(alpha: Int[Array, " n"], T: int) -> Int[Array, "n m"]:
    """Return the other tokens of each input in increasing order."""
    others = jnp.arange(T - 1)[None, :]
    return others + (others >= alpha[:, None]).astype(others.dtype)


def _against_others(
    problem: Problem, alpha: Int[Array, " n"], good: Bool[Array, " n"]
) -> tuple[Float[Array, "n m d"], Int[Array, "n m"], Bool[Array, "n m"] | None]:
    """Compare one token of each input with its other tokens.

    Returns:
        The differences (NaN where `good` is False, 0 for tokens that the input cannot see), the other tokens, and which
            of them it can see (None if all).
    """
    others = _others(alpha, problem.T)
    chosen = jnp.where(good, alpha, problem.T)[:, None]
    differences = _taken(problem.X, chosen) - _taken(problem.X, others)
    if problem.present is None:
        return differences, others, None
    present = jnp.take_along_axis(problem.present, others, axis=1, mode="fill", fill_value=False)
    return jnp.where((present | ~good[:, None])[..., None], differences, 0.0), others, present


def _taken(X: Float[Array, "n T d"], which: Int[Array, "n m"]) -> Float[Array, "n m d"]:
    return jnp.take_along_axis(X, which[..., None], axis=1, mode="fill", fill_value=jnp.nan)


def _split(
    problem: Problem, selected: Any
) -> tuple[Float[Array, "n m d"], Int[Array, " n"], Int[Array, "n m"], Bool[Array, "n m"], Bool[Array, "n m"] | None]:
    """Compare the first selected token of each input with the others.

    Returns:
        The differences (NaN if an input has no selected token, or one that it cannot see), the first selected token,
            the other tokens, which of these are selected too, and which the input can see (None if all).
    """
    check_one(problem)
    selected = _array("selected", selected)
    if selected.dtype != bool or selected.shape != (problem.n, problem.T):
        raise ValueError(
            f"selected: expected truth values ({problem.n}, {problem.T}), "
            f"found shape {selected.shape} of {selected.dtype}"
        )
    if is_concrete(selected):
        empty = np.flatnonzero(~np.asarray(selected).any(axis=1))
        if empty.size:
            raise ValueError(f"selected: expected a token in every input, found none in {empty.tolist()}")
    selected = jnp.asarray(selected)
    good = selected.any(axis=1)
    if problem.present is not None:
        unseen = (selected & ~problem.present).any(axis=1)
        if is_concrete(unseen) and np.asarray(unseen).any():
            raise ValueError(
                "selected: expected tokens that their inputs can see, found others of the inputs "
                f"{np.flatnonzero(np.asarray(unseen)).tolist()}"
            )
        good = good & ~unseen
    reference = jnp.argmax(selected, axis=1)
    differences, others, present = _against_others(problem, reference, good)
    return differences, reference, others, jnp.take_along_axis(selected, others, axis=1), present
