"""How fast both layers turn to their max-margin solutions, how fast both losses fall, and what unseen sentences get."""

from __future__ import annotations

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from jaxattn import language, svm
from jaxattn.experiments.tasks.next_token_rate import model
from jaxattn.experiments.tasks.next_token_rate.law import Sentences
from jaxattn.parallel import batch
from jaxattn.study.estimates import estimated, exact, mean, power_law, quantiles, share
from jaxattn.study.measuring import exclusions
from jaxattn.study.settings.parameters import finite_seeds

# Fixed beforehand: the largest 1 - cos of a direction that has converged.
NEAR = 0.01
# The rounding error of 1 - cos for equal directions in double precision.
_SAME = 1e-16
PERCENTS = (50, 10, 90)
LAYERS = ("ov", "kq")


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare both layers with the certified solutions of their max-margin problems, and try unseen sentences.

    The feed-forward problem asks `(e_y - e_v)^T W x >= 1` for each word x, its successor y and every other word v; that
    of the attention `(x_best - x_t)^T W z >= 1` for each sentence. A seed is kept if its weights stayed finite, if both
    solutions are certified, and if the loss is least with all attention on the best words (else "ambiguous").

    Returns:
        Along the snapshots `off_ov` and `off_kq`, 1 - cos of each layer and its solution, and `log_ov` and `log_kq`,
        the logarithms of the losses, the second less its least value. By seed `unseen`, the number of sentences that
        were not trained on but whose best word follows from those that were, and `right`, how many of them get the
        right next word.
    """
    read = {str(name): record[name].values for name in record.data_vars}
    E, last, best, present = (jnp.asarray(read[name]) for name in ("E", "last", "best", "present"))
    texts = language.Choices(E, last, best, jnp.ones(last.shape, E.dtype), present.astype(E.dtype))
    sentences = Sentences(texts, jnp.asarray(read["successor"]))
    rows = batch.over_seeds(_of_words, sentences), batch.over_seeds(language.constraints, texts)
    solved = [svm.solve_batch(one, svm.frobenius, solver=solver) for one in rows]
    optimal, infeasible = (
        [np.asarray(one.status) == status for one in solved] for status in (svm.Status.OPTIMAL, svm.Status.INFEASIBLE)
    )
    finite = finite_seeds((read["W_ov"], read["W_kq"]))
    least = np.asarray(batch.over_seeds(model.is_least, read["W_ov"][:, -1], sentences))
    least &= np.isfinite(read["log_excess_kq"]).all(axis=1)
    kept = finite & least & optimal[0] & optimal[1]
    tried = np.array([_tried(*(read[name][k] for name in _TRIED)) for k in np.flatnonzero(kept)]).reshape(-1, 2)
    series = {
        f"off_{name}": _off(read[f"W_{name}"], np.asarray(one.W)) for name, one in zip(LAYERS, solved, strict=True)
    }
    series |= {"log_ov": read["log_loss_ov"], "log_kq": read["log_excess_kq"]}
    return xarray.Dataset(
        {name: (("seed", "snapshot"), array[kept]) for name, array in series.items()}
        | {name: (("seed",), column) for name, column in zip(("unseen", "right"), tried.T, strict=True)},
        {"seed": record["seed"].values[kept], "snapshot": record["snapshot"].values},
        exclusions.count(kept, diverged=~finite, ambiguous=~least, infeasible=infeasible[0] | infeasible[1]),
    )


def _of_words(sentences: Sentences) -> svm.Constraints:
    """Return the feed-forward layer's constraints, one group per word."""
    right = jax.nn.one_hot(sentences.successor, sentences.successor.shape[0], dtype=sentences.text.E.dtype)
    classes = jnp.eye(right.shape[0], dtype=right.dtype)
    return svm.Constraints(right[:, None] - classes[None], sentences.text.E, present=right == 0)


