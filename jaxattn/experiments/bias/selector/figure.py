"""The figure of the selector: which tokens it selects, and how far its margins are from the largest."""

from __future__ import annotations

from collections.abc import Mapping

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import bias
from jaxattn.experiments.bias.selector.claims import NEARER, SAME
from jaxattn.experiments.bias.selector.measure import (
    GUMBEL,
    HEADS,
    ONE_HOT,
    PLAIN,
    RANDOM,
    ROTARY,
    entropy,
    weights_among,
)
from jaxattn.study.claims import Outcome, above, number
from jaxattn.study.style import page, palette

# Of the runs without a weight: colour, dashes, and what the figure calls them.
_LOOKS = {
    PLAIN: (palette.INK, "-", "plain, $W = 0$"),
    GUMBEL: (palette.AMBER, (0, (4, 1, 1, 1)), "Gumbel"),
    RANDOM: (palette.GUIDE, "--", "plain, random start"),
    HEADS: (palette.WINE, ":", "two heads, random"),
    ROTARY: (palette.TEAL, "-.", "rotary, $W = 0$"),
    ONE_HOT: (palette.ROSE, (0, (5, 1)), "added positions, $W = 0$"),
}
# Of the entropy penalties, from light to dark as their weights grow.
_RAMP = palette.ramp(4)
_DASHES = ((0, (1, 1)), (0, (3, 1)), (0, (6, 2)), "-")


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the shares of inputs with the token of plain training, and the margin ratios against the steps.

    Args:
        summaries: of `claims.summarize`.
    """
    selectors = [run for run in (*map(entropy, weights_among(summaries)), GUMBEL) if run in summaries]
    with page.style():
        figure = page.full(3.5)
        panels = figure.subplots(1, 3, width_ratios=(0.8, 1, 1))
        _shares(panels[0], selectors, summaries)
        named = [run for run in selectors if summaries[run].attrs["norms"] == "frobenius"]
        _ratios(panels[1], (PLAIN, *selectors), summaries)
        panels[1].set_title(f"(b) {len(named)} of {len(selectors)} obey the\nFrobenius SVM, by bias.rank")
        _ratios(panels[2], (PLAIN, ROTARY, ONE_HOT, RANDOM, HEADS), summaries)
        panels[2].set_title(f"(c) {_of_gains(summaries)}")
        lowest = min(axes.get_ylim()[0] for axes in panels[1:])
        for axes in panels[1:]:
            axes.set_ylim(lowest, 3)
        panels[1].set_ylabel("1 - Frobenius margin ratio")
        remark = (
            "Means over the seeds, (b) and (c) of the logarithm, with 95 % intervals. Grey: (a) the share asked for, "
            f"{SAME:g}; (b), (c) a margin ratio of {bias.CLOSE}. Each ratio is of the run's own tokens and keys; of "
            "two heads it is the mean of each one's own."
        )
        page.add_counts(figure, summaries, remark)
    return figure


def _look(run: str, summaries: Mapping[str, xarray.Dataset]) -> dict:
    if run in _LOOKS:
        colour, dashes, label = _LOOKS[run]
        return {"color": colour, "linestyle": dashes, "label": label}
    place = [entropy(weight) for weight in weights_among(summaries)].index(run) % len(_RAMP)
    return {"color": _RAMP[place], "linestyle": _DASHES[place], "label": run}


def _shares(axes: Axes, selectors: list[str], summaries: Mapping[str, xarray.Dataset]) -> None:
    """Draw in which share of the inputs each selector selects the token of plain training."""
    drawn = [run for run in selectors if "same" in summaries[run]]
    for k, run in enumerate(drawn):
        one = summaries[run]
        mean, low, high = (float(one[name]) for name in ("same", "same_low", "same_high"))
        colour = _look(run, summaries)["color"]
        axes.errorbar(
            [k],
            [mean],
            yerr=[[max(mean - low, 0)], [max(high - mean, 0)]],
            fmt="o",
            color=colour,
            markersize=4,
            capsize=2,
        )
        axes.annotate(f"{mean:.0%}", (k, low), (0, -10), textcoords="offset points", ha="center", fontsize=7)
    axes.axhline(SAME, color=palette.GUIDE, linewidth=0.8)
    axes.set_xticks(range(len(drawn)), [run.removeprefix("entropy ") for run in drawn], fontsize=7)
    axes.set_xlabel("weight of the entropy penalty")
    axes.set(xlim=(-0.6, len(drawn) - 0.4), ylim=(0, 1.05))
    axes.set_ylabel("inputs with the token of plain training")
    same = [run for run in drawn if float(summaries[run]["same_low"]) >= SAME]
    said = f"{len(same)} of {len(drawn)} selectors select\nthe tokens of plain training"
    axes.set_title(f"(a) {said}")


def _ratios(axes: Axes, runs: tuple[str, ...], summaries: Mapping[str, xarray.Dataset]) -> None:
    """Draw how far the margin ratios are from 1."""
    for run in runs:
        if run not in summaries:
            continue
        one = summaries[run]
        off, low, high = (10 ** one[name].values for name in ("off", "off_low", "off_high"))
        page.band(axes, one["snapshot"].values, off, low, high, linewidth=1.2, **_look(run, summaries))
    axes.axhline(1 - bias.CLOSE, color=palette.GUIDE, linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="step")
    axes.legend(loc="lower left", handlelength=2.6)


def _of_gains(summaries: Mapping[str, xarray.Dataset]) -> str:
    """Say of heads and of positions whether they come closer to 1 at equal steps."""
    said: dict[Outcome, list[str]] = {outcome: [] for outcome in (Outcome.MET, Outcome.BROKEN, Outcome.UNCLEAR)}
    for run, name in ((HEADS, "two heads"), (ROTARY, "rotary"), (ONE_HOT, "added positions")):
        if run in summaries and "gain" in summaries[run]:
            said[above(name, number(summaries[run], "gain"), NEARER).outcome].append(name)
    titles = {Outcome.MET: "nearer", Outcome.BROKEN: "not nearer", Outcome.UNCLEAR: "not decided"}
    return "\n".join(f"{titles[outcome]}: {', '.join(names)}" for outcome, names in said.items() if names)
