"""The sequence figure: direction errors and norms, with attention to the whole sequence and with causal attention."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.sequences.positions.claims import FALLING, PREFIXES
from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette
from jaxattn.study.style.curves import direction_error

_DASHES = {"sequence": "-", "causal": "--"}
_WRITTEN = {"sequence": "whole sequence", "causal": "causal"}
_RULES = {"KQ": ("published", palette.GUIDE), FALLING: ("falling steps", palette.TEAL)}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw four panels: training W, (K, Q) as published, (K, Q) with falling steps, and the norms of K Q^T."""
    with page.style():
        figure = page.full(5.2)
        body = page.body(figure)
        ((of_W, of_KQ), (falling, norm)) = body.subplots(2, 2)
        _errors(of_W, summaries, "W", page.NORMS)
        _errors(of_KQ, summaries, "KQ", page.NORMS)
        _errors(falling, summaries, FALLING, {"nuclear": page.NORMS["nuclear"]})
        _norms(norm, summaries)
        grows = ", ".join(
            f"$k^{{{float(summaries[prefix + 'KQ']['growth']):z.2f}}}$"
            for prefix in PREFIXES.values()
            if prefix + "KQ" in summaries
        )
        of_W.set_title(f"(a) training $W$: {_verdicts(judgements, 'W')}")
        of_KQ.set_title(f"(b) training $(K, Q)$ as published, nuclear: {_verdicts(judgements, 'KQ')}")
        falling.set_title(f"(c) $(K, Q)$, no penalty, falling steps: {_verdicts(judgements, 'limit-KQ')}")
        norm.set_title(f"(d) the published norm goes like {grows or '-'}: growth {_verdicts(judgements, 'norm-KQ')}")
        for axes in (of_W, of_KQ, falling):
            axes.set_ylabel("direction error, 1 - cos")
        of_W.set_ylim(*of_KQ.get_ylim())
        colours = {label: palette.COLOURS[norm] for norm, label in page.NORMS.items()}
        dashes = {_WRITTEN[attention]: dash for attention, dash in _DASHES.items()}
        page.key(body, colours, dashes, loc="outside upper center", ncols=4, title="mean, 95 % interval")
        figure.suptitle(
            f"With a query at every position, $W$ converges to the Frobenius SVM: {_verdicts(judgements, 'W')}; "
            f"$(K, Q)$, without a penalty, to the nuclear SVM: {_verdicts(judgements, 'limit-KQ')}"
        )
        page.add_counts(figure, summaries, "Means over seeds, (d) geometric; bands: 95 % intervals of the mean.")
    return figure


def _verdicts(judgements: Judgements, name: str) -> str:
    """Return the verdicts with attention to the whole sequence and with causal attention, once if they are the same."""
    found = dict.fromkeys(str(judgements[f"sequence:{prefix}{name}"].verdict) for prefix in ("", "causal-"))
    return " / ".join(found)


def _errors(axes: Axes, summaries: Datasets, name: str, norms: dict[str, str]) -> None:
    """Draw the direction errors of a run with each attention, from the solutions in some norms."""
    for attention, prefix in PREFIXES.items():
        # At size=small there are only some runs.
        if prefix + name in summaries:
            for norm in norms:
                direction_error(axes, summaries[prefix + name], norm, linestyle=_DASHES[attention])
    axes.set(xscale="log", yscale="log", xlabel="step")


def _norms(axes: Axes, summaries: Datasets) -> None:
    for name, (label, colour) in _RULES.items():
        for attention, prefix in PREFIXES.items():
            if prefix + name in summaries:
                run = summaries[prefix + name]
                curve = (run[part].values for part in ("snapshot", "length", "length_low", "length_high"))
                own = label if attention == "sequence" else None
                page.band(axes, *curve, color=colour, linestyle=_DASHES[attention], label=own)
    axes.set(xscale="log", yscale="log", xlabel="step", ylabel=r"$\|KQ^\top Z\|_F$")
    axes.legend(loc="upper left")
