"""The low-rank table: by norm and solver, how far the solutions are from rank n and from the span of the queries."""

from __future__ import annotations

from collections.abc import Mapping

import xarray

from jaxattn.experiments.max_margin.low_rank_lemma.claims import ACCURACY, ROUNDING
from jaxattn.study.style import page
from jaxattn.study.style.counting import told
from jaxattn.study.style.table import Table


def table(summaries: Mapping[str, xarray.Dataset]) -> Table:
    """Return one row per norm and solver.

    Args:
        summaries: of this package's solvers and of external ones, as `claims.summarize` returns them.
    """
    first = next(iter(summaries.values()))
    n = first.attrs["n"]
    heads = (
        *("norm", "solver", "$d$", "problems kept"),
        rf"largest $\sigma_{{{n + 1}}}/\sigma_1$",
        r"largest $\lVert W(I-P_Z)\rVert_F/\lVert W\rVert_F$",
        "largest certified gap",
        "threshold of both ratios",
    )
    rows = tuple(_row(one, norm) for norm in map(str, first["norm"].values) for one in summaries.values())
    note = (
        r"$\sigma_k$ is the $k$-th singular value of a solution $W$, and $P_Z$ projects on the span of the queries. "
        f"With $n = {n}$ inputs, the lemma makes both ratios 0. jaxattn builds $W$ from the queries; its threshold "
        "allows rounding error. An external solver does not use the span of the queries; its threshold allows its "
        "accuracy. The certified gap is relative. A problem is kept if its solutions in both norms are certified "
        "optimal. "
        f"{told(summaries, 'problems')}"
    )
    return Table(heads, rows, note)


def _row(one: xarray.Dataset, norm: str) -> tuple[str, ...]:
    chosen = one.sel(norm=norm)
    largest = (
        page.power(float(chosen[name].max())) if one.sizes["seed"] else "" for name in ("beyond", "outside", "gap")
    )
    return (
        page.NORMS[norm],
        one.attrs["solver"] or "jaxattn",
        str(int(one["d"])),
        f"{one.attrs['kept']} of {one.attrs['attempted']}",
        *largest,
        page.power(ACCURACY if one.attrs["solver"] else ROUNDING),
    )
