"""Rank weights that another program trained: plain arrays from PyTorch or anything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Int, PRNGKeyArray

from jaxattn import attention, descent, svm
from jaxattn.bias import checking, ranking, semidefinite
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

    The logits of input i are `scale x_it^T W z_i`. Single precision is converted to double if JAX has it. A run of
    one seed has margin ratios, but no interval and no verdict.

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
        ValueError: neither W nor K and Q, or both; shapes that do not fit; steps that do not increase; a scale of 0;
            an alpha that its input does not see; and as `bias.rank`.

    Example:
        >>> weights = np.stack([np.eye(5), 2 * np.eye(5)])
        >>> bias.rank_arrays(problem.X, problem.Z, W=weights, steps=(10, 20), norms=["frobenius"]).margin_ratio.shape
        (1, 1, 2)
    """
    if (W is None) == (K is None) or (K is None) != (Q is None):
        given = [name for name, value in (("W", W), ("K", K), ("Q", Q)) if value is not None]
        raise ValueError(f"weights: expected W, or K and Q, found {' and '.join(given) or 'none'}")
    asked, key = ranking.named(norms, trace=semidefinite.trace), checking.random_key(key)
    several = np.ndim(X) == 4
    leaves = {name: _seeded(name, value, several, 3) for name, value in (("W", W), ("K", K), ("Q", Q))}
    snapshots = leaves["W"] if K is None else attention.Factored(leaves["K"], leaves["Q"])
    snapshots = jax.tree.map(checking.widened, snapshots)
    steps = _steps(steps, jax.tree.leaves(snapshots)[0].shape[1])
    tokens, queries = checking.widened(_seeded("X", X, several, 3)), checking.widened(_seeded("Z", Z, several, 2))
    scale = checking.check_scale(scale)
    # Neither labels nor a head enter the max-margin problems.
    labels, head = np.ones_like(tokens[:, :, 0, 0]), np.zeros_like(tokens[:, 0, 0])
    arrays = {"X": tokens, "Z": scale * queries, "Y": labels, "v": head}
    if mask is not None:
        arrays["present"] = _seeded("mask", mask, several, 2)
    posed = ranking.posed_batch(as_run(snapshots, steps), of_arrays(arrays), plain)
    if alpha is not None:
        chosen = _chosen(alpha, several, np.asarray(arrays.get("present", np.ones(tokens.shape[:3], bool))))
        build = svm.set_constraints if chosen.dtype == bool else svm.token_constraints
        posed = posed._replace(constraints=batch.over_seeds(build, posed.problems, chosen))
    return ranking.of_posed(asked, key, posed)


def as_run(snapshots: Any, steps: Any) -> descent.Run:
    """Return the weights of several seeds along their training, at these steps, as a run that `bias.rank` can read."""
    seeds = len(jax.tree.leaves(snapshots)[0])
    last = jax.tree.map(lambda leaf: leaf[:, -1], snapshots)
    rest: Any = *[np.zeros((seeds, 0))] * 3, np.full(seeds, NEVER), np.tile(np.asarray(steps, int), (seeds, 1))
    return descent.Run(last, snapshots, *rest)


def _steps(given: Any, count: int) -> Int[np.ndarray, " snapshots"]:
    """Return the steps of so many snapshots; 0 for one snapshot without a step."""
    steps = np.asarray(given if np.size(given) or count > 1 else [0])
    is_whole = steps.shape == (count,) and steps.dtype.kind in "iuf" and (steps == np.trunc(steps)).all()
    if not is_whole or steps[0] < 0 or (np.diff(steps) <= 0).any():
        raise ValueError(
            f"steps: expected increasing whole numbers, one for each of the {count} snapshots, found {given!r}"
        )
    return steps.astype(int)


def _chosen(alpha: Any, several: bool, seen: Bool[np.ndarray, "seeds n T"]) -> Any:
    """Return the tokens that count as selected, of each seed, after checking that their inputs see them."""
    array, T = np.asarray(alpha), seen.shape[2]
    if array.dtype.kind not in "iub":
        raise ValueError(f"alpha: expected integers, or truth values, found {array.dtype}")
    is_set = array.dtype == bool
    array = _seeded("alpha", array, several, 2 if is_set else 1)
    of_tokens: Any = array if is_set else array[..., None] == np.arange(T)
    if of_tokens.shape != seen.shape:
        expected = seen.shape if is_set else seen.shape[:2]
        raise ValueError(f"alpha: expected shape {expected[not several :]}, found {np.shape(alpha)}")
    wrong = ~of_tokens.any(axis=2) | (of_tokens & ~seen).any(axis=2)
    if wrong.any():
        raise ValueError(
            f"alpha: expected tokens 0..{T - 1} that their inputs see, found others in {wrong.sum()} inputs"
        )
    return array


def _seeded(name: str, value: Any, several: bool, axes: int) -> Any:
    """Return an array with an axis of seeds in front, added to a single one; None for None."""
    if value is None:
        return None
    array = np.asarray(value)
    if array.ndim != axes + several:
        found = "of several seeds" if several else "of one seed"
        raise ValueError(f"{name}: expected {axes + several} axes, as X is {found}, found shape {array.shape}")
    return array if several else array[None]
