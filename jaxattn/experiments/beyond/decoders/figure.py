"""The figure: margin ratios at the end by optimizer, task, depth and positions, and what hard attention costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.beyond.decoders import claims
from jaxattn.experiments.beyond.hierarchy.figure import costs, levels, short
from jaxattn.study.claims import Datasets, Judgements, total
from jaxattn.study.style import page, palette

_NAMES = {
    claims.FOUR: "four layers",
    claims.ROTARY: "rotary",
    claims.FROZEN: "rotary, K, Q alone",
    "SGD with momentum": "SGD",
    "normalized descent": "normalized",
}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw margin ratios by optimizer (a), task (b), depth and positions (c), and the cost of hard attention (d)."""
    verdicts = {name.partition(":")[2]: judgement.verdict for name, judgement in judgements.items()}
    with page.style():
        figure = page.full(6.4)
        (optimizers, tasks), (others, hardness) = figure.subplots(2, 2)
        _ends(optimizers, summaries, claims.OPTIMIZERS)
        optimizers.set_title(f"(a) heads end far under each optimizer: {verdicts['optimizers']}")
        _ends(tasks, summaries, claims.TASKS)
        tasks.set_title(f"(b) heads end far on other tasks: {verdicts['tasks']}")
        tasks.legend(loc="center", bbox_to_anchor=(0.5, 0.55), title="means, 95 % intervals", ncols=2)
        _ends(others, summaries, (claims.FOUR, claims.ROTARY, claims.FROZEN))
        others.set_title(f"(c) far in four layers: {verdicts['depth']}; rotary: {verdicts['positions']}")
        drawn = [name for name in claims.EVERYTHING if name in summaries]
        costs(hardness, {_NAMES.get(name, name): summaries[name] for name in drawn}, [_NAMES.get(n, n) for n in drawn])
        hardness.set_title(f"(d) hard attention would raise the loss: {verdicts['soft']}")
        figure.suptitle(f"A trained decoder as a hierarchy of SVMs, whatever the optimizer: {verdicts['hope']}")
        page.add_counts(
            figure,
            {"all runs": xarray.Dataset(attrs=total(summaries))},
            "(a) and four layers: the token before. By layer.head. Unsolved: the task or a max-margin problem.",
        )
    return figure


def _ends(axes: Axes, summaries: Datasets, names: Sequence[str]) -> None:
    heads = [(name, head) for name in names if name in summaries for head in summaries[name]["head"].values]
    ends = [summaries[name].sel(head=head) for name, head in heads]
    places = np.arange(len(heads))
    by_norm = {norm: [end.sel(norm=norm) for end in ends] for norm in ("frobenius", "nuclear")}
    for estimate, found, colour, mark, label in (
        ("last", by_norm["frobenius"], palette.FROBENIUS, "s", page.NORMS["frobenius"]),
        ("last", by_norm["nuclear"], palette.NUCLEAR, "o", page.NORMS["nuclear"]),
        ("spectral", ends, palette.SPECTRAL, "^", "spectral SVM"),
        ("nulls", by_norm["nuclear"], palette.GUIDE, "_", "largest null, nuclear"),
    ):
        parts = [[float(end[f"{estimate}{part}"]) for end in found] for part in ("", "_low", "_high")]
        page.bars(axes, places, *parts, color=colour, marker=mark, linestyle="none", label=label)
    levels(axes, 0.0)
    labels = [
        _NAMES.get(name, name) if len(summaries[name]["head"]) == 1 else f"{_NAMES.get(name, name)}, {short(head)}"
        for name, head in heads
    ]
    axes.set_xticks(places, labels, rotation=40, ha="right", fontsize=page.SMALLEST)
    axes.set(ylabel="margin ratio at the end", ylim=(-0.15, 1.1))
    axes.set_yticks(np.linspace(0, 1, 6))
