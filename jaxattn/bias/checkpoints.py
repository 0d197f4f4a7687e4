"""Rank weights that another program trained: plain arrays from PyTorch or anything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from jaxattn import attention, descent, svm
from jaxattn.bias import ranking
from jaxattn.descent.stalling import NEVER
from jaxattn.models import plain
from jaxattn.norms import Norm
from jaxattn.parallel import batch
from jaxattn.problem import of_arrays

__all__ = ["rank_arrays"]


def rank_arrays(
    X: Any,
    Z: Any,
    *,
    W: Any = None,
    K: Any = None,
    Q: Any = None,
    steps: Any = (),
    alpha: Any = None,
    mask: Any = None,
    scale: Any = 1.0,
    norms: Sequence[str | Norm] = ranking.NORMS,
    key: PRNGKeyArray | None = None,
) -> ranking.Ranking:
    """Compare the margins of given weights with the certified max-margin optima of several norms, as `bias.rank` does.

    The logits of input i are `scale x_it^T W z_i`. Single precision is converted to double. A run of one seed has
    margin ratios, but no interval and no verdict.

    Args:
        X: the tokens, (n, T, d), or (seeds, n, T, d).
        Z: the queries, (n, d), or (seeds, n, d).
        W: the weights along the run, (snapshots, d, d), or (seeds, snapshots, d, d).
        K: in place of W, its factor `W = K Q^T` on the side of the tokens, (snapshots, d, m), or with seeds in front. A
            layer that computes `(W_K x)^T (W_Q z)` has K = W_K^T and Q = W_Q^T.
        Q: its factor on the side of the queries.
        steps: the step of each snapshot; needed for more than one, to tell what still changes.
        alpha: the tokens that count as selected, (n,), or truth values for several tokens of an input, (n, T), or with
            seeds in front. Default: those of largest logit at the last snapshot.
        mask: truth values, (n, T), or with seeds in front: which tokens an input can see. Default: all.
        scale: the factor of the logits, as 1 / sqrt(m).
        norms: names or Norms.
        key: the random key of the bootstrap over seeds. Default: `jax.random.key(0)`.

    Raises:
        ValueError: neither W nor K and Q, or both; shapes that do not fit; and as `bias.rank`.

    Example:
        >>> weights = np.stack([np.eye(5), 2 * np.eye(5)])
        >>> bias.rank_arrays(problem.X, problem.Z, W=weights, steps=(10, 20), norms=["frobenius"]).margin_ratio.shape
        (1, 1, 2)
    """
    if (W is None) == (K is None) or (K is None) != (Q is None):
        given = [name for name, value in (("W", W), ("K", K), ("Q", Q)) if value is not None]
        raise ValueError(f"weights: expected W, or K and Q, found {' and '.join(given) or 'none'}")
    several = np.ndim(X) == 4
    leaves = {name: _seeded(name, value, several, 3) for name, value in (("W", W), ("K", K), ("Q", Q))}
    snapshots = leaves["W"] if K is None else attention.Factored(leaves["K"], leaves["Q"])
    snapshots = jax.tree.map(lambda leaf: leaf.astype(float), snapshots)
    count = jax.tree.leaves(snapshots)[0].shape[1]
    if len(steps) != count and not (count == 1 and len(steps) == 0):
        raise ValueError(f"steps: expected one for each of the {count} snapshots, found {len(steps)}")
    tokens, queries = _seeded("X", X, several, 3).astype(float), _seeded("Z", Z, several, 2).astype(float)
    # Neither labels nor a head enter the max-margin problems.
    labels, head = np.ones(tokens.shape[:2]), np.zeros((len(tokens), tokens.shape[-1]))
    arrays = {"X": tokens, "Z": scale * queries, "Y": labels, "v": head}
    if mask is not None:
        arrays["present"] = _seeded("mask", mask, several, 2)
    run = as_run(snapshots, steps if len(steps) else range(count))
    posed = ranking.posed_batch(run, of_arrays(arrays), plain)
    if alpha is not None:
        chosen = _seeded("alpha", alpha, several, np.asarray(alpha).ndim - several)
        build = svm.set_constraints if chosen.dtype == bool else svm.token_constraints
        posed = posed._replace(constraints=batch.over_seeds(build, posed.problems, chosen))
    return ranking.of_posed(posed, norms, key)


def as_run(snapshots: Any, steps: Any) -> descent.Run:
    """Return the weights of several seeds along their training, at these steps, as a run that `bias.rank` can read."""
    seeds = len(jax.tree.leaves(snapshots)[0])
    last = jax.tree.map(lambda leaf: leaf[:, -1], snapshots)
    rest: Any = *[np.zeros((seeds, 0))] * 3, np.full(seeds, NEVER), np.tile(np.asarray(steps, int), (seeds, 1))
    return descent.Run(last, snapshots, *rest)


def _seeded(name: str, value: Any, several: bool, axes: int) -> Any:
    """Return an array with an axis of seeds in front, added to a single one; None for None."""
    if value is None:
        return None
    array = np.asarray(value)
    if array.ndim != axes + several:
        found = "of several seeds" if several else "of one seed"
        raise ValueError(f"{name}: expected {axes + several} axes, as X is {found}, found shape {array.shape}")
    return array if several else array[None]
