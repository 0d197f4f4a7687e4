"""Where descent from any start ends on texts that can be separated: at the solution, or with prefixes left behind."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from jaxattn import language, metrics, svm
from jaxattn.parallel import batch
from jaxattn.study.measuring import served
from jaxattn.study.settings.texts import choices_of
from jaxattn.study.statistics import bootstrap, variables

# Fixed beforehand. A run has come to a solution if 1 - correlation with it is at most this.
NEAR = 0.05
# A prefix is left behind if its next word is behind by more than the margin 1 along the solution of the others.
_MARGIN = 1 + 1e-6


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Say of every text that some W separates where descent from its start has ended.

    The solution of what a run `keeps` selects the next words of the prefixes that it serves, those whose next word has
    the largest logit; where the other scores differ it also selects the word that each other prefix attends to.

    Args:
        record: of a `StartedTraining`.
        solver: of the max-margin problems.

    Returns:
        For every kept seed `off` at the snapshots, 1 - correlation with W_mm; in the end `off_kept`, 1 - correlation
        with the solution of what the run keeps (1 if it keeps nothing); `unserved`, how many prefixes are not served;
        `behind`, the least by which the next word of one of them is behind along that solution (0 if there are none);
        `start` and `growth`, the norms of W in the beginning and in the end over that of W_mm; `within`, the step size
        times the smoothness constant L. Texts that no W separates are counted as infeasible. The attributes tell the
        runs apart.
    """
    texts = choices_of({str(name): record[name].values for name in record.data_vars})
    compact = language.compact(texts._replace(scores=None))
    finite = np.asarray(np.isfinite(record["pairs"].values).all(axis=(1, 2)))
    hard = svm.solve_batch(batch.over_seeds(language.constraints, compact), svm.frobenius, solver=solver)
    status = np.asarray(hard.status)
    final = np.where(finite[:, None, None], record["pairs"].values, 0.0)
    config = json.loads(record.attrs["config"])
    delta = float(config["data"].get("delta", 0.0))
    right, problem = batch.over_seeds(_kept_by, final, compact, np.full(len(final), delta > 0))
    of_kept = svm.solve_batch(problem, svm.frobenius, solver=solver)
    solved = (np.asarray(of_kept.status) == svm.Status.OPTIMAL) & (status != svm.Status.NOT_CONVERGED)
    feasible = status == svm.Status.OPTIMAL
    kept = finite & solved & feasible

    def only(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: np.asarray(leaf)[kept], tree)

    given = (record[name].values for name in ("pairs_initial", "pairs_snapshots"))
    found = batch.over_seeds(_ended, *map(only, (*given, hard.W, of_kept.W, right, compact, texts)))
    names = ("off", "off_kept", "unserved", "behind", "start", "growth", "bound")
    dims = {"off": ("seed", "snapshot")}
    arrays = {name: (dims.get(name, ("seed",)), one) for name, one in zip(names, found, strict=True)}
    step_size = float(config["optimizer"]["step_size"])
    arrays["within"] = (("seed",), step_size * arrays.pop("bound")[1])
    return xarray.Dataset(
        arrays,
        {"seed": only(record["seed"].values), "snapshot": record["snapshot"].values},
        {
            "attempted": len(kept),
            "kept": int(kept.sum()),
            "diverged": int((~finite).sum()),
            "infeasible": int((finite & (status == svm.Status.INFEASIBLE)).sum()),
            "unsolved": int((finite & ~kept & (status != svm.Status.INFEASIBLE)).sum()),
            **_described(config, record.sizes["feature"], delta, step_size),
        },
    )


def _described(config: dict[str, Any], d: int, delta: float, step_size: float) -> dict[str, Any]:
    """Return what tells a run from others, and its name."""
    law, loss = (config[name]["_target_"].rpartition(".")[2] for name in ("data", "loss"))
    # Without a floor, a normalized step follows the exact direction of the gradient.
    rule = "exact direction" if "floor" in config["optimizer"] else f"plain, step {step_size:g}"
    radius = float(config["weights"]["radius"])
    start = "W = 0" if not radius else f"||W|| = {radius:g}"
    if "word" in config["weights"]:
        start += ", W z along e_b"
    text = "two inputs" if law == "crossed" else f"texts, d = {d}"
    name = f"{text}, delta {delta:g}, {loss}, {rule}, from {start}"
    return {"run": name, "text": text, "d": d, "delta": delta, "loss": loss, "rule": rule, "radius": radius}


