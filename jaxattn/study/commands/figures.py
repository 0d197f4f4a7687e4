"""Make figures and claims anew, of all experiments or of some.

usage: jaxattn figures [NAME ...] [KEY=VALUE ...]

Trains, solves, measures, judges and draws what changed since the last time. Experiments are made side by side, one
process a core; interrupted, the same command goes on from what was finished.

  NAME            an experiment of the list below; all of them if none is named
  size=small      every experiment in seconds, into figures/small, for a first look
  workers=2       how many experiments are made at once; with 1, one after the other
  runs=DIR        where the records go, and are found again: `runs` if not given
  figures=DIR     where the figures go: `figures` if not given
  KEY=VALUE       any key of conf/config.yaml, for all these experiments, such as seeds=1000 or data.d=20

Examples:
  jaxattn figures size=small                   all of them, small
  jaxattn figures rate kq-penalty              two of them, as published
  jaxattn figures lipschitz seeds=4 figures=my-figures
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxattn.study.configuration.names import experiments
from jaxattn.study.mistakes import UsageError
from jaxattn.study.progress import Board


def main(arguments: Sequence[str]) -> None:
    """Make every figure whose records, code or configuration changed, and claims.json beside them."""
    names, overrides = chosen(arguments)
    with Board() as board:
        board.phase("importing JAX")
        # Takes seconds, in which the board moves already.
        from jaxattn.study.regenerating import regenerate

        ending = regenerate(names, overrides, board)
    print("\n".join(ending))


def chosen(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the experiments that a command line names, all if it names none, and its other arguments.

    Both `rate` and `experiment=rate,kq-penalty` name some.

    Raises:
        UsageError: an experiment that is not there.
    """
    given = [one.partition("=")[2] for one in arguments if one.startswith("experiment=")]
    bare = [one for one in arguments if "=" not in one and not one.startswith("~")]
    overrides = [one for one in arguments if one not in bare and not one.startswith("experiment=")]
    names = bare + (given[-1].split(",") if given else []) or experiments()
    unknown = sorted(set(names) - set(experiments()))
    if unknown:
        raise UsageError(f"experiment: expected some of {experiments()}, found {unknown}")
    return names, overrides
