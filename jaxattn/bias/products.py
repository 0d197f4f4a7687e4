"""Different norms for K and Q: what steepest descent in one norm of K and another of Q is expected to minimize.

That is the product `||K||_a ||Q||_b` over `K Q^T = W` of margin 1. At a finite width m it is not convex. With Q fixed,
the best K solves a max-margin problem over the queries `Q^T z`, and the other way round, so alternating certified
solutions lower the product to a local minimum. A certified lower bound comes from the norm of W that the product
induces:

- norms of singular values, with exponents p and q: the Schatten norm of exponent r, `1 / r = 1 / p + 1 / q >= 1`
  (Hoelder), attained for m >= d;
- longest rows of both: gamma2;
- largest entries of both: the norm of sign matrices, divided by m;
- Frobenius and largest entry: `W = sum_q u_q q^T` over sign vectors q with the least `sum |u_q|`, divided by `sqrt(m)`,
  which is a problem in the sum of column lengths over the lifted queries `(q . z)_q`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from jaxattn import attention, checks, descent, norms, svm
from jaxattn.bias import checking, ranking
from jaxattn.bias import verdict as verdicts
from jaxattn.bias.exponents import places
from jaxattn.bias.verdict import Verdict
from jaxattn.lengths import euclidean
from jaxattn.norms import Lengths, Norm
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.svm.packing import picked

__all__ = ["Products", "rank_factors"]

# Alternations end when the product falls by less than this share, or after so many.
_SETTLED, _MOST = 1e-6, 50
_MAX = norms.entrywise(float("inf"))


class Products(NamedTuple):
    """How close the factors of a batch of runs come to the largest margin of a product of norms, from both sides.

    Attributes:
        steps: the steps of the snapshots, (snapshots,).
        seeds: the lanes that are kept, (seeds,).
        at_most: the margin over `||K||_a ||Q||_b` as a share of the largest that was found, by alternation from the
            run's end and from random factors, (seeds, snapshots): an upper bound.
        at_least: the same as a share of a certified bound of the largest, (seeds, snapshots); 0 if none is known.
        verdict: whether the runs obey the product; it never names one alone, as others are not compared.
    """

    steps: Int[np.ndarray, " snapshots"]
    seeds: Int[np.ndarray, " seeds"]
    at_most: Float[np.ndarray, "seeds snapshots"]
    at_least: Float[np.ndarray, "seeds snapshots"]
    verdict: Verdict


def rank_factors(
    run: descent.Run,
    problems: Problem,
    of_K: str | Norm,
    of_Q: str | Norm,
    key: PRNGKeyArray | None = None,
    starts: int = 2,
) -> Products:
    """Compare the factors of a batch of runs, with snapshots, with the least product of a norm of K and a norm of Q.

    The product is also lowered from so many random `starts`. The default key is `jax.random.key(0)`.

    Raises:
        ValueError: weights that are not Factored, unknown norms, no seed is kept; starts < 0; and as in `bias.rank`.

    Example:
        >>> problems = jax.vmap(lambda key: data.sphere(key, n=3, T=3, d=6))(jax.random.split(key, 8))
        >>> start = jax.vmap(lambda key: initial.factored(key, 6))(jax.random.split(key, 8))
        >>> run = descent.train_batch(start, problems, steps=200, snapshots=(50, 100, 200))
        >>> found = bias.rank_factors(run, problems, "frobenius", "spectral", starts=1)
        >>> bool((found.at_least <= found.at_most + 1e-9).all())
        True
    """
    if not isinstance(getattr(run, "weights", None), attention.Factored):
        raise ValueError("run: expected one that trained attention.Factored(K, Q), found other weights")  # noqa: TRY004
    checks.count("starts", starts, least=0)
    key = checking.random_key(key)
    of_K, of_Q = norms.named(of_K), norms.named(of_Q)
    posed = ranking.posed_batch(run, problems, None)
    checking.check_directions(posed.run.snapshots, posed.steps)
    last = jax.tree.map(lambda leaf: np.asarray(leaf)[:, -1], posed.run.snapshots)
    margins = _margins(attention.matrix(last)[:, None], posed.constraints)[:, 0]
    kept = np.flatnonzero(posed.finite & (margins > 0))
    if not kept.size:
        raise ValueError(f"run: expected a seed whose margins are positive at the end, found none of {len(margins)}")
    rows, last = picked(posed.constraints, kept), picked(last, kept)
    least = _lowered(rows, np.asarray(last.Q), of_K, of_Q)
    least = np.minimum(least, _product(last.K, last.Q, of_K, of_Q) / margins[kept])
    for way in jax.random.split(key, starts):
        Q = np.asarray(jax.random.normal(way, last.Q.shape, last.Q.dtype))
        least = np.minimum(least, _lowered(rows, Q, of_K, of_Q))
    snapshots = picked(posed.run.snapshots, kept)
    W = np.asarray(attention.matrix(snapshots))
    shares = _margins(W, rows) / _product(snapshots.K, snapshots.Q, of_K, of_Q)
    bound = _bound(rows, of_K, of_Q, last.K.shape[-1])
    at_most, at_least = (shares * one[:, None] for one in (least, bound))
    probability = batch.over_seeds(ranking.probabilities, snapshots, picked(posed.problems, kept))
    stalled = ranking.stalled_before(run, int(posed.steps[-1]))[kept]
    name = f"{of_K.name} of K and {of_Q.name} of Q"
    obeyed, refused = (
        verdicts.weighed([name], one[:, None], probability, euclidean(W), stalled, posed.steps, key, np.ones((1, 1)))
        for one in (at_least, at_most)
    )
    verdict = refused.verdict
    if obeyed.verdict.norms:
        verdict = Verdict((name,), False, f"{name}, or a product near it, since others were not compared")
    elif verdict.norms:
        ends = [float(np.median(one[:, -1])) for one in (at_least, at_most)]
        verdict = Verdict((), False, f"{name}: the share lies between {ends[0]:.3f} and {ends[1]:.3f}")
    return Products(posed.steps, kept, at_most, at_least, verdict)


def _margins(W: Any, rows: svm.Constraints) -> Float[np.ndarray, "seeds snapshots"]:
    return np.asarray(batch.over_seeds(ranking.smallest_margins, np.asarray(W), rows))


def _product(K: Any, Q: Any, of_K: Norm, of_Q: Norm) -> Float[np.ndarray, "*seeds"]:
    """Return `||K||_a ||Q||_b` of factors with leading axes."""

    def size(norm: Norm, given: Any) -> np.ndarray:
        factor: Any = np.asarray(given)
        flat = jax.vmap(norm.plain.value)(factor.reshape(-1, *factor.shape[-2:]))
        return np.asarray(flat).reshape(factor.shape[:-2])

    return size(of_K, K) * size(of_Q, Q)


def _lowered(
    rows: svm.Constraints, Q: Float[np.ndarray, "seeds d m"], of_K: Norm, of_Q: Norm
) -> Float[np.ndarray, " seeds"]:
    """Return the product after alternating from Q; inf where the first problem has no certified solution."""
    # The second problem's matrix is the transpose of Q.
    turned = (norms.rows if of_Q.turned else norms.columns)(of_Q.p) if isinstance(of_Q, Lengths) else of_Q
    least = np.full(len(Q), np.inf)
    for _ in range(_MOST):
        of_keys = svm.solve_batch(rows._replace(queries=np.asarray(rows.queries) @ Q), of_K)
        K = np.asarray(of_keys.W)
        of_queries = svm.solve_batch(rows._replace(differences=np.asarray(rows.differences) @ K[:, None]), turned)
        Q = np.asarray(of_queries.W).mT
        known = (of_keys.status == svm.Status.OPTIMAL) & (of_queries.status == svm.Status.OPTIMAL)
        found = np.where(known, _product(K, Q, of_K, of_Q), np.inf)
        settled = found >= (1 - _SETTLED) * least
        least = np.minimum(least, found)
        if settled.all():
            break
    return least


def _bound(rows: svm.Constraints, of_K: Norm, of_Q: Norm, m: int) -> Float[np.ndarray, " seeds"]:
    """Return a certified lower bound of the product of factors of width m, 0 if none is known."""
    p, q = (places(norm.name).get("schatten_p") for norm in (of_K, of_Q))
    share, problem, norm = 1.0, rows, None
    if p is not None and q is not None and p + q <= 1:
        norm = norms.schatten(1 / (p + q) if p + q else float("inf"))
    elif of_K == of_Q == norms.rows(float("inf")):
        norm = norms.gamma2
    elif of_K == of_Q == _MAX:
        norm, share = norms.sign, 1 / m
    elif (of_K, of_Q) == (norms.frobenius, _MAX):
        lifted = np.asarray(rows.queries) @ _signs(rows.queries.shape[-1])
        norm, share, problem = norms.columns(1.0), m**-0.5, rows._replace(queries=lifted)
    elif (of_K, of_Q) == (_MAX, norms.frobenius):
        lifted = np.asarray(rows.differences) @ _signs(rows.differences.shape[-1])
        norm, share, problem = norms.rows(1.0), m**-0.5, rows._replace(differences=lifted)
    if norm is None:
        return np.zeros(len(rows.queries))
    found = svm.solve_batch(problem, norm)
    return np.where(found.status == svm.Status.OPTIMAL, share * np.asarray(found.dual), 0.0)


def _signs(d: int) -> Float[np.ndarray, "d vectors"]:
    """Return all sign vectors up to their sign as columns, `2^(d - 1)` of them."""
    return 1.0 - 2.0 * ((np.arange(2 ** (d - 1)) >> np.arange(d)[:, None]) & 1)
