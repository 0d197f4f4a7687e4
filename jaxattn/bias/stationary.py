"""Whether a run approaches a KKT point of the max-margin problem of its own parameters.

Steepest descent in a norm ends, in the limit, where the weights W point along the duality map of the negative gradient
-G: `-<G, W> = ||W|| ||G||_*`. For W this is the optimum, since its problem is convex. For (K, Q) it is a KKT point of
`min ||K||, ||Q||  s.t. <A_k, K Q^T> >= 1`, which may be local. So the share `-<G, W> / (||W|| ||G||_*)`, summed over K
and Q, tells a run that another rule leads elsewhere from one that ends at a local KKT point; a margin ratio tells the
local one from the optimum.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxattn import attention, descent, models, norms
from jaxattn.bias import checking, limits
from jaxattn.bias.verdict import CLOSE
from jaxattn.descent import gradients
from jaxattn.lengths import euclidean
from jaxattn.norms import Norm
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.statistics import Estimate, derive_key

__all__ = ["Kkt", "kkt"]


class Kkt(NamedTuple):
    """How far a batch of runs is from KKT points in a norm of its parameters.

    Attributes:
        share: how far the weights lie along the negative gradient, as a share of the farthest point of the ball that
            they touch, (seeds, snapshots); 1 at a KKT point.
        limit: the median over seeds of its limit, with its interval; None if the snapshots do not suffice.
        near: 1 for a seed whose limit is above `bias.CLOSE`, 0 for one below, NaN for one that does not tell, (seeds,).
    """

    share: Float[np.ndarray, "seeds snapshots"]
    limit: Estimate | None
    near: Float[np.ndarray, " seeds"]

    def __str__(self) -> str:
        """The share at the end and its limit in one line."""
        ends = f"median share {np.median(self.share[:, -1]):.4f}"
        if self.limit is not None:
            ends += f", limit {self.limit.mean[0]:.4f} [{self.limit.low[0]:.4f}, {self.limit.high[0]:.4f}]"
        return f"{ends}: {(self.near == 1).sum()} of {len(self.near)} seeds end near a KKT point"


def kkt(run: descent.Run, problems: Problem, norm: str | Norm = "frobenius", key: Any = None) -> Kkt:
    """Measure how far a batch of runs is from KKT points in a norm of W, or of K and of Q.

    The run is the result of `descent.train_batch` with `models.plain` and snapshots. The norm is the one in which its
    rule is steepest descent. The key is as for `bias.rank`. The share is that of the gradient at one step: if K and Q
    are trained with steps of constant size, they oscillate, and it may be small in runs that obey their norm.

    Raises:
        ValueError: a run of another model or without its rule, with zero or infinite weights, or one that does not fit
            the problems.

    Example:
        >>> problems = jax.vmap(lambda key: data.sphere(key, n=3, T=4, d=5))(jax.random.split(key, 8))
        >>> given = {"optimizer": descent.steepest("max", 0.01), "steps": 1000, "snapshots": (100, 300, 1000)}
        >>> run = descent.train_batch(jnp.zeros((8, 5, 5)), problems, **given)
        >>> bool(bias.kkt(run, problems, "max").share.mean() > bias.kkt(run, problems).share.mean())
        True
    """
    value, key = norms.named(norm), checking.random_key(key)
    run, steps = checking.checked(run, problems)
    if run.rule is None or run.rule.model != models.plain:
        raise ValueError("run: expected one of `models.plain`, with its rule, whose loss has a gradient in the weights")
    checking.check_directions(run.snapshots, steps)
    rule = descent.Rule(descent.gd(1.0), loss=run.rule.loss, head=run.rule.head)
    share = np.asarray(batch.over_seeds(_measured(rule, value), run.snapshots, problems))
    if not np.isfinite(share).all():
        raise ValueError("run: expected weights and gradients that are finite and not 0, found others")
    known = limits.extrapolated(share[:, None], euclidean(np.asarray(attention.matrix(run.snapshots))), steps)
    if known is None:
        return Kkt(share, None, np.full(len(share), np.nan))
    known = known.clipped(-np.inf, 1.0)
    return Kkt(share, known.median(derive_key(key)), known.side(CLOSE)[:, 0])


@lru_cache(maxsize=64)
def _measured(rule: descent.Rule, norm: Norm) -> Callable[..., Any]:
    # The same function object for equal arguments, so that it compiles once.
    return partial(_shares, rule, norm)


def _shares(rule: descent.Rule, norm: Norm, snapshots: Any, problem: Problem) -> Float[Array, " snapshots"]:
    read = gradients.reading(problem, rule.head)

    def share(weights: Any) -> Float[Array, ""]:
        logits, pull = jax.vjp(partial(attention.logits, problem=problem), weights)
        slope = gradients.direction(jnp.asarray(0), logits, problem.Y, read, rule.loss)
        (gradient,) = pull(slope.coefficients)
        parts = list(zip(jax.tree.leaves(weights), jax.tree.leaves(gradient), strict=True))
        along = jnp.stack([jnp.sum(W * G) for W, G in parts])
        most = jnp.stack([norm.value(W) * norm.dual(G) for W, G in parts])
        return -along.sum() / most.sum()

    return jax.vmap(share)(snapshots)
