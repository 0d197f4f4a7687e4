"""What the figures of prompts share: the line of counts."""

from __future__ import annotations

from collections.abc import Mapping

import xarray
from matplotlib.figure import Figure

from jaxattn.study.style import page


def add_counts(figure: Figure, summaries: Mapping[str, xarray.Dataset], remark: str, counted: str = "seeds") -> None:
    """Write under a figure how many seeds were kept: in one line where all runs kept all of equally many."""
    attempted = {int(one.attrs["attempted"]) for one in summaries.values()}
    if len(attempted) == 1 and all(one.attrs["kept"] == one.attrs["attempted"] for one in summaries.values()):
        runs = f"{len(summaries)} runs of " if len(summaries) > 1 else ""
        figure.supxlabel(f"{runs}{attempted.pop()} {counted}, all kept. {remark}", fontsize=7, color="#444444")
    else:
        page.add_counts(figure, summaries, remark, counted)
