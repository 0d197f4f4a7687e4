"""From the record of a selector: the tokens that it selects, and its margins in several norms."""

from __future__ import annotations

import json
from typing import Any, Protocol, cast

import numpy as np
import xarray

from jaxattn import bias, models, svm, tokens
from jaxattn.experiments.bias import ratios
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.measuring.ranked import alone, model_of, ranked, to_dataset
from jaxattn.study.settings.parameters import weights_of

# The names of the runs: training W from zero and from random weights, and the changes.
PLAIN, RANDOM, GUMBEL, HEADS = "plain", "random start", "Gumbel", "two heads"
ROTARY, ONE_HOT = "rotary", "one-hot positions"
_ENTROPY = "entropy "


class _Linear(Protocol):
    def seen(self, problem: Problem) -> Problem: ...

    def matrix(self, weights: Any) -> Any: ...


def entropy(weight: float) -> str:
    """Return the name of the run with an entropy penalty of this weight."""
    return f"{_ENTROPY}{weight:g}"


def weights_among(runs: Any) -> list[float]:
    """Return the weights of the entropy penalties among the names of runs, smallest first."""
    return sorted(float(run.removeprefix(_ENTROPY)) for run in runs if run.startswith(_ENTROPY))


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Read the tokens that a selector selects, and compare W with the max-margin problems of these tokens.

    At inference it selects the argmax of its scores, so these are the tokens of largest logit at the end, without
    noise.

    Args:
        record: of a `Training`, as `recording.run` writes it.
        solver: must be None; each norm has its own.

    Returns:
        For the kept seeds `margin_ratio`, (seed, norm, snapshot), and `probability`, the mean over inputs of the
        largest one, (seed, snapshot), as `bias.rank` returns them; `selected`, (seed, input), and `optimal`, the share
        of inputs that select the token of the best score, (seed,). With several heads each is compared with its own
        problem, and the ratios are means over heads; `joint` is the ratio in the joint problem of all, (seed,
        snapshot), in the Frobenius norm, and the inputs of all heads are concatenated. The attribute `run` names the
        change with respect to training W.

    Raises:
        ValueError: a solver; else as `ranked`.
    """
    ratios.native(solver)
    run = _named(json.loads(record.attrs["config"]))
    one = _of_heads(record) if run == HEADS else _placed(ranked(record), record)
    selected, optimal = _tokens(record)
    kept = np.isin(record["seed"].values, one["seed"].values)
    one["selected"] = (("seed", "input"), selected[kept])
    one["optimal"] = (("seed",), (selected == optimal).mean(axis=1)[kept])
    return one.assign_attrs(run=run)


def _placed(ranking: bias.Ranking, record: xarray.Dataset) -> xarray.Dataset:
    """Return the ratios and probabilities of a ranking at the seeds of a record, with its counts."""
    one = to_dataset(ranking)[ratios.KEPT]
    one = one.assign_coords(seed=record["seed"].values[ranking.seeds])
    one.attrs = ratios.counts(ranking.counts)
    return one


def _of_heads(record: xarray.Dataset) -> xarray.Dataset:
    """Return the mean ratios over heads, each for its own problem, and those of the joint problem."""
    joint = _placed(ranked(record, ("frobenius",)), record)
    count = cast(models.Heads, model_of(record)).count
    parts = [_placed(ranked(alone(record, str(h))), record) for h in range(count)]
    # Every problem of a seed must be certified; those of single heads are feasible if the joint one is.
    kept = sorted(set.intersection(*(set(part["seed"].values.tolist()) for part in (joint, *parts))))
    heads = [part.sel(seed=kept) for part in parts]
    one = heads[0].assign({name: sum(head[name] for head in heads) / count for name in heads[0].data_vars})
    one["joint"] = joint["margin_ratio"].sel(seed=kept, norm="frobenius", drop=True)
    lost = joint.attrs["kept"] - len(kept)
    return one.assign_attrs(joint.attrs | {"kept": len(kept), "unsolved": joint.attrs["unsolved"] + lost})


def _tokens(record: xarray.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens that the final weights select, and those with the best score, (seed, input) each."""
    arrays = {str(name): record[name].values for name in record.data_vars}
    model, problems = cast(_Linear, model_of(record)), of_arrays(arrays)
    matrices = np.asarray(model.matrix(weights_of(arrays)))
    selected = np.asarray(batch.over_seeds(tokens.selected, matrices, batch.over_seeds(model.seen, problems)))
    optimal = np.asarray(batch.over_seeds(tokens.optimal, problems))
    return selected, np.tile(optimal, (1, selected.shape[1] // optimal.shape[1]))


def _named(config: dict[str, Any]) -> str:
    """Return the name of a run."""
    target = {name: str(config.get(name, {}).get("_target_", "")).rpartition(".")[2] for name in _GROUPS}
    if target["penalty"] == "entropy":
        return entropy(float(config["penalty"]["weight"]))
    return next((run for run, (group, value) in _CHANGED.items() if target[group] == value), PLAIN)


# What identifies a run; the first match is used: a group and its value.
_CHANGED = {
    GUMBEL: ("noise", "gumbel"),
    HEADS: ("model", "summed"),
    ROTARY: ("model", "rotary"),
    ONE_HOT: ("model", "key_only"),
    RANDOM: ("weights", "free"),
}
_GROUPS = ("penalty", *(group for group, _ in _CHANGED.values()))
