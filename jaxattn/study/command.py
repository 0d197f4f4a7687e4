"""The command `jaxattn`: dispatch to subcommands, and how errors and signals end it. Imports no JAX."""

from __future__ import annotations

import importlib
import os
import re
import select
import sys
from collections.abc import Callable
from importlib import metadata
from typing import TextIO

from jaxattn.study import ending, mistakes

# The packages of the extra, in the metadata of an installed jaxattn.
_EXTRA = re.compile(r"^([\w.-]+).*; extra == .study.", re.MULTILINE)


def guarded(run: Callable[[], None]) -> None:
    """Run a command. A user's mistake ends it with one message and status 2, a signal with that signal's status."""
    # A job scheduler may start a process without outputs.
    sys.stdout, sys.stderr = (output or open(os.devnull, "w") for output in (sys.stdout, sys.stderr))  # noqa: SIM115
    ending.on_terminate()
    try:
        run()
        sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        how, status = ("terminated", 143) if isinstance(interrupt, ending.Terminated) else ("interrupted", 130)
        print(f"jaxattn: {how}; finished work is kept; run the same command again to continue", file=sys.stderr)
        raise SystemExit(status) from None
    except mistakes.known() as error:
        if isinstance(error, BrokenPipeError) and _has_no_reader(sys.stdout):
            # `head`, say, has read enough. Python would try to write the rest once more at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(141) from None
        where = "".join(f" (in {note})" for note in getattr(error, "__notes__", ()))
        print(f"jaxattn: {error}{where}", file=sys.stderr)
        raise SystemExit(2) from None


def _has_no_reader(output: TextIO) -> bool:
    """Return whether nobody reads this pipe; the one that broke may be another, such as that to a worker."""
    pipes = select.poll()
    pipes.register(output, 0)
    return bool(pipes.poll(0))


def main(arguments: list[str] | None = None) -> None:
    """Run the command given by the arguments, by default those of the process."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    guarded(lambda: _run(name, rest))


def check_installed() -> None:
    """Raise UsageError if packages of the extra, named by the metadata of an installation, are not installed."""
    requirements = (line for own in metadata.distributions(name="jaxattn") for line in own.requires or ())
    needed = sorted(set(_EXTRA.findall("\n".join(requirements))))
    if missing := [name for name in needed if not any(metadata.distributions(name=name))]:
        raise mistakes.UsageError(
            f'expected the packages of the extra "study", found no {", ".join(missing)}; install them with '
            '`pip install "jaxattn[study]"`'
        )


def _run(name: str, arguments: list[str]) -> None:
    check_installed()
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