def _off(W: Float[np.ndarray, "seed k *m"], solution: Float[np.ndarray, "seed *m"]) -> Float[np.ndarray, "seed k"]:
    """Return the direction error 1 - cos along the snapshots, computed without cancellation."""
    axes, tiny = (-2, -1), np.finfo(float).tiny
    a, b = (x / np.maximum(np.linalg.norm(x, axis=axes, keepdims=True), tiny) for x in (W, solution[:, None]))
    return np.maximum(np.sum((a - b) ** 2, axis=axes) / 2, _SAME)


_TRIED = ("W_ov", "W_kq", "E", "last", "best", "present", "successor")


def _tried(
    W_ov: Float[np.ndarray, "k V d"],
    W_kq: Float[np.ndarray, "k d d"],
    E: Float[np.ndarray, "V d"],
    last: Int[np.ndarray, " N"],
    best: Int[np.ndarray, " N"],
    present: Bool[np.ndarray, "N V"],
    successor: Int[np.ndarray, " V"],
) -> tuple[int, int]:
    """Return the number of unseen sentences with a known best word, and of those that get the right next word.

    A word is known to precede another one if it is the best word of a sentence with both, or if words between them are.
    """
    V, T = len(E), int(present[0].sum())
    unseen = right = 0
    for asking in np.unique(last):
        own = last == asking
        before = known_order(best[own], present[own])
        seen = {tuple(np.flatnonzero(row)) for row in present[own]}
        for others in combinations(np.delete(np.arange(V), asking), T - 1):
            words = np.sort([asking, *others])
            first = [word for word in words if all(before[word, other] for other in words if other != word)]
            if not first or tuple(words) in seen:
                continue
            logits = E[words] @ W_kq[-1] @ E[asking]
            s = np.exp(logits - logits.max())
            unseen += 1
            right += int(np.argmax(W_ov[-1] @ (s / s.sum() @ E[words])) == successor[first[0]])
    return unseen, right


def known_order(best: Int[np.ndarray, " N"], present: Bool[np.ndarray, "N V"]) -> Bool[np.ndarray, "V V"]:
    """Return which word is known to precede which, from the best words of sentences with one last word."""
    before = np.zeros((present.shape[1], present.shape[1]), bool)
    for word, row in zip(best, present, strict=True):
        before[word] |= row
    np.fill_diagonal(before, False)
    for word in range(len(before)):
        before |= before[:, [word]] & before[[word]]
    return before


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate the rates of both layers.

    `rate` is the exponent of t in the distance of the directions, `sqrt(2 (1 - cos))`, over the last decade of steps;
    `arrived` the share of seeds that end within 0.01 of the solution; `linear` the fall of the logarithm of the loss
    per step in the last half of the steps over that in the quarter before, which is 1 for linear convergence. `unseen`
    counts the unseen sentences of all seeds, and `right` is the share of them that get the right next word.
    """
    steps = run["snapshot"].values
    quarter, half = (int(abs(np.log(steps * by / steps[-1])).argmin()) for by in (4, 2))

    def fall(layer: str, since: int, until: int) -> xarray.DataArray:
        log = run[f"log_{layer}"]
        change = log.isel(snapshot=until, drop=True) - log.isel(snapshot=since, drop=True)
        return change / float(steps[until] - steps[since])

    unseen = float(run["unseen"].sum())
    return estimated(
        run,
        key,
        **{f"rate_{name}": power_law((2 * run[f"off_{name}"]) ** 0.5, steps[-1] / 10) for name in LAYERS},
        **{f"arrived_{name}": share(run[f"off_{name}"].isel(snapshot=-1, drop=True) <= NEAR) for name in LAYERS},
        **{f"linear_{name}": mean(fall(name, half, -1) / fall(name, quarter, half)) for name in LAYERS},
        **{name: quantiles(run[name], *PERCENTS) for name in ("off_ov", "off_kq", "log_ov", "log_kq")},
        unseen=exact(unseen),
        right=exact(float(run["right"].sum()) / max(unseen, 1.0)),
    )
