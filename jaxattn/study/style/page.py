"""What all figures share: the style, the line of counts, and the files they are saved to."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import matplotlib as mpl
import xarray
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from jaxattn.study.claims import EXCLUDED, counts_of, doubts

# How runs and norms are written and drawn, in every figure alike.
RUNS = {"W": "$W$", "KQ": r"$KQ^\top$"}
NORMS = {"frobenius": "Frobenius SVM", "nuclear": "nuclear SVM"}
COLOURS = {"frobenius": "#0072B2", "nuclear": "#D55E00", "W": "#0072B2", "KQ": "#D55E00"}
DASHES = {"frobenius": "-", "nuclear": "--", "W": "-", "KQ": "--"}


@contextmanager
def style() -> Iterator[None]:
    """Draw in the project's style inside this context; Matplotlib's settings are as before after it."""
    with as_file(files("jaxattn.study.style") / "jaxattn.mplstyle") as path, mpl.rc_context(fname=path):
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches, without a window."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def band(axes: Axes, x: ArrayLike, mean: ArrayLike, low: ArrayLike, high: ArrayLike, **look: Any) -> None:
    """Draw a curve and, in its colour, the band around it; `look` is the curve's, its colour among it."""
    axes.plot(x, mean, **look)
    axes.fill_between(x, low, high, color=look["color"], alpha=0.2, linewidth=0)


def add_counts(
    figure: Figure, summaries: Mapping[str, xarray.Dataset], remark: str = "", counted: str = "seeds"
) -> None:
    """Write under a figure how many seeds, or what is `counted`, each run attempted, kept, and left out by reason."""
    lines = []
    for run, counts in counts_of(summaries).items():
        left_out = ", ".join(f"{counts[reason]} {reason}" for reason in EXCLUDED if reason in counts)
        kept = f"{counts['kept']} of {counts['attempted']} {counted} kept{doubts(counts)}"
        lines.append(f"{RUNS.get(run, run)}: {kept} ({left_out})")
    # As many runs a line as the figure has room for.
    room, text = 17 * figure.get_figwidth(), lines[0]
    for line in lines[1:]:
        fits = len(text.rpartition("\n")[2]) + len(line) < room
        text += ("   " if fits else "\n") + line
    # A line too long for a narrow figure would be cut off at both ends.
    text = "\n".join(wrapped for line in text.splitlines() for wrapped in textwrap.wrap(line, round(1.4 * room)))
    figure.supxlabel(text + (f"\n{remark}" if remark else ""), fontsize=7, color="#444444")


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and PDF and return the paths; neither file holds a date.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.pdf"]
    # Laid out once for both files; with an engine left in place Matplotlib would draw each of them twice.
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)
    figure.savefig(paths[0], metadata={"Software": None})
    figure.savefig(paths[1], metadata={"CreationDate": None, "Producer": None, "Creator": None})
    return paths
