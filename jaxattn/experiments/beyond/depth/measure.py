"""From the record of two layers: the margin ratios of each, for the tokens that reach it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float

from jaxattn import bias, svm, tokens
from jaxattn.bias.checkpoints import as_run
from jaxattn.experiments.beyond.depth.layers import Layers, attended, log_unread
from jaxattn.experiments.bias import ratios
from jaxattn.parallel import batch
from jaxattn.problem import Problem, every_position, of_arrays
from jaxattn.study.measuring.ranked import to_dataset

NORMS = ("frobenius", "nuclear")
# The smallest share that is distinguished from zero, as a decimal logarithm.
LEAST = -300.0


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare both layers with the Att-SVM of the tokens that reach each of them at the last snapshot.

    These are for the `second` layer the outputs of the first, with the query z, and for the `first` the tokens, with
    the query of the position that the second reads, one per input; `every` has the queries of all positions.

    Returns:
        Margin ratios `second` and `first`, (seed, norm, snapshot), and `every`, in the Frobenius norm, (seed,
        snapshot); with the suffix `_cosine` that of the first two, `_probability` the worst input's largest one and
        `_size` the norm of the weights, (seed, snapshot), `_confusion` as in a ranking, and as an attribute
        `_exponents`; and `unread`, the decimal logarithm of the share of unread positions in the first layer's
        gradient, (seed, snapshot). A seed is kept if all optima are certified.

    Raises:
        ValueError: a solver is given, and what `bias.rank` raises.
    """
    ratios.native(solver)
    arrays: dict[str, Any] = {str(name): record[name].values for name in record.data_vars}
    problems, steps = of_arrays(arrays), record["snapshot"].values
    with jax.enable_x64(True):
        layers = Layers(arrays["first"], arrays["second"])
        posed = batch.over_seeds(_posed, Layers(*(weights[:, -1] for weights in layers)), problems)
        unread = batch.over_seeds(_unread, layers, problems)
        rankings = {
            name: bias.rank(as_run(weights, steps), posed[name], norms)
            for name, weights, norms in (
                ("second", layers.second, NORMS),
                ("first", layers.first, NORMS),
                ("every", layers.first, NORMS[:1]),
            )
        }
    seeds = np.arange(len(unread))
    kept = np.flatnonzero(np.all([np.isin(seeds, ranking.seeds) for ranking in rankings.values()], axis=0))
    of_norms, of_steps = ("seed", "norm", "snapshot"), ("seed", "snapshot")
    measured: dict[str, Any] = {"unread": (of_steps, np.maximum(unread[kept], LEAST))}
    for name, ranking in rankings.items():
        rows = np.isin(ranking.seeds, kept)
        measured[f"{name}_probability"] = (of_steps, ranking.probability[rows])
        measured[f"{name}_size"] = (of_steps, ranking.size[rows])
        measured[f"{name}_confusion"] = ((f"{name}_norm", f"{name}_rival"), ranking.confusion)
        if name == "every":
            measured[name] = (of_steps, ranking.margin_ratio[rows, 0])
        else:
            measured[name] = (of_norms, ranking.margin_ratio[rows])
            measured[f"{name}_cosine"] = (of_norms, ranking.cosine[rows])
    coordinates = {"seed": record["seed"].values[kept], "norm": np.array(NORMS, object), "snapshot": steps}
    exponents = {f"{name}_exponents": to_dataset(ranking).attrs["exponents"] for name, ranking in rankings.items()}
    return xarray.Dataset(measured, coordinates, {**_counts(rankings, len(kept)), **exponents})


def _posed(last: Layers, problem: Problem) -> dict[str, Problem]:
    outputs = attended(last.first, problem)
    second = Problem(X=outputs, Z=problem.Z, Y=problem.Y, v=problem.v)
    read = tokens.selected(last.second, second)
    queries = jnp.take_along_axis(problem.X, read[:, None, None], axis=1)[:, 0]
    first = Problem(X=problem.X, Z=queries, Y=problem.Y, v=problem.v)
    labels = jnp.broadcast_to(problem.Y[:, None], (problem.n, problem.T))
    return {"second": second, "first": first, "every": every_position(problem.X, labels, problem.v)}


def _unread(layers: Layers, problem: Problem) -> Float[Array, " snapshots"]:
    return jax.vmap(log_unread, in_axes=(0, None))(layers, problem)


def _counts(rankings: dict[str, bias.Ranking], kept: int) -> dict[str, int]:
    """Return the numbers of seeds kept in all problems; a seed lost in several problems counts for the first reason."""
    counts = [ranking.counts for ranking in rankings.values()]
    lost = (attempted := counts[0]["attempted"]) - kept
    diverged, infeasible = (max(count[reason] for count in counts) for reason in ("diverged", "infeasible"))
    infeasible = min(lost - diverged, infeasible)
    reasons = {"diverged": diverged, "infeasible": infeasible, "unsolved": lost - diverged - infeasible}
    return {"attempted": attempted, "kept": kept, **reasons}
