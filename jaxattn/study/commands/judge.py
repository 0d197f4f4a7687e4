"""Judge claims again from existing records, without training.

usage: jaxattn judge [NAME ...] [KEY=VALUE ...]

Prints each claim with its verdict, the criteria that decide it, and the verdict in claims.json if it differs.
Writes no figure and no claims.json.

  NAME            an experiment in the list below; default: all
  size=small      use the records of `jaxattn figures size=small`
  runs=DIR        where the records are; default: `runs`
  figures=DIR     folder of the claims.json to compare with; default: `figures`
  KEY=VALUE       as given to `jaxattn figures`

Examples:
  jaxattn judge                                all experiments that have records
  jaxattn judge rate size=small
"""

from __future__ import annotations

from jaxattn.study import claims, making, runs
from jaxattn.study.commands.figures import chosen
from jaxattn.study.configuration import composition
from jaxattn.study.configuration.names import experiments
from jaxattn.study.entries import in_words
from jaxattn.study.mistakes import UsageError
from jaxattn.study.regenerating import claimed
from jaxattn.study.tuning import tune


def main(arguments: list[str]) -> None:
    """Print each claim with its verdict, the numbers that decide it, and the verdict in claims.json if it differs."""
    tune()
    named, overrides = chosen(arguments)
    names = named or experiments()
    path = making.figures_folder(composition.compose(overrides)) / "claims.json"
    known = {key: line["verdict"] for key, line in claimed(path).items()}
    missing = []
    for name in names:
        configs = making.configurations(name, overrides)
        recorded = sum(map(runs.is_recorded, configs))
        if recorded < len(configs):
            missing.append(f"{name} ({recorded} of {len(configs)} records)")
            continue
        with making.located(name, configs):
            judged = making.judged(name, configs, making.datasets(name, configs))[1]
        for claim, judgement in judged:
            before = known.get(claim.id, judgement.verdict)
            changed = "" if before == judgement.verdict else f" (claims.json: {before})"
            print(f"{claim.id}: {judgement.verdict}{changed}")
            line = claims.line(claim, judgement)
            for criterion in (*line["criteria"], *line["criteria of the correction"]):
                print(f"    {in_words(line, criterion)}")
            if judgement.note:
                print(f"    {judgement.note}", flush=True)
    if missing:
        print(f"not judged, because records are missing: {', '.join(missing)}; `jaxattn figures` makes them")
    if len(missing) == len(names):
        raise UsageError("expected the records of at least one experiment, found none")