def _kept_by(
    pairs: Float[Array, "V V"], text: language.Choices, selects: Bool[Array, ""]
) -> tuple[Bool[Array, " N"], svm.Constraints]:
    """Return which prefixes are served, and the problem of what the run keeps; others select if that is asked for."""
    logits = language.logits(language.weights(pairs, text), text)
    own = language.constraints(text)
    right = served.served(language.weights(pairs, text).W, own)
    first = jnp.argmax(language.counted(logits, text), axis=1)
    chosen = text._replace(next=jnp.where(right, text.next, first))
    return right, served.alone(language.constraints(chosen), right | selects)


def _ended(
    start: Float[Array, "V V"],
    snapshots: Float[Array, "snapshot V V"],
    W_mm: Float[Array, "V V"],
    W_kept: Float[Array, "V V"],
    right: Bool[Array, " N"],
    compact: language.Choices,
    text: language.Choices,
) -> tuple[Array, ...]:
    """Return what `measure` does of one seed, in its order, the bound of the slope in place of the step."""
    W = jax.vmap(lambda pairs: language.weights(pairs, compact).W)(snapshots)
    off = 1 - jax.vmap(metrics.correlation, in_axes=(0, None))(W, W_mm)
    wrong = ~right & (compact.weight > 0)
    behind = jnp.min(served.behind(W_kept, language.constraints(compact), wrong))
    at_start = metrics.norm(language.weights(start, compact).W)
    # A run that keeps nothing is near no solution.
    nothing = metrics.norm(W_kept) == 0
    off_kept = 1 - metrics.correlation(W[-1], jnp.where(nothing, W_mm, W_kept))
    return (
        off,
        jnp.where(nothing, 1.0, off_kept),
        jnp.sum(wrong),
        jnp.where(jnp.any(wrong), behind, 0.0),
        at_start / metrics.norm(W_mm),
        metrics.norm(W[-1]) / metrics.norm(W_mm),
        # The logistic loss of a score that is not negative has a slope of at most 1/2.
        language.score_bound(text, slope=0.5),
    )


def ends(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Return where the runs of one kind have ended, and their direction errors.

    Args:
        one: of `measure`.
        key: of the bootstrap.

    Returns:
        `arrived`, how many texts have all prefixes served and W near W_mm; `left`, how many have prefixes left behind:
        W is near the solution of what it keeps, and the next word of every other prefix is more than the margin behind
        along it; `moving`, all others; `unexplained`, how many have prefixes that are not served though less behind.
        The means of `off` over the snapshots and of `off_kept`; the largest `within`, the mean `start`;
        `drift`, by how much the mean of `off` has changed in the last two decades of steps.

    Raises:
        ValueError: direction errors that are none.
    """
    for name in ("off", "off_kept"):
        if not np.all((one[name] >= -1e-9) & (one[name] <= 2 + 1e-9)):
            found = f"{float(one[name].min()):.3g}..{float(one[name].max()):.3g}"
            raise ValueError(f"{name}: expected direction errors, 0..2, found {found}")
    unserved, behind = one["unserved"].values > 0, one["behind"].values
    close = one["off_kept"].values <= NEAR
    arrived = ~unserved & (one["off"].values[:, -1] <= NEAR)
    left = unserved & close & (behind > _MARGIN)
    estimates = {
        "off": (("snapshot",), bootstrap(one["off"].values, key)),
        "off_kept": ((), bootstrap(one["off_kept"].values, jax.random.fold_in(key, 1))),
    }
    counts = {
        "texts": len(left),
        "arrived": int(arrived.sum()),
        "left": int(left.sum()),
        "moving": int((~arrived & ~left).sum()),
        "unexplained": int((unserved & (behind <= _MARGIN)).sum()),
    }
    sizes = {"within": float(one["within"].max()), "start": float(one["start"].mean())}
    # The last two decades of steps.
    late = one["off"].values[:, one["snapshot"].values * 100 >= int(one["snapshot"][-1])]
    sizes["drift"] = float((late[:, -1] - late[:, 0]).mean())
    numbers = {name: ((), value) for name, value in (counts | sizes).items()}
    return xarray.Dataset(variables(estimates) | numbers, {"snapshot": one["snapshot"].values}, one.attrs)
