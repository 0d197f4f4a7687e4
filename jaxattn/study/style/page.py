"""What all figures share: their two widths, the style, the line of counts, and the files they are saved to."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.resources import as_file, files
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.style
import numpy as np
import xarray
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, FigureBase, SubFigure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from jaxattn.study.mistakes import UsageError
from jaxattn.study.style import palette
from jaxattn.study.style.counting import told
from jaxattn.study.style.fitting import fit

# In inches: a column and the width of a page, at which nothing is printed smaller than SMALLEST, in points.
COLUMN, PAGE, SMALLEST = 3.3, 6.75, 7.0
# How runs and norms are written, in every figure alike.
RUNS = {"W": "$W$", "KQ": r"$KQ^\top$"}
NORMS = {"frobenius": "Frobenius SVM", "nuclear": "nuclear SVM"}

# The user's style, a file or a name; None: the project's alone.
_OWN: ContextVar[str | None] = ContextVar("own", default=None)


@contextmanager
def style() -> Iterator[None]:
    """Draw in the project's style inside this context; Matplotlib's settings are as before after it."""
    with as_file(files("jaxattn.study.style") / "jaxattn.mplstyle") as path, mpl.rc_context(fname=path):
        mpl.rcParams["axes.prop_cycle"] = cycler(color=palette.OTHERS)
        if own := _OWN.get():
            matplotlib.style.use(own)
        yield


@contextmanager
def with_own(own: str | None) -> Iterator[None]:
    """Apply a user's style on top of the project's inside this context.

    Raises:
        UsageError: there is no such style, or it cannot be read.
    """
    before = _OWN.set(own)
    # Matplotlib warns of lines that it cannot read, and goes on without them.
    log, warnings = logging.getLogger("matplotlib"), BufferingHandler(capacity=100)
    log.addHandler(warnings)
    try:
        with style():
            wrong = next((": " + record.getMessage() for record in warnings.buffer), "")
    except (OSError, UnicodeDecodeError):
        wrong = "; a name is one of matplotlib.style.available"
    finally:
        log.removeHandler(warnings)
    if wrong:
        _OWN.reset(before)
        raise UsageError(f"style: expected a Matplotlib style, a file or a name, found {own}{wrong}")
    try:
        yield
    finally:
        _OWN.reset(before)


def column(height: float) -> Figure:
    """Return an empty figure as wide as a column, 3.3 inches, and of this height in inches; no window opens."""
    return _figure(COLUMN, height)


def full(height: float) -> Figure:
    """Return an empty figure as wide as a page, 6.75 inches, and of this height in inches; no window opens."""
    return _figure(PAGE, height)


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def body(figure: Figure) -> SubFigure:
    """Return the part of a figure below its title, for panels with a legend above them: the two would overlap."""
    return figure.add_subfigure(figure.add_gridspec(1, 1)[0])


def band(axes: Axes, x: ArrayLike, mean: ArrayLike, low: ArrayLike, high: ArrayLike, **look: Any) -> None:
    """Draw a curve and, in its colour, the band around it; `look` is the curve's, its colour among it."""
    axes.plot(x, mean, **look)
    axes.fill_between(x, low, high, color=look["color"], alpha=0.2, linewidth=0)


def course(axes: Axes, run: xarray.Dataset, name: str, x: str = "snapshot", **look: Any) -> None:
    """Draw an estimate of a run over `x`, an axis or another estimate, with the band of its interval."""
    band(axes, run[x].values, *(run[f"{name}{end}"].values for end in ("", "_low", "_high")), **look)


def bars(axes: Axes, x: ArrayLike, mean: ArrayLike, low: ArrayLike, high: ArrayLike, **look: Any) -> None:
    """Draw means at x with their intervals; `look` is as `Axes.errorbar` takes it."""
    mean = np.asarray(mean)
    # Rounding may move a bound over its mean.
    errors = np.clip([mean - np.asarray(low), np.asarray(high) - mean], 0, None)
    axes.errorbar(x, mean, errors, **({"markersize": 4, "elinewidth": 0.8} | look))


