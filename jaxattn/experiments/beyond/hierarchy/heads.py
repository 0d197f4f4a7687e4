"""One decoder's heads: margin ratios between those of untrained matrices, and sequences with their support vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.beyond.hierarchy import claims, tasks
from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette
from jaxattn.study.style.view import rounded

# The runs whose first heads are drawn, and the runs of the site's picture.
_DRAWN = {claims.ALONE: "only K and Q are trained", claims.TEXT: f"everything is trained, text, {claims.FIRST}"}
_VIEWED = (claims.ALONE, "inputs", "Adam", claims.TEXT)
# What of the head's ratios is drawn: far below 0 all rows are violated.
_LEAST = -0.5
# The sequences of the site's picture.
_SEQUENCES = 4


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the ratios of one head of two runs against the steps (a, b), and a sequence at the end (c, d)."""
    hope, frozen = (judgements[f"hierarchy:{name}"].verdict for name in ("hope", "frozen"))
    with page.style():
        figure = page.full(5.4)
        names = [name for name in _DRAWN if name in summaries]
        panels = figure.subplots(2, len(names), squeeze=False)
        for name, letters, (course, sequence) in zip(names, ("ac", "bd"), panels.T, strict=False):
            of_head = summaries[name].isel(head=0)
            _course(course, of_head)
            course.set_title(f"({letters[0]}) {_DRAWN[name]}")
            _sequence(sequence, of_head)
            sequence.set_title(f"({letters[1]}) one of its sequences, step {int(of_head['snapshot'][-1]):,}")
        # Where all of it lies near zero.
        panels[0, -1].legend(loc="center", bbox_to_anchor=(0.5, 0.65))
        panels[1, 0].legend(loc="upper right")
        figure.suptitle(f"Heads of one decoder. With fixed inputs they obey: {frozen}. A hierarchy of SVMs: {hope}")
        page.note(
            figure,
            "First kept seed, nuclear norm. Shading: attention. A row of the max-margin problem asks that a query's "
            "selected token leads another; where its multiplier is positive, this token is a support vector. Ratios "
            f"below {_LEAST} are cut off.",
        )
    return figure


def _course(axes: Axes, head: xarray.Dataset) -> None:
    steps, null = head["snapshot"].values, head["null"]
    low, high = (null.sel(kind=kind).values for kind in ("low", "high"))
    axes.fill_between(steps, low, high, color=palette.GUIDE, alpha=0.5, linewidth=0, label="untrained, 5 to 95 %")
    axes.plot(steps, head["ratio_of_one"].values, color=palette.NUCLEAR, marker=".", label="trained head")
    axes.plot(steps, null.sel(kind="mean").values, color=palette.TEAL, linestyle="--", label="mean of the rows")
    first = float(head["first_of_one"])
    axes.axhline(first, color=palette.INK, linestyle=":", linewidth=0.9, label="head at its first final selections")
    axes.axhline(1.0, color=palette.GUIDE, linewidth=0.7)
    axes.annotate("Att-SVM", (steps[0], 1.0), (0, 2), textcoords="offset points", fontsize=page.SMALLEST)
    axes.set(xscale="log", xlabel="step", ylabel="nuclear margin ratio", ylim=(_LEAST, 1.15))


def _sequence(axes: Axes, head: xarray.Dataset) -> None:
    """Draw what each query (a row) attends to (columns), from the first to the last letter."""
    attention, support = (head[name].isel(snapshot=-1, sequence=0).values for name in ("attention", "support"))
    selected, T = head["selected"].isel(sequence=0).values, attention.shape[0]
    axes.imshow(np.ma.masked_array(attention, ~np.tri(T, dtype=bool)), cmap="Oranges", vmin=0, vmax=1.6, aspect="auto")
    for marked, look in (
        (selected, {"marker": "s", "markersize": 13, "color": palette.INK, "label": "selected"}),
        (support, {"marker": "o", "markersize": 6, "color": palette.WINE, "label": "support vector"}),
    ):
        queries, tokens = np.nonzero(marked)
        axes.plot(tokens, queries, linestyle="none", markerfacecolor="none", **look)
    letters = spelled(head)[0]
    axes.set_xticks(range(T), letters)
    axes.set_yticks(range(T), letters)
    axes.set(xlabel="token that is read", ylabel="query")
    axes.grid(visible=False)


def spelled(run: xarray.Dataset) -> list[list[str]]:
    """Return the sequences as they are written: letters for the text, numbers from 1 for other tasks."""
    if "data.of.V" not in run.attrs:
        return (run["tokens"] + 1).astype(str).values.tolist()
    letters = tasks.letters(run.attrs["data.of.V"])
    return [[letters[token].replace(" ", "␣") for token in sequence] for sequence in run["tokens"].values]


def view(runs: Datasets) -> dict[str, Any]:
    """Return for some heads, along the snapshots, what the site's picture shows.

    Returns:
        `heads`, each with its `name`; `steps`; `ratio`, the head's margin ratio, and those of untrained matrices
        (`low`, `high`, `mean`) and of the head when it `first` selected its final tokens; the number of `rows`, and of
        those `carrying` the optimum; and for some `sequences` of letters the `attention` by query and visible token,
        and the tokens that are `selected` and of `support`.
    """
    shown = [(name, k) for name in _VIEWED if name in runs for k in range(runs[name].sizes["head"])]
    return {"heads": [_viewed(name, runs[name], k) for name, k in shown]}


def _viewed(name: str, run: xarray.Dataset, k: int) -> dict[str, Any]:
    own = run.isel(head=k)
    one = own.sel(norm="nuclear").isel(seed=0)
    shown = own.isel(sequence=slice(_SEQUENCES))
    # The query at position u has u rows if it counts.
    rows = int((own["selected"].any("token").values * np.arange(own.sizes["query"])).sum())
    return {
        "name": f"{name}, {own['head'].item()}" if run.sizes["head"] > 1 else name,
        "steps": run["snapshot"].values.tolist(),
        "ratio": rounded(one["ratio"].values, 3),
        **{kind: rounded(own["null"].sel(kind=kind).values, 3) for kind in own["kind"].values},
        "first": rounded(one["first"].values, 3),
        "rows": rows,
        "carrying": own["support"].values.sum(axis=(1, 2, 3)).tolist(),
        "sequences": spelled(run)[:_SEQUENCES],
        "attention": [
            [[rounded(seen[: u + 1], 2) for u, seen in enumerate(sequence)] for sequence in step]
            for step in np.round(shown["attention"].values, 3)
        ],
        "selected": _tokens(shown["selected"].values),
        "support": [_tokens(step) for step in shown["support"].values],
    }


def _tokens(marked: np.ndarray) -> list[list[list[int]]]:
    return [[np.flatnonzero(query).tolist() for query in sequence] for sequence in marked]
