"""The tokens of the selectors, their margin ratios, and how much nearer heads and positions are."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import bias
from jaxattn.experiments.bias.selector.claims import NEARER, SAME
from jaxattn.experiments.bias.selector.estimates import ENTROPY, GUMBEL, HEADS, ONE_HOT, PLAIN, ROTARY
from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.estimates import number
from jaxattn.study.style import page, palette

# The entropy penalties from light to dark as their weights grow.
_LIGHT, _MIDDLE, _DARK, _ = palette.ramp(4)
_LOOKS: dict[str, dict[str, Any]] = {
    "entropy 0.01": {"color": _LIGHT, "linestyle": (0, (1, 1)), "label": "entropy 0.01"},
    "entropy 0.1": {"color": _MIDDLE, "linestyle": (0, (3, 1)), "label": "entropy 0.1"},
    "entropy 1": {"color": _DARK, "linestyle": (0, (6, 2)), "label": "entropy 1"},
    PLAIN: {"color": palette.INK, "linestyle": "-", "label": "plain, $W = 0$"},
    "Gumbel": {"color": palette.AMBER, "linestyle": (0, (4, 1, 1, 1)), "label": "Gumbel"},
}
_GAIN: dict[str, Any] = {"color": palette.TEAL, "markersize": 4, "capsize": 2}
# In (c) each run in comparison with another: whose gain, the name of the estimate, and labels.
_GAINS = (
    (ROTARY, "gain", "rotary\nagainst plain"),
    (ROTARY, "beyond", "rotary against\nrandom rotations"),
    (ONE_HOT, "gain", "added positions\nagainst plain"),
    (ONE_HOT, "beyond", "added positions against\nrandom vectors"),
    (HEADS, "gain", "with a second head\nagainst alone"),
)


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw shares of inputs with the token of plain training, margin ratios by steps, and gains over other runs."""
    selectors = {name: summaries[name] for name in (*ENTROPY, *GUMBEL) if name in summaries}
    verdicts = {name: judgements[f"selector:{name}"].verdict for name in ("heads", "positions", "rotary")}
    with page.style():
        figure = page.full(3.8)
        figure.suptitle(
            "Pushed towards the SVM? By several heads: {heads}; by added positions: {positions}; by rotary ones: "
            "{rotary}".format(**verdicts)
        )
        left, middle, right = figure.subplots(1, 3, width_ratios=(0.9, 1, 0.8))
        _draw_shares(left, selectors)
        _draw_ratios(middle, (PLAIN, *selectors), summaries)
        _draw_gains(right, summaries)
        page.add_counts(
            figure,
            summaries,
            "Means over the seeds, (b) of the logarithm, with 95 % intervals. Grey: (a) the share asked for, "
            f"{SAME:g}; (b) a margin ratio of {bias.CLOSE}; (c) a tenth nearer, which is asked for in each comparison. "
            "(c) shows the mean of log10(1 - ratio) over the snapshots from step 100, minus that of the run.",
        )
    return figure


def _draw_shares(axes: Axes, selectors: Datasets) -> None:
    for k, (name, run) in enumerate(selectors.items()):
        mean, low, high = number(run, "same")
        bars = [[max(mean - low, 0)], [max(high - mean, 0)]]
        axes.errorbar([k], [mean], bars, fmt="o", color=_LOOKS[name]["color"], markersize=4, capsize=2)
        axes.annotate(f"{mean:.0%}", (k, mean), (6, -3), textcoords="offset points", fontsize=page.SMALLEST)
    axes.axhline(SAME, color=palette.GUIDE, linewidth=0.8)
    axes.set_xticks(range(len(selectors)), [name.removeprefix("entropy ") for name in selectors], fontsize=7)
    axes.set_xlabel("weight of the penalty")
    axes.set(xlim=(-0.4, len(selectors) - 0.1), ylim=(0, 1.05))
    axes.set_ylabel("inputs with the same token")
    axes.set_title("(a) selectors: tokens\nof plain training?")


def _draw_ratios(axes: Axes, names: tuple[str, ...], summaries: Datasets) -> None:
    for name in names:
        if name in summaries:
            run = summaries[name]
            off = (10 ** run[part].values for part in ("off", "off_low", "off_high"))
            page.band(axes, run["snapshot"].values, *off, linewidth=1.2, **_LOOKS[name])
    axes.axhline(1 - bias.CLOSE, color=palette.GUIDE, linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="step", ylabel="1 - Frobenius margin ratio")
    axes.set_title("(b) selectors: distance\nfrom their own SVM")
    axes.legend(loc="lower left", handlelength=2.6)


def _draw_gains(axes: Axes, summaries: Datasets) -> None:
    shown = [one for one in _GAINS if one[0] in summaries and one[1] in summaries[one[0]]]
    for k, (name, part, _) in enumerate(shown):
        mean, low, high = number(summaries[name], part)
        axes.errorbar([mean], [-k], xerr=[[max(mean - low, 0)], [max(high - mean, 0)]], fmt="o", **_GAIN)
    axes.set_yticks([-k for k in range(len(shown))], [label for *_, label in shown], fontsize=page.SMALLEST)
    axes.axvline(NEARER, color=palette.GUIDE, linewidth=0.8)
    axes.set(xlabel="decades nearer to 1", ylim=(0.5 - max(len(shown), 1), 0.5))
    axes.set_title("(c) heads, positions:\nnearer to the SVM?")
