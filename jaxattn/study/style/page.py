"""What all figures share: their two widths, the style, the line of counts, and the files they are saved to."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

from jaxattn.study.claims import EXCLUDED, counts_of, doubts
from jaxattn.study.mistakes import UsageError
from jaxattn.study.style import palette
from jaxattn.study.style.fitting import fit

# In inches: a column and the width of a page, at which nothing is printed smaller than SMALLEST, in points.
COLUMN, PAGE, SMALLEST = 3.3, 6.75, 7.0
# How runs and norms are written, in every figure alike.
RUNS = {"W": "$W$", "KQ": r"$KQ^\top$"}
NORMS = {"frobenius": "Frobenius SVM", "nuclear": "nuclear SVM"}

# More different counts than these are added up, more runs with equal ones are counted instead of named.
_GROUPS, _NAMES = 4, 3
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
    """Apply a user's style on top of the project's inside this context; UsageError if it cannot be read."""
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
    return full(height, COLUMN)


def full(height: float, width: float = PAGE) -> Figure:
    """Return an empty figure as wide as a page, 6.75 inches, and of this height in inches; no window opens."""
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
    """Draw a key that explains colours and dashes apart, each by what they mean; the place is that of a legend."""
    lines = [Line2D([], [], color=colour, label=label) for label, colour in colours.items()]
    lines += [Line2D([], [], color=palette.GUIDE, linestyle=dash, label=label) for label, dash in dashes.items()]
    axes.legend(handles=lines, **place)


def power(value: float) -> str:
    r"""Return a number with one digit, a small one with its power of ten as a formula."""
    digit, _, exponent = f"{value:.0e}".partition("e")
    return f"{value:.1g}" if abs(value) >= 1e-3 or not value else rf"${digit}\times10^{{{int(exponent)}}}$"


def at_most(value: float) -> str:
    r"""Return a size with two digits, rounded up, so that "at most" is true of it; a small one as a formula."""
    # Rounding makes differences of 0 negative.
    if value <= 0:
        return "0"
    exponent = math.floor(math.log10(value)) - 1
    # The quotient of a number of two digits may be rounded upwards.
    bound = math.ceil(value / 10.0**exponent * (1 - 1e-12)) * 10.0**exponent
    digits, _, power_of_ten = f"{bound:.1e}".partition("e")
    return f"{bound:.2g}" if bound >= 1e-3 else rf"${digits}\times10^{{{int(power_of_ten)}}}$"


def span(values: Iterable[float], form: str = "g", unit: str = "") -> str:
    """Return "least to largest" of some numbers, once if written alike: '0.99 to 1.00', '16'; "-" if there are none."""
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
    """Write under a figure how many seeds, or what is `counted`, the runs kept and excluded, then a remark."""
    counts = told({RUNS.get(run, run): one for run, one in summaries.items()}, counted)
    note(figure, f"{counts}\n{remark}" if remark else counts)


def told(summaries: Mapping[str, xarray.Dataset], counted: str) -> str:
    """Return in sentences how many of what is counted (a plural) the runs kept, and excluded for which reason."""
    every = counts_of(summaries)
    groups: dict[str, list[str]] = {}
    for run, counts in every.items():
        groups.setdefault(_kept(counts, counted), []).append(run)
    if len(groups) > _GROUPS:
        sums = sum(map(Counter, every.values()), Counter[str]())
        return f"{len(every)} runs together: {_kept(sums, counted)}."
    if len(groups) == 1:
        ((kept, runs),) = groups.items()
        number = f"{len(runs)} runs{' x' if 'all kept' in kept else ', each'} "
        return f"{number if len(runs) > 1 else ''}{kept}."
    return " ".join(f"{_named(runs)}: {'each ' * (len(runs) > 1)}{kept}." for kept, runs in groups.items())


def _kept(counts: Mapping[str, int], counted: str) -> str:
    excluded = ", ".join(f"{counts[reason]:,} {reason}" for reason in EXCLUDED if counts.get(reason))
    if not excluded:
        return f"{counts['attempted']:,} {counted}, all kept{doubts(counts)}"
    return f"{counts['kept']:,} of {counts['attempted']:,} {counted} kept{doubts(counts)} (excluded: {excluded})"


def _named(runs: Sequence[str]) -> str:
    return f"{len(runs)} runs" if len(runs) > _NAMES else " and ".join(runs)


def second(name: str) -> str:
    """Return the name of an experiment's second figure."""
    return f"{name}-2"


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and PDF, at exactly its own size, and return the paths; neither file holds a date."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.pdf"]
    # Resolution and fonts are settings of saving, not of drawing.
    with style():
        fit(figure)
        figure.savefig(paths[0], metadata={"Software": None})
        figure.savefig(paths[1], metadata={"CreationDate": None, "Producer": None, "Creator": None})
    return paths
