"""The command `jaxattn`: what it can do, and how a mistake of the user's ends it."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path

from jaxattn.parallel.processes import ProcessError
from jaxattn.records import RecordError
from jaxattn.study import ending
from jaxattn.study.configuration.composition import UsageError
from jaxattn.study.tuning import tune

_COMMANDS = "jaxattn.study.commands"
# What ends a command with one message.
MISTAKES = (UsageError, RecordError, ProcessError, ValueError, OSError, MemoryError)
_WHERE = (
    "Configurations are those of the checkout that jaxattn is installed from, or of the working folder; runs and",
    "figures go to `runs` and `figures` in the working folder (`runs=...`, `figures=...`).",
)


def commands() -> dict[str, str]:
    """Return the commands with what each does: the modules of `commands` and the first lines of their docstrings."""
    found = {}
    for one in pkgutil.iter_modules(importlib.import_module(_COMMANDS).__path__):
        spec = importlib.util.find_spec(f"{_COMMANDS}.{one.name}")
        source = Path(spec.origin).read_text() if spec and spec.origin else ""
        # Read without an import: `jaxattn --help` should not wait for JAX.
        found[one.name] = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
    return found


def usage() -> str:
    """Return what `jaxattn --help` prints."""
    lines = [f"  {name:8} {what}" for name, what in commands().items()]
    return "\n".join(["usage: jaxattn COMMAND [ARGUMENT ...]", "", *lines, "", *_WHERE])


def guarded(run: Callable[[], None]) -> None:
    """Run a command; a mistake of the user's ends it with one message and status 2, a signal with its own status."""
    tune()
    ending.on_terminate()
    try:
        run()
    except MISTAKES as error:
        print(f"jaxattn: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt as interrupt:
        terminated = isinstance(interrupt, ending.Terminated)
        said = "terminated" if terminated else "interrupted"
        print(f"jaxattn: {said}; what was finished is kept, the same command goes on from there", file=sys.stderr)
        raise SystemExit(143 if terminated else 130) from None


def main(arguments: list[str] | None = None) -> None:
    """Run the command that the arguments name.

    Args:
        arguments: the command and its arguments; those of the process if None.
    """
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("-h", "--help"):
        print(usage())
    else:
        guarded(lambda: _command(name)(rest))


def _command(name: str) -> Callable[[list[str]], None]:
    if name not in commands():
        raise UsageError(f"expected a command among {', '.join(commands())}, found {name}")
    return importlib.import_module(f"{_COMMANDS}.{name}").main
