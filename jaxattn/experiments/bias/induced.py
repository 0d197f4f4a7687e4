"""Does steepest descent on (K, Q) obey the norm that the norm of its factors induces on K Q^T?"""

from __future__ import annotations

import xarray
from matplotlib.figure import Figure

from jaxattn import svm
from jaxattn.bias.limits import window
from jaxattn.experiments.bias import ratios
from jaxattn.experiments.bias.predictions import Prediction, caption, claims_of, finding
from jaxattn.study.claims import Datasets, Experiment, Judgements
from jaxattn.study.claims.claim import Setting, Source
from jaxattn.study.style import cells, page

# In the order of the columns: those of the atlas without l_1, and two more. The norm of sign matrices, which
# takes a second for each matrix, is compared only where largest entries are trained.
NORMS = ("frobenius", "nuclear", "spectral", "max", "gamma2", "sign")
_SOURCE = Source("jaxattn", "the norm induced on W = K Q^T, min max(||K||, ||Q||)^2", Setting.OURS)
# The name of a rule in claims and in runs, the norm in which it is steepest descent, and the one that this induces.
_RULES = (
    ("gd", "Frobenius", "in the Frobenius norm (normalized gradient descent)", "nuclear"),
    ("polar", "spectral", "in the spectral norm (polar factors)", "spectral"),
    ("rows", "longest row", "in the norm of the longest row", "gamma2"),
    ("sign", "largest entry", "in the largest entry (sign descent)", "sign"),
)
_PREDICTIONS = tuple(
    Prediction(
        f"{name}-{m}",
        f"{run}, m = {m}",
        norm,
        _SOURCE,
        f"Steepest descent on K and Q {subject}, with m = {m} columns and steps that fall like k^-1/2, obeys the "
        f"Att-SVM with the norm {norm}, which it induces on K Q^T for large m; a conjecture.",
    )
    for name, run, subject, norm in _RULES
    for m in (10, 40)
)


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Return what `ratios.compared` does for the last snapshots of a `Training` of factors."""
    names = NORMS if record.attrs.get("optimizer.norm") == "max" else NORMS[:-1]
    return ratios.compared(record.isel(snapshot=window(record["snapshot"].values)), solver, names)


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a table: a row for each run, a column for each norm."""
    rows = [(each, summaries[each.run]) for each in _PREDICTIONS if each.run in summaries]
    steps = sorted({f"{int(run['snapshot'][-1]):,}" for run in summaries.values()})
    with page.style():
        figure = page.full(1.6 + 0.21 * len(rows))
        axes = figure.subplots()
        cells.table(axes, [cells.Row(run.reindex(norm=[*NORMS]), each.norm) for each, run in rows], NORMS)
        labels = [each.run.replace(", m", " of $K$ and of $Q$, $m") + "$" for each, _ in rows]
        axes.set_yticks(range(len(rows)), labels, fontsize=cells.SIZE)
        axes.set_title(finding(judgements.values()))
        falling = f"{' or '.join(steps)} steps that fall like $k^{{-1/2}}$"
        page.add_counts(figure, summaries, caption(falling, summaries.values(), "the norm induced on $KQ^\\top$"))
    return figure


EXPERIMENT = Experiment(measure, claims=claims_of("atlas-induced", _PREDICTIONS), estimate=ratios.estimate, draw=draw)
