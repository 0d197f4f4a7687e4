"""Regenerate figures and claims: `python scripts/figures.py [experiment=a,b] [size=small] [overrides]`."""

import json
from pathlib import Path

import composition
import study

from jaxattn import records


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
    for line in lines.values():
        known.setdefault(line["id"].partition(":")[0], set()).add(line["made_from"])
    for number, name in enumerate(names, start=1):
        label = f"[{number}/{len(names)}] {name}"
        print(f"{label}: ...", flush=True)
        claims = study.make(name, overrides, folder, known)
        if claims is None:
            print(f"{label}: unchanged")
            continue
        lines = {key: line for key, line in lines.items() if key.partition(":")[0] != name}
        lines |= {line["id"]: line for line in claims}
        records.write_json(path, [lines[key] for key in sorted(lines)])
        print(f"{label}: {folder / name}.png, {claims[0]['seconds']:.1f} s")
        for line in claims:
            print(f"    {line['id']}: {line['verdict']}")


if __name__ == "__main__":
    composition.entry(main)
