"""Make the figures whose records, code or configuration changed, and claims.json."""

from __future__ import annotations

import itertools
import json
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import jax

from jaxattn import records
from jaxattn.study import making, report, side_by_side, stalls, usage
from jaxattn.study.configuration import composition
from jaxattn.study.configuration.names import described, experiments
from jaxattn.study.costs import Costs
from jaxattn.study.kept import trim
from jaxattn.study.mistakes import UsageError
from jaxattn.study.progress import Board, duration
from jaxattn.study.style import page
from jaxattn.study.tuning import tune

# The keys of an entry of claims.json that are read here.
_READ = {"id", "verdict", "made_from", "seconds"}


def regenerate(names: Sequence[str], overrides: Sequence[str], board: Board) -> list[str]:
    """Make the figures whose records, code or configuration changed, and claims.json; return the lines to print.

    UsageError: a mistake in the overrides, no such style, or claims of another version beside those to be made.
    RecordError: a claims.json that cannot be read, or a folder that cannot be written.
    """
    tune()
    board.phase(f"reading the configurations of {len(names)} experiment{'s' * (len(names) > 1)}")
    config, studies = composition.compose(overrides), {name: described(name) for name in experiments()}
    with page.with_own(config.style):
        pass  # A mistake in it is found at once.
    folder = making.figures_folder(config)
    path = folder / "claims.json"
    lines = claimed(path)
    # Nothing can make these again.
    gone = sorted(set(map(_experiment, lines)) - set(studies))
    lines = {key: line for key, line in lines.items() if _experiment(key) not in gone}
    records.check_folder(folder)
    processes = side_by_side.processes(config.workers, len(names))
    unreadable = {_experiment(key) for key, line in lines.items() if not set(report.READ) <= set(line)}
    if older := sorted(unreadable - set(names)):
        raise UsageError(f"{path}: written by another version; make {', '.join(older)} again as well")
    for name in gone:
        board.say(f"{name}: no such experiment any more; its claims are removed from {path}")
    if gone:
        _write(path, lines)
    known: defaultdict[str, set[str]] = defaultdict(set)
    for key, line in lines.items():
        # What another version wrote is judged again, from records that are there.
        if _experiment(key) not in unreadable:
            known[_experiment(key)].add(line["made_from"])
    seconds = {_experiment(key): line["seconds"] for key, line in lines.items()}
    in_checkout = usage.durations()
    with ExitStack() as stack:
        pool = None
        if not Path(config.runs).exists():
            # All will be made: the processes compose the configurations first.
            pool = stack.enter_context(side_by_side.pool(processes))
        compose = partial(making.configurations, overrides=overrides)
        # Not `executor.map`: the futures that it cancels on an interrupt raise an error in a thread of Python's.
        found = [pool.executor.submit(compose, name).result if pool else partial(compose, name) for name in names]
        composed = {name: one() for name, one in zip(names, found, strict=True)}
        trim()
        unchanged = [name for name in names if making.is_made(name, composed[name], folder, known[name])]
        for name in unchanged:
            board.say(f"{name}: unchanged")
        composed = {name: configs for name, configs in composed.items() if name not in unchanged}
        # Before anything is made, so that a mistake in the last one is found at once.
        for run in itertools.chain.from_iterable(composed.values()):
            composition.setting_of(run)
        processes, spent = side_by_side.processes(config.workers, len(composed)), Costs()
        board.expect({name: seconds.get(name) for name in composed}, processes)
        if pool is None:
            pool = stack.enter_context(side_by_side.pool(processes))

        def begun(name: str) -> None:
            board.begun(name, len(composed[name]), sum(run.seeds for run in composed[name]))

        # Other sizes, in other folders, take other times, but the order of durations is similar.
        made = side_by_side.each(composed, folder, in_checkout | seconds, pool, begun, board.note)
        for number, (name, (claims, cost)) in enumerate(made, start=1):
            board.made(name)
            spent += cost
            lines = {key: line for key, line in lines.items() if _experiment(key) != name}
            lines |= {line["id"]: line for line in claims}
            _write(path, lines)
            took = f"{duration(cost.seconds)}, {duration(cost.compiling)} of it compiling"
            board.say(f"[{number}/{len(composed)}] {name}: {making.files(name, composed[name], folder)[0]}, {took}")
            for line in claims:
                board.say(f"    {line['id']}: {line['verdict']}")
            if stalled := stalls.line(composed[name]):
                board.say(f"    {stalled}")
    report.write(folder, studies, list(lines.values()), config.size)
    ending = [
        *verdicts([line for line in lines.values() if _experiment(line["id"]) in names]),
        "",
        f"figures and claims: {folder / 'README.md'} ({len(composed)} made, {len(unchanged)} unchanged)",
        report.summed(list(lines.values())),
        time_taken(board.elapsed(), processes, spent),
    ]
    if spent.unreadable:
        ending.append(unreadable_programs(spent.unreadable))
    if set(names) == {name for name in studies if studies[name].published}:
        ending.append(what_else([name for name in studies if name not in names], in_checkout))
    return ending


def _experiment(claim: str) -> str:
    return claim.partition(":")[0]


def _write(path: Path, lines: dict[str, dict[str, Any]]) -> None:
    records.write_json(path, [lines[key] for key in sorted(lines)])


def verdicts(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table of claims and their verdicts, a line each, in the order of their ids."""
    width = max((len(line["id"]) for line in lines), default=0)
    return [f"{line['id']:{width}}  {line['verdict']}" for line in sorted(lines, key=lambda line: line["id"])]


def what_else(others: Sequence[str], seconds: Mapping[str, float]) -> str:
    """Return one line saying how many experiments were not made, what they would take, and how to make them."""
    took = duration(sum(seconds.get(name, 0.0) for name in others) / 2)
    them = "experiment, which takes" if len(others) == 1 else "experiments, which take"
    return (
        f"not made: {len(others)} other {them} {took} on two cores in the published size; "
        "to make all: `make figures all=yes` or `jaxattn figures --all`"
    )


def time_taken(seconds: float, processes: int, spent: Costs) -> str:
    """Return one line on the elapsed seconds, and on what all processes together did in them."""
    within = "" if processes == 1 else f" in {processes} processes"
    of_processes = (
        f"; of {duration(spent.seconds)}{within} {duration(spent.compiling)} compiling "
        f"({spent.programs:,} program{'s' * (spent.programs != 1)}, {spent.cached:,} found compiled)"
    )
    return f"time: {duration(seconds)}{of_processes if spent.seconds else ''}"


def unreadable_programs(number: int) -> str:
    """Return one line saying that cached programs could not be loaded, and what to do."""
    folder = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    return (
        f"{number:,} program{'s' * (number != 1)} compiled earlier could not be loaded (made on another processor, or "
        f"damaged?) and had to be compiled again, as in every run until they are removed: "
        f"rm -r {shlex.quote(str(folder))}"
    )


def claimed(path: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of a claims.json by id; empty if it does not exist. RecordError: it holds something else."""
    lines, found = None, "something else"
    try:
        lines = json.loads(path.read_text()) if path.exists() else []
    except (OSError, ValueError) as error:
        found = f"what cannot be read ({error})"
    if not isinstance(lines, list) or not all(isinstance(line, dict) and set(line) >= _READ for line in lines):
        raise records.RecordError(
            f"{path}: expected the claims that `jaxattn figures` writes, found {found}; nothing was changed: move it "
            "away, and run the command again"
        )
    return {line["id"]: line for line in lines}
