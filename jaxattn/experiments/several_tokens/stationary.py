"""Where descent on the attention of an input can converge: the best distribution over the tokens that it selects.

The risk depends on an input only through `Y h(X^T s)`. Once all but the selected tokens are masked, s converges to the
maximizer over distributions on these tokens. This uses the head and the tokens, but neither W nor a run.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float

from jaxattn import heads
from jaxattn.problem import Problem

# Tolerances for equal objectives and for equal distributions.
_EQUAL, _NEAR = 1e-9, 1e-6


def quadratic(
    problems: Problem, penalty: float, allowed: Bool[np.ndarray, "seeds n T"]
) -> tuple[Float[np.ndarray, "seeds n T"], Bool[np.ndarray, "seeds n"]]:
    """Return the distribution on the allowed tokens that is best under `heads.Quadratic(penalty)`, for labels +1.

    With orthonormal tokens `h(X^T s) = <X v, s> - penalty ||s||^2`, so that s is the point of the simplex nearest to `X
    v / (2 penalty)`.

    At least one token of every input must be allowed. Also returned is whether each distribution is the unique best.

    Raises:
        ValueError: tokens that are not orthonormal, or a label of -1.
    """
    X, v = np.asarray(problems.X), np.asarray(problems.v)
    heads.check("quadratic", v.shape[1:])
    gram = X @ np.swapaxes(X, -1, -2)
    if np.abs(gram - np.eye(problems.T)).max(initial=0.0) > 1e-6 or (np.asarray(problems.Y) != 1).any():
        raise ValueError(
            "stationary: expected orthonormal tokens and labels of +1 for the quadratic head, found others"
        )
    scores = np.where(allowed, np.einsum("sntd,sd->snt", X, v), -np.inf)
    if penalty == 0:
        best = scores == scores.max(axis=-1, keepdims=True)
        return best / best.sum(axis=-1, keepdims=True), best.sum(axis=-1) == 1
    # The k best tokens have weights equal to their scores above a common threshold.
    falling = -np.sort(-scores / (2 * penalty), axis=-1)
    k = np.arange(1, problems.T + 1)
    thresholds = (np.cumsum(falling, axis=-1) - 1) / k
    above = np.maximum((falling > thresholds).sum(axis=-1, keepdims=True), 1)
    best = np.maximum(scores / (2 * penalty) - np.take_along_axis(thresholds, above - 1, axis=-1), 0)
    return best, np.ones(best.shape[:-1], bool)


def relu(
    problems: Problem, allowed: Bool[np.ndarray, "seeds n T"]
) -> tuple[Float[np.ndarray, "seeds n T"], Bool[np.ndarray, "seeds n"]]:
    """Return the distribution on the allowed tokens that is best under `heads.mlp`.

    h is convex and linear between its kinks. For a label +1 the best is its maximum, which is at one token; for a label
    -1 it is its minimum, at an intersection of kinks and faces of the simplex, all of which are tried. Where all units
    can be off at once, the head is flat, and the best distribution is not unique. Arguments and results are those of
    `quadratic`.
    """
    X, V, Y = np.asarray(problems.X), np.asarray(problems.v), np.asarray(problems.Y)
    heads.check("mlp", V.shape[1:], axes=2)
    seen = np.einsum("sntd,sdw->sntw", X, V)
    of_tokens = np.where(allowed, np.maximum(seen, 0).sum(axis=-1), -np.inf)
    best = (np.arange(problems.T) == of_tokens.argmax(axis=-1)[..., None]).astype(float)
    unique = np.ones(best.shape[:-1], bool)
    sizes = allowed.sum(axis=-1)
    for size in range(2, problems.T + 1):
        which = np.nonzero((sizes == size) & (Y == -1))
        if len(which[0]):
            tokens = np.argsort(~allowed[which], axis=-1, kind="stable")[:, :size]
            s, unique[which] = _least(np.take_along_axis(seen[which], tokens[..., None], axis=1))
            best[which] = 0.0
            best[(*(axis[:, None] for axis in which), tokens)] = s
    return best, unique


def _least(
    seen: Float[np.ndarray, "inputs k width"],
) -> tuple[Float[np.ndarray, "inputs k"], Bool[np.ndarray, " inputs"]]:
    """Minimize `1^T ReLU(s^T seen)` over distributions s on k > 1 tokens; also return if the minimizer is unique."""
    k = seen.shape[1]
    sides = np.broadcast_to(np.eye(k), (len(seen), k, k))
    planes = np.concatenate([np.swapaxes(seen, 1, 2), sides], axis=1)
    chosen = np.array(list(combinations(range(planes.shape[1]), k - 1)))
    # The direction orthogonal to k - 1 planes has their minors as coordinates.
    rows = planes[:, chosen]
    minors = [(-1) ** t * np.linalg.det(np.delete(rows, t, axis=-1)) for t in range(k)]
    points = np.stack(minors, axis=-1)
    total = points.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        points = points / total
    there = np.isfinite(points).all(axis=-1) & (np.nan_to_num(points, nan=-1.0) > -_EQUAL).all(axis=-1)
    points = np.where(there[..., None], np.clip(points, 0, None), 0)
    values = np.where(there, np.maximum(points @ seen, 0).sum(axis=-1), np.inf)
    least = values.argmin(axis=1)
    best = points[np.arange(len(seen)), least]
    as_good = values <= values.min(axis=1, keepdims=True) + _EQUAL
    apart = np.abs(points - best[:, None]).max(axis=-1) > _NEAR
    return best, ~(as_good & apart).any(axis=1)
