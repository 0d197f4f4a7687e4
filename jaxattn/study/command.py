"""The command `jaxattn`: dispatch to subcommands, and how errors and signals end it. Imports no JAX."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

from jaxattn.study import ending, mistakes


def guarded(run: Callable[[], None]) -> None:
    """Run a command. A user's mistake ends it with one message and status 2, a signal with that signal's status."""
    ending.on_terminate()
    try:
        run()
    except KeyboardInterrupt as interrupt:
        how, status = ("terminated", 143) if isinstance(interrupt, ending.Terminated) else ("interrupted", 130)
        print(f"jaxattn: {how}; finished work is kept; run the same command again to continue", file=sys.stderr)
        raise SystemExit(status) from None
    except mistakes.known() as error:
        print(f"jaxattn: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def main(arguments: list[str] | None = None) -> None:
    """Run the command given by the arguments.

    Args:
        arguments: the command and its arguments. Default: those of the process.
    """
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    guarded(lambda: _run(name, rest))


def _run(name: str, arguments: list[str]) -> None:
    from jaxattn.study import fingerprints, progress, usage

    if name in ("-h", "--help"):
        print(usage.overview())
    elif name not in usage.commands():
        raise mistakes.UsageError(f"expected a command among {', '.join(usage.commands())}, found {name}")
    elif {"-h", "--help"} & set(arguments):
        print(usage.of(name))
    else:
        with progress.waiting("importing JAX"):
            command = importlib.import_module(f"{usage.COMMANDS}.{name}")
        with fingerprints.still():
            command.main(arguments)
