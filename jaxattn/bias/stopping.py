"""Where a run ends whose weights stop growing: at a point on the sphere of some norm, and not along a direction.

Steps with decoupled weight decay, `W <- W - step (direction(G) + decay W)`, rest where `W = -direction(G) / decay`. For
steepest descent in a norm, the direction has norm 1 and the largest inner product with the gradient G. So W lies on the
sphere of radius 1 / decay, and no other point of the ball lies further along -G: Frank-Wolfe's gap is 0, and W is a
stationary point of the risk on the ball, though not always the minimum, as the risk is not convex.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxattn import attention, descent, models
from jaxattn.attention import Factored
from jaxattn.bias import checking, ranking
from jaxattn.bias.verdict import CLOSE, Verdict, too_few, undecided
from jaxattn.descent import gradients
from jaxattn.lengths import euclidean
from jaxattn.norms import Norm
from jaxattn.parallel import batch
from jaxattn.problem import Problem

__all__ = ["Finite", "finite", "growth"]

# Weights have stopped if their norm changes by less than this share per decade of steps. Weights that grow like the
# logarithm of the steps, the slowest growth of descent on the risk, still change by a sixth after a million steps.
STOPPED = 0.02
# The norms whose spheres are tried by default: those of normalized descent, the polar factor, and signs.
NORMS = ("frobenius", "spectral", "max")


class Finite(NamedTuple):
    """The points at which a batch of runs ends, against the balls of several norms.

    Attributes:
        norms: the names of the norms, as given.
        growth: the change of `ln ||W||_F` per decade of steps between the last two snapshots, (seeds,).
        size: the norm of W at the last snapshot, (seeds, norms).
        attained: how far W lies along -G, as a share of the farthest point of the ball that W touches,
            `-<G, W> / (||W|| ||G||_*)`, (seeds, norms). Frank-Wolfe's gap is the rest to 1, times `||W|| ||G||_*`. NaN
            if the gradient is exactly 0, where every point is stationary.
        counts: the numbers of lanes attempted, kept, and diverged.
        verdict: the norms on whose balls W is stationary.
    """

    norms: tuple[str, ...]
    growth: Float[np.ndarray, " seeds"]
    size: Float[np.ndarray, "seeds norms"]
    attained: Float[np.ndarray, "seeds norms"]
    counts: dict[str, int]
    verdict: Verdict

    def __str__(self) -> str:
        """Where the run ends, in one line: the range of the norm over seeds, and the largest gap, `1 - attained`."""
        if not self.verdict.norms:
            return "no direction, and stationary on none of the balls" if self.verdict.decided else str(self.verdict)
        spheres = []
        for name in self.verdict.norms:
            at = self.norms.index(name)
            size, gap = self.size[:, at], 1 - self.attained[:, at].min()
            low, high = f"{size.min():.3f}", f"{size.max():.3f}"
            length = low if low == high else f"{low} to {high}"
            spheres.append(f"{name} norm {length}, stationary on its ball up to {gap:.2g}")
        return f"no direction: the weights stopped growing at {' and at '.join(spheres)}"


def growth(run: descent.Run) -> Float[np.ndarray, " seeds"]:
    """Return the change of `ln ||W||_F` per decade of steps between the last two snapshots of each seed.

    Raises:
        ValueError: a run that is no batch, fewer than two snapshots after step 0, or one that is not a matrix W or
            Factored(K, Q).

    Example:
        >>> from jaxattn.bias.checkpoints import as_run
        >>> weights = np.array([1.0, 3.0, 3.0])[None, :, None, None] * np.ones((1, 3, 2, 2))
        >>> bias.growth(as_run(weights, (10, 100, 1000))).round(9)
        array([0.])
    """
    checking.check_run(run)
    steps = np.atleast_2d(run.snapshot_steps)[0]
    if np.ndim(run.snapshot_steps) != 2 or steps.size < 2 or steps[-2] < 1:
        raise ValueError(
            f"run: expected one of a batch, with two snapshots after step 0, found those of the steps {steps.tolist()}"
        )
    sizes = euclidean(np.asarray(attention.matrix(run.snapshots))[:, -2:])
    return np.log(sizes[:, 1] / sizes[:, 0]) / np.log10(steps[-1] / steps[-2])


def finite(run: descent.Run, problems: Problem, norms: Sequence[str | Norm] = NORMS) -> Finite:
    """Tell whether the weights of a batch of runs stopped growing, and on which norm's ball they are stationary.

    Seeds end on the ball of a norm if they attain more than `CLOSE` of what its farthest point does. The verdict names
    the norms of which this holds for all seeds, and none if it holds for no seed in any norm. It is not decided if some
    seeds still grow by `STOPPED` or more per decade, or if seeds disagree. The gradient is that of the risk, without
    penalty or noise, and does not underflow. The run has two snapshots at least, the last of them near the end.

    Raises:
        ValueError: norms as for `bias.rank`; a run without its rule, of another model than `models.plain`, of factors,
            or with fewer than two snapshots after step 0; all seeds diverged.

    Example:
        >>> problems = jax.vmap(lambda key: data.sphere(key, n=3, T=4, d=5))(jax.random.split(key, 8))
        >>> decayed = optax.chain(descent.normalized_gd(0.1, 0.0, 0.0), optax.add_decayed_weights(-0.1 * 0.1))
        >>> given = {"optimizer": descent.ScaleFree(*decayed), "steps": 4000, "snapshots": (2000, 4000)}
        >>> run = descent.train_batch(jnp.zeros((8, 5, 5)), problems, **given)
        >>> str(bias.finite(run, problems)).partition(", ")[0]
        'no direction: the weights stopped growing at frobenius norm 10.000'
    """
    names, values = ranking.named(norms)
    run, _ = checking.checked(run, problems)
    if run.rule is None or run.rule.model != models.plain or isinstance(run.snapshots, Factored):
        raise ValueError("run: expected one of `models.plain` on W, with its rule, whose loss has a gradient in W")
    growing = growth(run)
    last: Any = np.asarray(run.snapshots)[:, -1]
    whole = np.isfinite(np.asarray(run.snapshots)).all(axis=(1, 2, 3)) & np.isfinite(growing)
    if not whole.any():
        raise ValueError(f"run: expected a seed whose weights are finite and not 0, found {whole.size} others")
    measured = _measured(descent.Rule(descent.gd(1.0), loss=run.rule.loss, head=run.rule.head), tuple(values))
    size, attained = (np.asarray(leaf)[whole] for leaf in batch.over_seeds(measured, last, problems))
    counts = {"attempted": whole.size, "kept": int(whole.sum()), "diverged": int((~whole).sum())}
    return Finite(names, growing[whole], size, attained, counts, of(names, growing[whole], attained))


def of(
    names: Sequence[str], growing: Float[np.ndarray, " seeds"], attained: Float[np.ndarray, "seeds norms"]
) -> Verdict:
    """Return the verdict on where runs end; the rule is that of `finite`."""
    seeds, moving = growing.size, int((abs(growing) >= STOPPED).sum())
    if few := too_few(seeds):
        return few
    if moving:
        return undecided(f"the norm of W changes by {STOPPED:g} or more in {moving} seeds")
    if lost := int(np.isnan(attained).any(axis=1).sum()):
        return undecided(f"the gradient is 0 in {lost} of {seeds} seeds")
    held = (attained > CLOSE).sum(axis=0)
    if held.any() and held.max() < seeds:
        best = int(np.argmax(held))
        return undecided(f"mixed: {held[best]} of {seeds} seeds are stationary on the ball of {names[best]}")
    return Verdict(tuple(name for name, number in zip(names, held, strict=True) if number == seeds), decided=True)


@lru_cache(maxsize=64)
def _measured(rule: descent.Rule, values: tuple[Norm, ...]) -> Callable[..., Any]:
    # The same function object for equal arguments, so that it compiles once.
    return partial(_on_balls, rule, values)


def _on_balls(
    rule: descent.Rule, values: tuple[Norm, ...], W: Float[Array, "d d"], problem: Problem
) -> tuple[Float[Array, " norms"], Float[Array, " norms"]]:
    read = gradients.reading(problem, rule.head)
    logits, pull = jax.vjp(partial(attention.logits, problem=problem), W)
    slope = gradients.direction(jnp.asarray(0), logits, problem.Y, read, rule.loss)
    (G,) = pull(slope.coefficients)
    size, dual = jnp.stack([norm.value(W) for norm in values]), jnp.stack([norm.dual(G) for norm in values])
    return size, -jnp.sum(G * W) / (size * dual)
