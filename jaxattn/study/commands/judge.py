"""Judge claims again, without training, from the records that are there: `jaxattn judge [NAME ...]`."""

from __future__ import annotations

from jaxattn.study import making, runs
from jaxattn.study.commands.figures import chosen, claimed
from jaxattn.study.configuration import composition


def main(arguments: list[str]) -> None:
    """Print every claim with its verdict, the numbers that decide it, and what claims.json says if that differs.

    Raises:
        UsageError: no experiment has all its records.
    """
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return
    names, overrides = chosen(arguments)
    path = making.place(composition.compose(overrides)) / "claims.json"
    known = {key: line["verdict"] for key, line in claimed(path).items()}
    missing = []
    for name in names:
        configs = making.configurations(name, overrides)
        there = sum(map(runs.is_recorded, configs))
        if there < len(configs):
            missing.append(f"{name} ({there} of {len(configs)} records)")
            continue
        for claim, judgement in making.judged(name, configs)[1]:
            before = known.get(claim.id, judgement.verdict)
            changed = "" if before == judgement.verdict else f" (claims.json: {before})"
            print(f"{claim.id}: {judgement.verdict}{changed}")
            for criterion in (*judgement.stated, *judgement.corrected):
                print(f"    {criterion}")
            if judgement.note:
                print(f"    {judgement.note}", flush=True)
    if missing:
        print(f"not judged, as records are missing: {', '.join(missing)}; `jaxattn figures` makes them")
    if len(missing) == len(names):
        raise composition.UsageError("expected the records of at least one experiment, found none")
