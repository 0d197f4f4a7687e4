"""The figure: margin ratios at the end by optimizer, task, depth and positions, and what hard attention costs."""

from __future__ import annotations

import numpy as np
import xarray
from matplotlib.figure import Figure

from jaxattn.experiments.beyond.decoders import claims
from jaxattn.experiments.beyond.hierarchy.figure import costs, ends, levels
from jaxattn.study.claims import Datasets, Judgements, total
from jaxattn.study.style import page, palette

_NAMES = {
    claims.FOUR: "four layers",
    claims.ROTARY: "rotary",
    claims.FROZEN: "rotary, K, Q alone",
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
            (optimizers, claims.OPTIMIZERS),
            (tasks, claims.TASKS),
            (others, (claims.FOUR, claims.ROTARY, claims.FROZEN)),
        ):
            ends(axes, summaries, names, _ENDS, _NAMES)
            levels(axes, 0.0)
            axes.set(ylabel="margin ratio at the end", ylim=(-0.15, 1.1))
            axes.set_yticks(np.linspace(0, 1, 6))
        optimizers.set_title(f"(a) heads end far under each optimizer: {verdicts['optimizers']}")
        tasks.set_title(f"(b) heads end far on other tasks: {verdicts['tasks']}")
        tasks.legend(loc="center", bbox_to_anchor=(0.5, 0.55), title="means, 95 % intervals", ncols=2)
        others.set_title(f"(c) far in four layers: {verdicts['depth']}; rotary: {verdicts['positions']}")
        costs(hardness, summaries, claims.EVERYTHING, _NAMES)
        hardness.set_title(f"(d) hard attention would raise the loss: {verdicts['soft']}")
        figure.suptitle(f"A trained decoder as a hierarchy of SVMs, whatever the optimizer: {verdicts['hope']}")
        page.add_counts(
            figure,
            {"all runs": xarray.Dataset(attrs=total(summaries))},
            "(a) and four layers: the token before. By layer.head. Unsolved: the task or a max-margin problem.",
        )
    return figure
