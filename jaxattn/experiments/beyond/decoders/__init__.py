"""Does any optimizer, task, depth or kind of position make the heads of a trained decoder obey an Att-SVM?"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from jaxattn.experiments.beyond.decoders.measure import measure
from jaxattn.experiments.beyond.hierarchy.claims import ALL, FAR, HALF, HOPE, OURS, all_obey, most_are_soft
from jaxattn.experiments.beyond.hierarchy.estimates import estimate
from jaxattn.experiments.beyond.hierarchy.figure import costs, ends, levels
from jaxattn.study.claims import TRAINED, Datasets, Experiment, Judgement, Judgements, claim, total
from jaxattn.study.claims.criteria import below
from jaxattn.study.estimates import estimated, mean, number
from jaxattn.study.style import page, palette

# The runs: everything is trained, but for the last.
OPTIMIZERS = ("Adam", "AdamW", "SGD with momentum", "Muon", "normalized descent")
TASKS = ("largest token", "induction", "language", "digits")
FOUR, ROTARY, FROZEN = "four layers of two heads", "rotary positions", "rotary positions, K and Q alone"
EVERYTHING = (*OPTIMIZERS, *TASKS, FOUR, ROTARY)


def summarize(runs: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate each run as `hierarchy` does; `top`, the largest ratio of any head in any norm; and `learned`."""
    summaries = {}
    for k, (name, run) in enumerate(runs.items()):
        of_hierarchy, own = jax.random.split(jax.random.fold_in(key, k))
        last = run["ratio"].isel(snapshot=-1, drop=True).max("norm")
        top = last.where(last > run["spectral"], run["spectral"]).max("head")
        found = estimated(run, own, top=mean(top), spectral=mean(run["spectral"]))
        summaries[name] = estimate(run, of_hierarchy).assign(found)
    return summaries


def _learned(runs: Datasets, names: Sequence[str]) -> dict[str, float]:
    label = "share of decoders that have learned their task"
    return {f"{label}, {name}": 1 - runs[name].attrs["unlearned"] / runs[name].attrs["attempted"] for name in names}


def _far(runs: Datasets, names: Sequence[str]) -> Judgement:
    tops = {f"largest margin ratio of any head in any norm, {name}": number(runs[name], "top") for name in names}
    return Judgement([below(label, top, FAR) for label, top in tops.items()], numbers={**tops, **_learned(runs, names)})


@claim(
    "decoders:hope",
    HOPE,
    "Whatever the optimizer, a trained decoder is a hierarchy of SVMs: each of its heads separates the tokens that it "
    "selects from the others with the largest margin.",
    TRAINED,
)
def _hope(runs: Datasets) -> Judgement:
    return Judgement(
        all_obey(runs, OPTIMIZERS, HALF),
        remark="The margin is that relative to the nuclear norm; decoders:optimizers has other norms.",
        numbers=_learned(runs, OPTIMIZERS),
    )


@claim(
    "decoders:optimizers",
    OURS,
    "No optimizer brings heads near an Att-SVM: under each of five, the best head ends far from it in the Frobenius, "
    "nuclear and spectral norms.",
    TRAINED,
)
def _optimizers(runs: Datasets) -> Judgement:
    return _far(runs, OPTIMIZERS)


@claim(
    "decoders:tasks",
    OURS,
    "Nor does a task, with its loss in the log domain: on each of four, the best head ends far from an Att-SVM.",
    TRAINED,
)
def _tasks(runs: Datasets) -> Judgement:
    return _far(runs, TASKS)


@claim(
    "decoders:depth", OURS, "Nor does depth: of four layers of two heads, the best ends far from an Att-SVM.", TRAINED
)
def _depth(runs: Datasets) -> Judgement:
    return _far(runs, [FOUR])


@claim(
    "decoders:positions",
    OURS,
    "Nor do rotary positions: the best head ends far from the Att-SVM of heads whose keys and queries turn.",
    TRAINED,
)
def _positions(runs: Datasets) -> Judgement:
    return _far(runs, [ROTARY])


@claim(
    "decoders:frozen",
    OURS,
    "With inputs and readout fixed, K and Q with rotary positions obey the nuclear norm among all heads whose keys and "
    "queries turn.",
    TRAINED,
)
def _frozen(runs: Datasets) -> Judgement:
    return Judgement(
        all_obey(runs, [FROZEN], ALL),
        remark="It shows that the measurement sees an Att-SVM with rotary positions where there is one.",
        numbers={"nuclear margin ratio at the end": number(runs[FROZEN].isel(head=0), "last", norm="nuclear")},
    )


@claim(
    "decoders:soft",
    OURS,
    "In most decoders that have learned their task, hard attention would raise the loss, whatever the optimizer, task, "
    "depth or positions.",
    TRAINED,
)
def _soft(runs: Datasets) -> Judgement:
    return most_are_soft(runs, EVERYTHING)


CLAIMS = (_hope, _optimizers, _tasks, _depth, _positions, _frozen, _soft)

_NAMES = {
    FOUR: "four layers",
    ROTARY: "rotary",
    FROZEN: "rotary, K, Q alone",
    "SGD with momentum": "SGD",
    "normalized descent": "normalized",
}
_ENDS = (
    ("last", "frobenius", palette.FROBENIUS, "s", page.NORMS["frobenius"]),
    ("last", "nuclear", palette.NUCLEAR, "o", page.NORMS["nuclear"]),
    ("spectral", "nuclear", palette.SPECTRAL, "^", "spectral SVM"),
    ("nulls", "nuclear", palette.GUIDE, "_", "largest null, nuclear"),
)


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw margin ratios by optimizer (a), task (b), depth and positions (c), and the cost of hard attention (d)."""
    verdicts = {name.partition(":")[2]: judgement.verdict for name, judgement in judgements.items()}
    with page.style():
        figure = page.full(6.4)
        (optimizers, tasks), (others, hardness) = figure.subplots(2, 2)
        for axes, names in (
            (optimizers, OPTIMIZERS),
            (tasks, TASKS),
            (others, (FOUR, ROTARY, FROZEN)),
        ):
            ends(axes, summaries, names, _ENDS, _NAMES)
            levels(axes, 0.0)
            axes.set(ylabel="margin ratio at the end", ylim=(-0.15, 1.1))
            axes.set_yticks(np.linspace(0, 1, 6))
        optimizers.set_title(f"(a) heads end far under each optimizer: {verdicts['optimizers']}")
        tasks.set_title(f"(b) heads end far on other tasks: {verdicts['tasks']}")
        tasks.legend(loc="center", bbox_to_anchor=(0.5, 0.55), title="means, 95 % intervals", ncols=2)
        others.set_title(f"(c) far in four layers: {verdicts['depth']}; rotary: {verdicts['positions']}")
        costs(hardness, summaries, EVERYTHING, _NAMES)
        hardness.set_title(f"(d) hard attention would raise the loss: {verdicts['soft']}")
        figure.suptitle(f"A trained decoder as a hierarchy of SVMs, whatever the optimizer: {verdicts['hope']}")
        page.add_counts(
            figure,
            {"all runs": xarray.Dataset(attrs=total(summaries))},
            "(a) and four layers: the token before. By layer.head. Unsolved: the task or a max-margin problem.",
        )
    return figure


EXPERIMENT = Experiment(measure, claims=CLAIMS, summarize=summarize, draw=draw)