def key(axes: Axes | FigureBase, colours: Mapping[str, str], dashes: Mapping[str, Any], **place: Any) -> None:
    """Draw a key that explains colours and dashes apart, where every colour comes with every dash.

    Args:
        axes: where to draw: a panel, or a part of the figure that is left to the key.
        colours: by what they mean.
        dashes: by what they mean.
        place: of the key, as `Axes.legend` takes it: loc, ncols, title.
    """
    lines = [Line2D([], [], color=colour, label=label) for label, colour in colours.items()]
    lines += [Line2D([], [], color=palette.GUIDE, linestyle=dash, label=label) for label, dash in dashes.items()]
    axes.legend(handles=lines, **place)


def power(value: float) -> str:
    r"""Return a number with one digit, a small one with its power of ten as a formula.

    Example:
        >>> print(power(0.04), power(6.3e-72))
        0.04 $6\times10^{-72}$
    """
    digit, _, exponent = f"{value:.0e}".partition("e")
    return f"{value:.1g}" if abs(value) >= 1e-3 or not value else rf"${digit}\times10^{{{int(exponent)}}}$"


def at_most(value: float) -> str:
    r"""Return a size with two digits, rounded up, so that "at most" is true of it; a small one as a formula.

    Example:
        >>> print(at_most(0.00117), at_most(3.0), at_most(8.61e-5))
        0.0012 3 $8.7\times10^{-5}$
    """
    # Rounding makes differences of 0 negative.
    if value <= 0:
        return "0"
    exponent = math.floor(math.log10(value)) - 1
    # The quotient of a number of two digits may be rounded upwards.
    bound = math.ceil(value / 10.0**exponent * (1 - 1e-12)) * 10.0**exponent
    digits, _, power_of_ten = f"{bound:.1e}".partition("e")
    return f"{bound:.2g}" if bound >= 1e-3 else rf"${digits}\times10^{{{int(power_of_ten)}}}$"


def span(values: Iterable[float], form: str = "g", unit: str = "") -> str:
    """Return the smallest and the largest of some numbers in words, once if they are written alike.

    Args:
        values: the numbers; "-" is returned if there are none.
        form: how a number is written, as `format` takes it.
        unit: written behind the last number.

    Example:
        >>> span([0.991, 0.998], ".2f"), span([16, 16]), span([0.88, 1.0], ".0%")
        ('0.99 to 1.00', '16', '88% to 100%')
    """
    numbers = list(values)
    if not numbers:
        return "-"
    ends = dict.fromkeys(format(end, form) for end in (min(numbers), max(numbers)))
    return f"{' to '.join(ends)}{unit}"


def note(figure: Figure, text: str) -> None:
    """Write a text under a figure, in sentences: its lines are broken when the figure is saved."""
    figure.supxlabel(text, fontsize=SMALLEST, color=palette.NOTE)


def add_counts(
    figure: Figure, summaries: Mapping[str, xarray.Dataset], remark: str = "", counted: str = "seeds"
) -> None:
    """Write under a figure how many seeds, or what is `counted`, the runs kept and excluded, then a remark.

    Runs with equal counts stand together, and only reasons for which something is excluded are named; claims.json has
    the counts of every run.
    """
    counts = told({RUNS.get(run, run): one for run, one in summaries.items()}, counted)
    note(figure, f"{counts}\n{remark}" if remark else counts)


def second(name: str) -> str:
    """Return the name of an experiment's second figure."""
    return f"{name}-2"


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and PDF, at exactly its own size, and return the paths; neither file holds a date.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.pdf"]
    # Resolution and fonts are settings of saving, not of drawing.
    with style():
        fit(figure)
        figure.savefig(paths[0], metadata={"Software": None})
        figure.savefig(paths[1], metadata={"CreationDate": None, "Producer": None, "Creator": None})
    return paths
