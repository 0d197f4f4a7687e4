"""The text of `--help`: commands, arguments and experiments, read from files without importing JAX."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import pkgutil
import shutil
import textwrap
from pathlib import Path

from jaxattn.study.configuration.names import described, experiments, names_of, root
from jaxattn.study.progress import duration

COMMANDS = "jaxattn.study.commands"
# The commands whose help lists the experiments; the others list the configuration groups.
_OF_EXPERIMENTS = ("export", "figures", "judge")
_OF_GROUPS = ("train", "which")
_WHERE = """
`jaxattn COMMAND --help` has the arguments of a command, with examples. Configurations in `conf` of the working
folder come before jaxattn's own. Runs and figures go to `runs` and `figures` in the working folder (`runs=...`,
`figures=...`)."""


def commands() -> dict[str, str]:
    """Return the commands with the first line of their docstrings, from the modules of `commands`."""
    modules = pkgutil.iter_modules(importlib.import_module(COMMANDS).__path__)
    return {module.name: _docstring(module.name).partition("\n")[0] for module in modules}


def overview() -> str:
    """Return the text of `jaxattn --help`."""
    lines = [f"  {name:8} {what}" for name, what in commands().items()]
    return "\n".join(["usage: jaxattn COMMAND [ARGUMENT ...]", "", *lines, _WHERE])


def of(name: str) -> str:
    """Return the text of `jaxattn NAME --help`: the docstring of the command's module, and the names it accepts."""
    lines = [_docstring(name)]
    if name in _OF_EXPERIMENTS:
        lines += ["", "experiments, and what each took when its figure was made (*: a figure of the papers):"]
        lines += _experiments()
    if name in _OF_GROUPS:
        lines += ["", "groups (GROUP=NAME):", *_groups()]
    return "\n".join(lines)


def _docstring(name: str) -> str:
    # Read without importing the module, which would import JAX.
    spec = importlib.util.find_spec(f"{COMMANDS}.{name}")
    source = Path(spec.origin).read_text() if spec and spec.origin else ""
    return ast.get_docstring(ast.parse(source)) or ""


def durations() -> dict[str, float]:
    """Return seconds by experiment from the checkout's claims.json (wheels carry it); empty if it cannot be read."""
    try:
        lines = json.loads((root() / "figures" / "claims.json").read_text())
        return {line["id"].partition(":")[0]: float(line["seconds"]) for line in lines}
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def _experiments() -> list[str]:
    names, seconds = experiments(), durations()
    width = max(map(len, names))
    columns = max(40, shutil.get_terminal_size((120, 24)).columns - width - 14)
    lines = []
    for name in names:
        study, took = described(name), duration(seconds[name]) if name in seconds else ""
        about = textwrap.shorten(study.of, columns, placeholder=" ...")
        lines.append(f"{'*' if study.published else ' '} {name:{width}} {took:>9}  {about}")
    return lines


def _groups() -> list[str]:
    lines = []
    for group in sorted(path.name for path in (root() / "conf").iterdir() if path.is_dir()):
        names, indent = ", ".join(names_of(group)), f"  {group:10} "
        lines += textwrap.wrap(names, 118, initial_indent=indent, subsequent_indent=" " * 13, break_on_hyphens=False)
    return lines
