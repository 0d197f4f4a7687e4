"""Make the figures of the papers, of all experiments or of some, and judge their claims.

usage: jaxattn figures [NAME ...] [--all] [KEY=VALUE ...]

Trains, solves, measures, judges and draws whatever is missing or out of date. Experiments run side by side, one
process per core. If interrupted, run the same command again: it continues from what was finished.

  NAME            an experiment in the list below; default: those marked *, the figures of the two papers on attention
                  as an SVM and of their authors' repository
  --all           all experiments
  size=small      small versions, seconds each, in figures/small, for a first look
  size=large      larger versions, of experiments that have one, in figures/large
  workers=2       how many experiments to run at once; 1: one after the other
  runs=DIR        where records are written and found again; default: `runs`
  figures=DIR     where figures are written; default: `figures`
  style=FILE      a Matplotlib style of your own, on top of jaxattn's: a file such as my.mplstyle, or a name such as
                  dark_background; it does not change the colours that a figure gives its curves
  KEY=VALUE       any key of the configuration, for all these experiments, for example seeds=1000 or data.d=20

Examples:
  jaxattn figures --all size=small             all of them, small
  jaxattn figures rate kq-penalty              two of them, in the published size
  jaxattn figures lipschitz seeds=4 figures=my-figures
  jaxattn figures rate style=my.mplstyle figures=my-figures
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxattn.study.configuration.names import experiments, published, suggestion
from jaxattn.study.mistakes import UsageError
from jaxattn.study.progress import Board


def main(arguments: Sequence[str]) -> None:
    """Make each figure whose records, code or configuration changed, and claims.json."""
    others = [argument for argument in arguments if argument != "--all"]
    names, overrides = chosen(others)
    if len(others) == len(arguments):
        names = names or published()
    elif names:
        raise UsageError(f"--all: expected no experiment beside it, found {', '.join(names)}")
    else:
        names = experiments()
    with Board() as board:
        board.phase("importing JAX")
        # The import takes seconds; the progress display already runs.
        from jaxattn.study.regenerating import regenerate

        ending = regenerate(names, overrides, board)
    print("\n".join(ending))


def chosen(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the experiments named on a command line, as in `rate` or `experiment=rate,kq-penalty`, and the rest."""
    names, last, overrides = [], [], []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if key == "experiment" and equals:
            last = value.split(",")
        elif equals or argument.startswith("~"):
            overrides.append(argument)
        else:
            names.append(argument)
    names += last
    if unknown := sorted(set(names) - set(experiments())):
        meant = suggestion(unknown[0], experiments())
        raise UsageError(f"experiment: expected some of {experiments()}, found {unknown}{meant}")
    return names, overrides
