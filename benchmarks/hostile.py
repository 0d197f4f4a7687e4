"""Small max-margin problems designed to fool a certificate: range limits, cancellation, near degeneracy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxattn import svm
from jaxattn.svm import Constraints, Status

# All problems have 2 groups of 3 rows and W of shape (2, 2), and so compile once.
n, m, d = 2, 3, 2
COUNT = 2000


class Drawn(NamedTuple):
    """Problems of hard rows with one leading axis, in double precision."""

    differences: np.ndarray
    queries: np.ndarray
    targets: np.ndarray
    equal: np.ndarray
    present: np.ndarray


def gaussian(rng: np.random.Generator, count: int, reach: float) -> Drawn:
    """Draw all numbers from a normal distribution: ordinary problems."""
    return Drawn(
        rng.normal(size=(count, n, m, d)),
        rng.normal(size=(count, n, d)),
        np.ones((count, n, m)),
        np.zeros((count, n, m), bool),
        np.ones((count, n, m), bool),
    )


def planted(rng: np.random.Generator, count: int, reach: float) -> Drawn:
    """Change signs of rows so that some matrix satisfies all of them: feasible problems."""
    drawn, W = gaussian(rng, count, reach), rng.normal(size=(count, d, d))
    margins = np.einsum("bnmd,bde,bne->bnm", drawn.differences, W, drawn.queries)
    return drawn._replace(differences=drawn.differences * np.sign(margins)[..., None])


def tiny(rng: np.random.Generator, count: int, reach: float) -> Drawn:
    """Shrink rows and targets until their products underflow."""
    drawn = planted(rng, count, reach)
    rows, queries, targets = (10.0 ** (-reach * rng.uniform(0.3, 0.55, size=(count, 1, 1))) for _ in range(3))
    return drawn._replace(
        differences=drawn.differences * rows[..., None],
        queries=drawn.queries * np.where(rng.random((count, 1, 1)) < 0.5, queries, 1.0),
        targets=drawn.targets * targets,
    )


def below_normal(rng: np.random.Generator, count: int, reach: float) -> Drawn:
    """Set targets or entries below the normal range, which compiled programs flush to 0."""
    drawn = planted(rng, count, reach)
    flushed = rng.random((count, 1, 1)) < 0.5
    below = 10.0 ** -(reach + 2)
    entries = np.where(flushed[..., None] | (rng.random(drawn.differences.shape) < 0.5), 1.0, below)
    return drawn._replace(
        differences=drawn.differences * entries, targets=np.where(flushed, below, 1.0) * drawn.targets
    )


def huge(rng: np.random.Generator, count: int, reach: float) -> Drawn:
    """Enlarge rows or targets until their products overflow."""
    drawn = planted(rng, count, reach)
    rows, targets = 10.0 ** (reach * rng.uniform(0.3, 0.65, size=(2, count, 1, 1)))
    return drawn._replace(
        differences=drawn.differences * rows[..., None],
        targets=drawn.targets * np.where(rng.random((count, 1, 1)) < 0.5, targets, 1.0),
    )


def nearly_parallel(rng: np.random.Generator, count: int, reach: float) -> Drawn:
    """Draw the rows of a group around one difference, at distances of 1e-16 to 1e-2."""
    drawn = planted(rng, count, reach)
    distance = 10.0 ** rng.uniform(-16, -2, size=(count, n, m, 1))
    signs = np.where(rng.random((count, n, m, 1)) < 0.5, -1.0, 1.0)
    return drawn._replace(differences=signs * drawn.differences[:, :, :1] + distance * drawn.differences)


def nearly_infeasible(rng: np.random.Generator, count: int, reach: float) -> Drawn:
    """Add to a row a nearly opposite one with a slit of 1e-18 to 1e-8: feasible only for a long W."""
    drawn = planted(rng, count, reach)
    slit = 10.0 ** rng.uniform(-18, -8, size=(count, n, 1))
    # Integers stay exact beside a slit in a separate coordinate.
    first = np.stack([rng.integers(1, 4, size=(count, n)), np.zeros((count, n))], axis=-1)
    differences = drawn.differences.copy()
    differences[:, :, 0], differences[:, :, 1] = first, -first + np.concatenate([0 * slit, slit], axis=-1)
    return drawn._replace(differences=differences)


def mixed_scales(rng: np.random.Generator, count: int, reach: float) -> Drawn:
    """Multiply each row by 1e-12 to 1e12."""
    drawn = planted(rng, count, reach)
    return drawn._replace(differences=drawn.differences * 10.0 ** rng.uniform(-12, 12, size=(count, n, m, 1)))


def cancelling(rng: np.random.Generator, count: int, reach: float) -> Drawn:
    """Combine long rows with short ones nearly orthogonal to a long W, so that margins result from cancellation."""
    drawn = gaussian(rng, count, reach)
    sizes = 10.0 ** np.stack([rng.uniform(4, 9, size=(count, n)), rng.uniform(-9, -4, size=(count, n))], axis=-1)
    differences = drawn.differences.copy()
    differences[:, :, :2] *= sizes[..., None]
    present = drawn.present & (np.arange(m) < 2)
    return drawn._replace(differences=differences, queries=np.ones((count, n, d)), present=present)


def whole_numbers(rng: np.random.Generator, count: int, reach: float) -> Drawn:
    """Draw integers with copies and opposites among the rows: often exactly infeasible."""
    drawn = gaussian(rng, count, reach)
    differences = rng.integers(-3, 4, size=(count, n, m, d)).astype(float)
    copied = rng.random((count, n, 1)) < 0.5
    differences[:, :, 2] = np.where(copied, differences[:, :, 0] * rng.choice([-2, -1, 1, 2], (count, n, 1)), 3.0)
    return drawn._replace(differences=differences, queries=rng.integers(-2, 3, size=(count, n, d)).astype(float))


def masked(rng: np.random.Generator, count: int, reach: float) -> Drawn:
    """Add absent rows, some with absurd numbers."""
    drawn = planted(rng, count, reach)
    present = rng.random((count, n, m)) < 0.6
    absurd = rng.choice([0.0, 10.0 ** (0.98 * reach), -(10.0 ** (-0.98 * reach)), 1e9], size=(count, n, m, d))
    return drawn._replace(differences=np.where(present[..., None], drawn.differences, absurd), present=present)


def equalities(rng: np.random.Generator, count: int, reach: float) -> Drawn:
    """Add equalities, some repeated with a multiple of their target, some nearly repeated."""
    drawn = planted(rng, count, reach)
    differences, targets = drawn.differences.copy(), rng.choice([-1.0, 0.0, 1.0, 2.0], size=(count, n, m))
    factor = rng.choice([1.0, 2.0, -3.0, 0.1], size=(count, n))
    differences[:, :, 2] = factor[..., None] * differences[:, :, 0]
    off = 10.0 ** rng.uniform(-17, -3, size=(count, n)) * rng.integers(0, 2, size=(count, n))
    targets[:, :, 2] = factor * targets[:, :, 0] * (1 + off)
    equal = np.broadcast_to(np.arange(m) != 1, targets.shape).copy()
    return drawn._replace(differences=differences, targets=targets, equal=equal)


# Each law receives how many decades numbers may reach down to the limit of the normal range, and about as many up.
_LAWS = (
    *(gaussian, planted, tiny, below_normal, huge, nearly_parallel, nearly_infeasible),
    *(mixed_scales, cancelling, whole_numbers, masked, equalities),
)
KINDS: dict[str, Callable[[np.random.Generator, int, float], Drawn]] = {law.__name__: law for law in _LAWS}


def draw(kind: str, seed: int, count: int = COUNT, dtype: Any = np.float64) -> Constraints:
    """Return problems of one kind with a leading axis, in a given precision."""
    rng, reach = np.random.default_rng([seed, sorted(KINDS).index(kind)]), -np.log10(float(np.finfo(dtype).tiny))
    drawn = KINDS[kind](rng, count, reach)
    return Constraints(*map(jnp.asarray, (*(leaf.astype(dtype) for leaf in drawn[:3]), drawn.equal, drawn.present)))


def priced(constraints: Constraints, seed: int) -> Constraints:
    """Return the same rows with penalties of 1e-2 to 1e16, some near the range limit; equalities stay hard."""
    targets = np.asarray(constraints.targets)
    rng, shape = np.random.default_rng(seed), targets.shape
    price = 10.0 ** rng.uniform(-2, 16, size=(shape[0], 1, 1)) * rng.uniform(1, 2, size=shape)
    price = np.where(rng.random((shape[0], 1, 1)) < 0.05, 1e-8 * float(np.finfo(targets.dtype).max), price)
    price = np.where((rng.random(shape) < 0.2) | np.asarray(constraints.equal), np.inf, price)
    return constraints._replace(penalty=jnp.asarray(price.astype(targets.dtype)))


def certainty() -> Iterator[dict[str, Any]]:
    """Yield, for each kind, how many problems are decided and how; the others stay undecided, which is not an error."""
    for kind in KINDS:
        for rows in ("hard", "at a price"):
            constraints = draw(kind, seed=1)
            solution = svm.solve_batch(constraints if rows == "hard" else priced(constraints, seed=2))
            counts = np.bincount(solution.status, minlength=len(Status))
            yield {"kind": kind, "rows": rows, **dict(zip(Status.__members__, map(int, counts), strict=True))}
