"""Export the numbers behind a figure or table as CSV: what was estimated of its runs, with the intervals drawn.

usage: jaxattn export NAME [KEY=VALUE ...] --to FILE

  NAME            an experiment in the list below, whose records must be there: `jaxattn figures NAME` makes them
  size=small      the numbers of `jaxattn figures NAME size=small`
  runs=DIR        where the records are; default: `runs`
  KEY=VALUE       as given to `jaxattn figures`
  --to FILE       file to write; one that exists is refused

Each line is one number: the run, the quantity (`off`, and `off_low` and `off_high` for the ends of its interval), where
it is on each axis (`step` and `snapshot` count steps, `seed` seeds; empty for an axis that the quantity does not have),
and the value. All quantities are dimensionless. The counts of attempted, kept and excluded seeds come first.

Examples:
  jaxattn export rate --to rate.csv
  jaxattn export rate size=small --to rate-small.csv
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxattn import records
from jaxattn.study import making, runs
from jaxattn.study.claims import Datasets, counts_of
from jaxattn.study.commands.figures import chosen
from jaxattn.study.mistakes import UsageError
from jaxattn.study.tuning import tune


def main(arguments: list[str]) -> None:
    """Write the numbers and print where they are; the destination is checked first."""
    tune()
    parser = argparse.ArgumentParser(prog="jaxattn export", add_help=False)
    parser.add_argument("words", nargs="*", metavar="NAME or KEY=VALUE")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE")
    given = parser.parse_intermixed_args(arguments)
    names, overrides = chosen(given.words)
    if len(names) != 1:
        raise UsageError(f"jaxattn export: expected one experiment, such as rate, found {', '.join(names) or 'none'}")
    if given.to.exists():
        raise UsageError(f"--to: expected a file that does not exist, found {given.to}; nothing was changed")
    records.check_folder(given.to.parent)
    (name,), configs = names, making.configurations(names[0], overrides)
    recorded = sum(map(runs.is_recorded, configs))
    if recorded < len(configs):
        line = " ".join(["jaxattn figures", name, *overrides])
        raise UsageError(f"{name}: expected all records, found {recorded} of {len(configs)}; `{line}` makes them")
    with making.located(name, configs):
        summaries, judged = making.judged(name, configs, making.datasets(name, configs))
    if summaries is None:
        raise UsageError(f"{name}: expected numbers, found none: {judged[0][1].note}")
    text = as_csv(summaries)
    with given.to.open("x", newline="") as file:
        file.write(text)
    print(given.to)


def as_csv(summaries: Datasets) -> str:
    """Return the numbers that an experiment estimated of each run, as CSV: a line each, with its place on each axis."""
    lines = list(_lines(summaries))
    axes = dict.fromkeys(key for line in lines for key in line if key not in ("run", "quantity", "value"))
    text = io.StringIO()
    writer = csv.DictWriter(text, ["run", "quantity", *axes, "value"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _lines(summaries: Datasets) -> Iterator[dict[str, Any]]:
    counts = counts_of(summaries)
    for run, summary in summaries.items():
        for quantity, count in counts[run].items():
            yield {"run": run, "quantity": quantity, "value": count}
        for quantity, array in summary.data_vars.items():
            axes = {str(axis): summary[axis].values for axis in array.dims}
            for index, value in np.ndenumerate(array.values):
                place = {axis: values[k] for (axis, values), k in zip(axes.items(), index, strict=True)}
                yield {"run": run, "quantity": quantity, **place, "value": value}
