"""Regenerate figures and claims: `jaxattn figures [experiment=a,b] [size=small] [overrides]`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from jaxattn import records
from jaxattn.study import composition, making, report, side_by_side


def main(arguments: list[str]) -> None:
    """Make every figure whose records, code or configuration changed, and claims.json beside them."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return
    names, overrides = chosen(arguments)
    config = composition.compose(overrides)
    folder = making.place(config)
    path = folder / "claims.json"
    lines = {line["id"]: line for line in json.loads(path.read_text())} if path.exists() else {}
    known: dict[str, set[str]] = {}
    seconds: dict[str, float] = {}
    for line in lines.values():
        name = line["id"].partition(":")[0]
        known.setdefault(name, set()).add(line["made_from"])
        seconds[name] = line["seconds"]
    # Composed before anything is made: a mistake in the last one ends all at once.
    composed = {name: making.configurations(name, overrides) for name in names}
    # Composing takes a tenth of a second: only what is not composed yet.
    others = set(composition.experiments()) - set(names)
    studies = {name: configs[0].study for name, configs in composed.items()}
    studies |= {name: making.described(name) for name in others}
    made = [name for name in names if making.is_made(name, composed[name], folder, known.get(name, ()))]
    for name in made:
        print(f"{name}: unchanged")
    composed = {name: configs for name, configs in composed.items() if name not in made}
    processes = side_by_side.processes(config.workers, len(composed))
    for number, (name, claims) in enumerate(side_by_side.each(composed, folder, seconds, processes), start=1):
        lines = {key: line for key, line in lines.items() if key.partition(":")[0] != name}
        lines |= {line["id"]: line for line in claims}
        records.write_json(path, [lines[key] for key in sorted(lines)])
        print(f"[{number}/{len(composed)}] {name}: {folder / name}.png, {claims[0]['seconds']:.1f} s")
        for line in claims:
            print(f"    {line['id']}: {line['verdict']}", flush=True)
    report.write(folder / "README.md", studies, list(lines.values()))


def chosen(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the experiments that a command line names, all if it names none, and its other arguments.

    Raises:
        UsageError: an experiment that is not there.
    """
    given = [argument.partition("=")[2] for argument in arguments if argument.startswith("experiment=")]
    overrides = [argument for argument in arguments if not argument.startswith("experiment=")]
    names = given[-1].split(",") if given else composition.experiments()
    unknown = sorted(set(names) - set(composition.experiments()))
    if unknown:
        raise composition.UsageError(f"experiment: expected some of {composition.experiments()}, found {unknown}")
    return names, overrides
