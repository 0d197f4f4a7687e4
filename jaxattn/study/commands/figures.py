"""Regenerate figures and claims, of all experiments or of some: `jaxattn figures [NAME ...] [size=small]`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxattn import records
from jaxattn.study import making, progress, report, side_by_side, stalls
from jaxattn.study.configuration import composition

# What is said of a claims.json that cannot be read, and what these commands read of a line of it.
_CLAIMS = "the claims that `jaxattn figures` writes"
_ASIDE = "nothing was changed: move it away, and they are written anew"
_READ = {"id", "verdict", "made_from", "seconds"}


def main(arguments: list[str]) -> None:
    """Make every figure whose records, code or configuration changed, and claims.json beside them."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return
    names, overrides = chosen(arguments)
    # Composing all takes some seconds.
    print(f"jaxattn: reading the configurations of {len(names)} experiment{'s' * (len(names) > 1)}", flush=True)
    config = composition.compose(overrides)
    folder = making.place(config)
    path = folder / "claims.json"
    lines = claimed(path)
    records.check_folder(folder)
    if config.workers is not None and config.workers < 1:
        raise composition.UsageError(f"workers: expected at least 1, found {config.workers}")
    unreadable = {key.partition(":")[0] for key, line in lines.items() if not set(report.READ) <= set(line)}
    if older := sorted(unreadable - set(names)):
        raise composition.UsageError(f"{path}: written by another version; make {', '.join(older)} anew as well")
    known: dict[str, set[str]] = {}
    seconds: dict[str, float] = {}
    for line in lines.values():
        name = line["id"].partition(":")[0]
        known.setdefault(name, set()).add(line["made_from"])
        seconds[name] = line["seconds"]
    # Composed before anything is made: a mistake in the last one ends all at once.
    composed = {name: making.configurations(name, overrides) for name in names}
    for one in itertools.chain.from_iterable(composed.values()):
        composition.setting_of(one)
    # Composing takes a tenth of a second: only what is not composed yet.
    others = set(composition.experiments()) - set(names)
    studies = {name: configs[0].study for name, configs in composed.items()}
    studies |= {name: making.described(name) for name in others}
    unchanged = [name for name in names if making.is_made(name, composed[name], folder, known.get(name, ()))]
    for name in unchanged:
        print(f"{name}: unchanged")
    composed = {name: configs for name, configs in composed.items() if name not in unchanged}
    processes = side_by_side.processes(config.workers, len(composed))
    board = progress.Board({name: seconds.get(name) for name in composed}, processes, None if processes > 1 else False)
    with board:
        made = side_by_side.each(composed, folder, seconds, processes, board.begun)
        for number, (name, claims) in enumerate(made, start=1):
            board.made(name)
            lines = {key: line for key, line in lines.items() if key.partition(":")[0] != name}
            lines |= {line["id"]: line for line in claims}
            records.write_json(path, [lines[key] for key in sorted(lines)])
            board.say(f"[{number}/{len(composed)}] {name}: {folder / name}.png, {claims[0]['seconds']:.1f} s")
            for line in claims:
                board.say(f"    {line['id']}: {line['verdict']}")
            if said := stalls.line(composed[name]):
                board.say(f"    {said}")
    report.write(folder / "README.md", studies, list(lines.values()))
    print(f"{folder / 'README.md'}: {report.summed(list(lines.values()))}")


def chosen(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the experiments that a command line names, all if it names none, and its other arguments.

    Both `rate` and `experiment=rate,kq-penalty` name some.

    Raises:
        UsageError: an experiment that is not there.
    """
    given = [one.partition("=")[2] for one in arguments if one.startswith("experiment=")]
    bare = [one for one in arguments if "=" not in one and not one.startswith("~")]
    overrides = [one for one in arguments if one not in bare and not one.startswith("experiment=")]
    names = bare + (given[-1].split(",") if given else []) or composition.experiments()
    unknown = sorted(set(names) - set(composition.experiments()))
    if unknown:
        raise composition.UsageError(f"experiment: expected some of {composition.experiments()}, found {unknown}")
    return names, overrides


def claimed(path: Path) -> dict[str, dict[str, Any]]:
    """Return the lines of a claims.json by their ids; none if it is not there.

    Raises:
        RecordError: it cannot be read, or is no list of claims.
    """
    if not path.exists():
        return {}
    try:
        lines = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise records.RecordError(
            f"{path}: expected {_CLAIMS}, found what cannot be read ({error}); {_ASIDE}"
        ) from error
    if not isinstance(lines, list) or not all(isinstance(line, dict) and set(line) >= _READ for line in lines):
        raise records.RecordError(f"{path}: expected {_CLAIMS}, found something else; {_ASIDE}")
    return {line["id"]: line for line in lines}
