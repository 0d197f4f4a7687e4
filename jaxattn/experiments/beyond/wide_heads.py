"""Do wider heads, on longer sequences, obey an Att-SVM once everything in their decoder is trained?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.beyond.hierarchy.claims import ALL, FAR, HALF, HOPE, OURS, all_obey, most_are_soft
from jaxattn.experiments.beyond.hierarchy.estimates import estimate
from jaxattn.experiments.beyond.hierarchy.figure import costs, levels
from jaxattn.experiments.beyond.hierarchy.measure import measure
from jaxattn.study.claims import TRAINED, Datasets, Experiment, Judgement, Judgements, claim
from jaxattn.study.claims.criteria import below
from jaxattn.study.estimates import estimated, mean, number, quantiles
from jaxattn.study.style import page, palette

ALONE = "K, Q alone"
EVERYTHING = ("Adam", "AdamW", "Muon", "text, AdamW")


def estimate_run(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate a run as `hierarchy` does; and `top`, the largest ratio of a seed's heads in both norms."""
    top = run["ratio"].isel(snapshot=-1, drop=True).max(("head", "norm"))
    return estimate(run, key).assign(
        estimated(run, key, top=mean(top), log_loss=quantiles(run["log_loss"].isel(snapshot=-1), 50))
    )


@claim("wide-heads:frozen", OURS, "With inputs and readout fixed, wider K and Q obey the nuclear norm.", TRAINED)
def _frozen(runs: Datasets) -> Judgement:
    return Judgement(
        all_obey(runs, [ALONE], ALL),
        remark="It shows that the measurement sees an Att-SVM at this size where there is one.",
        numbers={"nuclear margin ratio at the end": number(runs[ALONE].isel(head=0), "last", norm="nuclear")},
    )


@claim(
    "wide-heads:hope",
    HOPE,
    "A trained decoder of wider heads is a hierarchy of SVMs: each of its heads separates the tokens that it selects "
    "from the others with the largest margin.",
    TRAINED,
)
def _hope(runs: Datasets) -> Judgement:
    return Judgement(
        all_obey(runs, EVERYTHING, HALF),
        numbers={f"median last log loss, {name}": float(runs[name]["log_loss_50"]) for name in EVERYTHING},
    )


@claim(
    "wide-heads:far",
    OURS,
    "Width does not bring heads near an Att-SVM: the best head of a decoder ends far from it in the Frobenius and "
    "nuclear norms.",
    TRAINED,
)
def _far(runs: Datasets) -> Judgement:
    tops = {f"largest margin ratio of any head in both norms, {name}": number(runs[name], "top") for name in EVERYTHING}
    return Judgement([below(label, top, FAR) for label, top in tops.items()], numbers=tops)


@claim("wide-heads:soft", OURS, "In most decoders of wider heads, hard attention would raise the loss.", TRAINED)
def _soft(runs: Datasets) -> Judgement:
    return most_are_soft(runs, EVERYTHING)


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the margin ratios of all heads at the end, by run (a), and what hard attention costs (b)."""
    verdicts = {name.partition(":")[2]: judgement.verdict for name, judgement in judgements.items()}
    with page.style():
        figure = page.full(3.6)
        ends, hardness = figure.subplots(1, 2, width_ratios=(1.5, 1))
        names = [name for name in (ALONE, *EVERYTHING) if name in summaries]
        _ends(ends, summaries, names)
        ends.set_title(f"(a) trained decoders end far: {verdicts['far']};\nK, Q alone obey: {verdicts['frozen']}")
        costs(hardness, summaries, EVERYTHING, {})
        hardness.set_title(f"(b) hard attention would\nraise the loss: {verdicts['soft']}")
        figure.suptitle(f"A trained decoder of wider heads as a hierarchy of SVMs: {verdicts['hope']}")
        page.add_counts(figure, summaries, "Each mark is one head, the mean over seeds with its 95 % interval.")
    return figure


def _ends(axes: Axes, summaries: Datasets, names: Sequence[str]) -> None:
    for ends, norm, colour, marker, label in (
        ("last", "frobenius", palette.FROBENIUS, "s", page.NORMS["frobenius"]),
        ("last", "nuclear", palette.NUCLEAR, "o", page.NORMS["nuclear"]),
        ("nulls", "nuclear", palette.GUIDE, "_", "largest null, nuclear"),
    ):
        runs = [summaries[name].sel(norm=norm) for name in names]
        # The heads of a run stand side by side around its place.
        places = [k + 0.8 * ((np.arange(n := run.sizes["head"]) + 0.5) / n - 0.5) for k, run in enumerate(runs)]
        parts = [np.concatenate([run[f"{ends}{part}"].values for run in runs]) for part in ("", "_low", "_high")]
        look = {"color": colour, "marker": marker, "markersize": 4, "linestyle": "none", "label": label}
        page.bars(axes, np.concatenate(places), *parts, **look)
    levels(axes, len(names) - 0.5, ha="right")
    axes.set_xticks(range(len(names)), names)
    axes.set(ylabel="margin ratio at the end", ylim=(-0.15, 1.1))
    axes.legend(loc="center right", bbox_to_anchor=(1.0, 0.6))


EXPERIMENT = Experiment(measure, (_frozen, _hope, _far, _soft), estimate=estimate_run, draw=draw)
