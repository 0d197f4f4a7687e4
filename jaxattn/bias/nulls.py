"""Margin ratios of matrices that training did not choose, on the rows of a trained head.

On many heads a matrix that was never trained has a large margin ratio, too. Three kinds set the bar: directions drawn
uniformly from those that satisfy all rows, the mean of the rows, and the matrix nearest to the start that has the
trained one's smallest margin.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jaxattn import checks, metrics, svm
from jaxattn.norms import Norm
from jaxattn.norms import named as norm_of
from jaxattn.parallel import batch, effort
from jaxattn.svm import constraints as cons

__all__ = ["Nulls", "ratios"]

# The most lanes of one program of draws. Lanes wait for the longest flight among them, so few are as fast as many; and
# all larger batches share the program of this width.
_LANES = 8
# The first draws may depend on where the chain starts; a flight between nearly opposite rows meets them for ever.
DISCARDED, _MEETINGS = 10, 3000


class Nulls(NamedTuple):
    """Margin ratios of untrained matrices; `bound` is what a trained one has to exceed.

    Attributes:
        cone: those of directions drawn uniformly from all that satisfy every row, (lanes, draws); inf where these are
            too few to be drawn, so that nothing exceeds them.
        mean: that of the sum of the rows' unit matrices, `sum_k A_k / ||A_k||_F`, (lanes,).
        nearest: that of the matrix nearest to the start with the smallest margin of W on every row, (lanes,); inf where
            it was not found. None without a start.
        status: the `svm.Status` of the problem that finds it, (lanes,). None without a start.
    """

    cone: Float[np.ndarray, "lanes draws"]
    mean: Float[np.ndarray, " lanes"]
    nearest: Float[np.ndarray, " lanes"] | None = None
    status: Int[np.ndarray, " lanes"] | None = None

    @property
    def unsolved(self) -> int:
        """The number of lanes whose matrix nearest to the start is not certified."""
        return 0 if self.status is None else int((self.status != svm.Status.OPTIMAL).sum())

    def bound(self, level: float = 0.95) -> Float[np.ndarray, " lanes"]:
        """Return for each lane the largest of this quantile over the cone and of the other nulls, (lanes,)."""
        thin: Any = np.isinf(self.cone).any(axis=1)
        cone = np.where(thin, np.inf, np.quantile(np.where(thin[:, None], 0.0, self.cone), level, axis=1))
        bound = np.maximum(cone, self.mean)
        return bound if self.nearest is None else np.maximum(bound, self.nearest)


def ratios(
    constraints: svm.Constraints,
    W: Any,
    norm: str | Norm,
    solution: svm.Solution,
    key: PRNGKeyArray,
    start: Any = None,
    draws: int = 100,
) -> Nulls:
    """Return the margin ratios of untrained matrices on the same rows, for a batch of lanes.

    The rows are hard inequalities with target 1, and the solution has their certified optima in the norm. Of the
    trained W, (lanes, d, e), only the smallest margin enters, and only with the `start`, W before training.

    Raises:
        ValueError: a lane whose optimum is not certified, rows with targets or of other kinds, W or start of another
            shape, or not finite.

    Example:
        >>> from jaxattn.bias import nulls
        >>> lane = jax.tree.map(lambda leaf: leaf[None], (constraints, solution))
        >>> found = nulls.ratios(lane[0], np.ones((1, 5, 5)), "frobenius", lane[1], key)
        >>> found.cone.shape, bool(found.cone.min() >= -1e-9), bool(found.cone.max() < 1)
        ((1, 100), True, True)
    """
    cons.check(constraints, batch=1)
    constraints = jax.tree.map(np.asarray, constraints)
    checks.count("draws", draws)
    if constraints.targets is not None or constraints.equal is not None or constraints.penalty is not None:
        raise ValueError(
            "constraints: expected hard inequalities with target 1, found targets, equalities or penalties"
        )
    others = int((np.asarray(solution.status) != svm.Status.OPTIMAL).sum())
    if others:
        raise ValueError(
            f"solution: expected certified optima, found {others} lanes of {np.size(solution.status)} with another "
            "status; leave these lanes out"
        )
    for name, value in (("W", W), ("start", start)):
        if value is not None and (np.shape(value) != np.shape(solution.W) or not np.isfinite(value).all()):
            raise ValueError(f"{name}: expected finite numbers {np.shape(solution.W)}, found {np.shape(value)}")
    norm, best = norm_of(norm), solution.W
    words = np.asarray(jax.random.key_data(jax.random.split(key, len(best))))
    width = min(_LANES, len(best))
    inside, moves = batch.over_seeds(_drawing(draws), constraints, best, words, width=width, effort=effort.SOLVING)
    cone = np.where(moves[:, None], held(constraints, inside, norm, solution), np.inf)
    mean = held(constraints, batch.over_seeds(_mean, constraints)[:, None], norm, solution)[:, 0]
    if start is None:
        return Nulls(cone, mean)
    start = np.asarray(start, best.dtype)
    nearest, found = _nearest(constraints, np.asarray(W, best.dtype), start)
    # The zero matrix has no direction, and margins of 0.
    is_zero = np.abs(nearest).max(axis=(1, 2)) == 0
    nearest = np.where(is_zero[:, None, None], best, nearest)
    ratio = np.where(is_zero, 0.0, held(constraints, nearest[:, None], norm, solution)[:, 0])
    return Nulls(cone, mean, np.where(found == svm.Status.OPTIMAL, ratio, np.inf), found)


def held(
    constraints: svm.Constraints, W: Float[np.ndarray, "lanes k d e"], norm: Norm, solution: svm.Solution
) -> Float[np.ndarray, "lanes k"]:
    """Return the margin ratios of several matrices on each lane."""
    return batch.over_seeds(_holding(norm), W, constraints, solution)


@lru_cache(maxsize=64)
def _holding(norm: Norm) -> Callable[..., Any]:
    # One function object per norm, so that it compiles once.
    return partial(_ratios, norm=norm)


def _ratios(
    W: Float[Array, "k d e"], constraints: svm.Constraints, solution: svm.Solution, norm: Norm
) -> Float[Array, " k"]:
    return jax.vmap(lambda one: metrics.margin_ratio(one, constraints, norm, solution))(W)


def _mean(constraints: svm.Constraints) -> Float[Array, "d e"]:
    """Return the sum of the rows' unit matrices."""
    constraints = cons.without_absent(constraints)
    present = cons.rows(constraints).present
    return cons.combination(constraints, jnp.where(present, 1 / cons.unit_lengths(constraints), 0.0))


