"""Regenerate figures and claims: `python scripts/figures.py [experiment=a,b] [size=small] [overrides]`."""

import json
from pathlib import Path

from jaxattn import records
from jaxattn.study import composition, report, side_by_side
from jaxattn.study import making as study


def main(arguments: list[str]) -> None:
    """Make every figure whose records, code or configuration changed, and claims.json beside them."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return
    chosen = [argument.partition("=")[2] for argument in arguments if argument.startswith("experiment=")]
    overrides = [argument for argument in arguments if not argument.startswith("experiment=")]
    names = chosen[-1].split(",") if chosen else composition.experiments()
    unknown = sorted(set(names) - set(composition.experiments()))
    if unknown:
        raise composition.UsageError(f"experiment: expected some of {composition.experiments()}, found {unknown}")
    config = composition.compose(overrides)
    folder = Path(config.figures) / ("small" if config.size == "small" else "")
    path = folder / "claims.json"
    lines = {line["id"]: line for line in json.loads(path.read_text())} if path.exists() else {}
    known: dict[str, set[str]] = {}
    seconds: dict[str, float] = {}
    for line in lines.values():
        name = line["id"].partition(":")[0]
        known.setdefault(name, set()).add(line["made_from"])
        seconds[name] = line["seconds"]
    # Composed before anything is made: a mistake in the last one ends all at once.
    composed = {name: study.configurations(name, overrides) for name in names}
    # Composing takes a tenth of a second: only what is not composed yet.
    others = set(composition.experiments()) - set(names)
    studies = {name: configs[0].study for name, configs in composed.items()}
    studies |= {name: study.described(name) for name in others}
    made = [name for name in names if study.is_made(name, composed[name], folder, known.get(name, ()))]
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


if __name__ == "__main__":
    composition.entry(main)