def _nearest(
    constraints: svm.Constraints, W: Float[np.ndarray, "lanes d e"], start: Float[np.ndarray, "lanes d e"]
) -> tuple[Float[np.ndarray, "lanes d e"], Int[np.ndarray, " lanes"]]:
    """Return the matrices nearest to the start in Frobenius norm with the smallest margin of W, and their status."""
    present = cons.rows(constraints).present
    smallest = np.min(np.where(present, svm.margins(constraints, W), np.inf), axis=(1, 2))
    # V = start + U with the shortest U.
    targets = np.where(present, smallest[:, None, None] - svm.margins(constraints, start), 1.0)
    solution = svm.solve_batch(constraints._replace(targets=targets))
    return start + np.asarray(solution.W), np.asarray(solution.status)


@lru_cache(maxsize=64)
def _drawing(draws: int) -> Callable[..., Any]:
    return partial(drawn, draws=draws)


def drawn(
    constraints: svm.Constraints, inside: Float[Array, "d e"], words: Any, draws: int
) -> tuple[Float[Array, "draws d e"], Bool[Array, ""]]:
    """Return draws of a standard normal matrix under the condition that it satisfies all rows, from one that does.

    Their directions are uniform on the cone `<A_k, W> >= 0`. The chain is exact Hamiltonian dynamics (Pakman and
    Paninski 2014): W moves as `W cos t + P sin t` with a fresh normal momentum P, which is reflected at each row that
    it meets, for a quarter of a period. Without rows, W would then be P itself. With 120 random rows of 13 x 13 numbers
    no correlation of consecutive draws is visible (below .03). The second result is False if the cone is so thin that a
    flight met too many rows, and was cut short.
    """
    constraints = cons.without_absent(constraints)
    constraints = constraints._replace(differences=constraints.differences / cons.unit_lengths(constraints)[..., None])
    start = inside / jnp.linalg.norm(inside) * np.sqrt(inside.size)
    keys = jax.random.split(jax.random.wrap_key_data(words), DISCARDED + draws)

    def step(W: Array, key: PRNGKeyArray) -> tuple[Array, tuple[Array, Array]]:
        end = _moved(constraints, W, jax.random.normal(key, W.shape, W.dtype))
        return end.W, (end.W, end.left <= 0)

    _, (found, ended) = jax.lax.scan(step, start, keys)
    return found[DISCARDED:], jnp.all(ended)


class _Motion(NamedTuple):
    """A matrix and its momentum, the margins of both, the time left, and the number of rows met."""

    W: Float[Array, "d e"]
    P: Float[Array, "d e"]
    margins: Float[Array, "n m"]
    speeds: Float[Array, "n m"]
    left: Float[Array, ""]
    met: Int[Array, ""]


def _moved(unit: svm.Constraints, W: Float[Array, "d e"], P: Float[Array, "d e"]) -> _Motion:
    """Return where W is after a quarter of a period, or once it has met `_MEETINGS` rows; the rows have length 1."""
    differences, queries = unit.differences, unit.queries

    def moves(now: _Motion) -> Bool[Array, ""]:
        return (now.left > 0) & (now.met < _MEETINGS)

    def to_next_row(now: _Motion) -> _Motion:
        falls, height = now.speeds < 0, jnp.maximum(now.margins, 0)
        # A falling margin reaches 0 at the arctangent of this, and only the first to arrive needs one. XLA for CPUs
        # (jaxlib 0.10) miscompiles arctan for vectors of 512 bits.
        tangents = jnp.where(falls, height / -now.speeds, jnp.inf)
        i, k = jnp.unravel_index(jnp.argmin(tangents), tangents.shape)
        time = jnp.where(falls[i, k], jnp.arctan2(height[i, k], -now.speeds[i, k]), jnp.inf)
        meets = time < now.left
        time = jnp.minimum(time, now.left)
        cos, sin = jnp.cos(time), jnp.sin(time)
        W, P = cos * now.W + sin * now.P, cos * now.P - sin * now.W
        margins, speeds = cos * now.margins + sin * now.speeds, cos * now.speeds - sin * now.margins
        turn = jnp.where(meets, -2 * speeds[i, k], 0.0)
        difference, query = differences[i, k], queries[i]
        return _Motion(
            W,
            P + turn * jnp.outer(difference, query),
            margins,
            speeds + turn * (differences @ difference) * (queries @ query)[:, None],
            jnp.where(meets, now.left - time, 0.0),
            now.met + 1,
        )

    left = jnp.asarray(jnp.pi / 2, W.dtype)
    first = _Motion(W, P, cons.margins(unit, W), cons.margins(unit, P), left, jnp.zeros((), int))
    return jax.lax.while_loop(moves, to_next_row, first)
