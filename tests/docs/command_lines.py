"""The command lines that help and pages show, found in their text, and run as far as a test can afford."""

from __future__ import annotations

import copy
import functools
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest

from jaxattn import bias
from jaxattn.study import command, making, regenerating, runs, side_by_side, usage
from jaxattn.study.commands import gather, train
from jaxattn.study.configuration import composition, names

ROOT = Path(__file__).parents[2]
# Building the site adds a page for each experiment, all with the same line.
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")] + sorted(
    path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "reproduction"
)
# A block of code: its fence, its language and its text.
FENCE = re.compile(r"^(`{3,})(\{code-cell\}|\w*)[^\n]*\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
# The languages of blocks of command lines.
SHELL = ("", "sh")
# An example of help; what it is for stands two blanks behind it.
_EXAMPLE = re.compile(r"^  (jaxattn .+?)(?:  .*)?$", re.MULTILINE)
_INLINE = re.compile(r"(?<!\})`((?:jaxattn|make figures) [^`]+)`")
# A user's own head and optimizer, which some lines name.
_OWN = """
import optax


def quadratic(x, v):
    return v @ x - 0.1 * (x @ x)


def myrule(step):
    return optax.sign_sgd(step)


myhead = quadratic
"""


# Composing takes a tenth of a second, and commands compose a line twice; reading all experiments takes half a second.
_composed, _described = map(functools.cache, (composition.compose, names.described))


class Reached(BaseException):
    """A command has accepted its line and begun to work; no error handler of a command catches this."""


def of_help(name: str) -> list[list[str]]:
    """Return the arguments of each example in the help of a command."""
    return [shlex.split(line)[1:] for line in _EXAMPLE.findall(usage.of(name))]


def of_block(text: str) -> list[list[str]]:
    """Return the arguments of each line of a block that calls `jaxattn`, or `make figures`, which does."""
    found = []
    for line in text.splitlines():
        first, *arguments = shlex.split(line, comments=True) or [""]
        if first == "make" and arguments[:1] == ["figures"]:
            found.append(_made(arguments))
        elif first.rpartition("/")[2] == "jaxattn":
            found.append(arguments)
    return found


def of_page(text: str) -> list[list[str]]:
    """Return the arguments of each command line of a page, in blocks and within sentences.

    A sentence may also name a command alone, `jaxattn train`, or leave arguments out, `jaxattn which ...`.
    """
    blocks = [fence[3] for fence in FENCE.finditer(text) if fence[2] in SHELL]
    inline = [line for line in _INLINE.findall(FENCE.sub("", text)) if "..." not in line]
    lines = [words for block in [*blocks, *inline] for words in of_block(block)]
    return [words for words in lines if words[0] in usage.commands() and (words[1:] or words[0] == "figures")]


def is_of_many(words: list[str]) -> bool:
    """Return whether a line is about many experiments: composing all their configurations takes half a minute."""
    name, *rest = words
    named = [word for word in rest if ("=" not in word and word != "--all") or word.startswith("experiment=")]
    return name in ("figures", "judge") and not named


def _made(arguments: list[str]) -> list[str]:
    """Return what `make` passes to `jaxattn` for these arguments of its own."""
    done = subprocess.run(["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return shlex.split(done.stdout.splitlines()[-1])[1:]


def prepare(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a folder the working folder, with what the lines take from a user: a module and an experiment."""
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setattr("sys.argv", ["jaxattn"])
    (place / "mymodule.py").write_text(_OWN)
    (place / "my.mplstyle").write_text("font.size: 9\n")
    np.savez(place / "run.npz", X=np.eye(4)[None], Z=np.eye(4)[:1], W=np.eye(4)[None])
    of_adding = {fence[2]: fence[3] for fence in reversed([*FENCE.finditer((ROOT / "docs/adding.md").read_text())])}
    (place / "large_step.py").write_text(of_adding["python"])
    (place / "conf/experiment").mkdir(parents=True)
    own = of_adding["yaml"].replace("jaxattn.experiments.local.large_step", "large_step")
    (place / "conf/experiment/large-step.yaml").write_text(own)


def validate(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a line until it would look for a record, make it, or leave that to Hydra: by then all its words are checked.

    Records that are judged or gathered are taken to be there. Heads are not tried out, which compiles a program each.
    """

    def reach(*given: object, **more: object) -> None:
        raise Reached

    monkeypatch.setattr(composition, "compose", lambda overrides: copy.deepcopy(_composed(tuple(overrides))))
    monkeypatch.setattr(regenerating, "described", _described)
    monkeypatch.setattr(composition, "check_numbers", lambda setting: None)
    monkeypatch.setattr(side_by_side, "processes", lambda asked, experiments: 1)
    monkeypatch.setattr(runs, "is_recorded", lambda config: arguments[0] in ("export", "gather", "judge"))
    # Which arrays a file may have is read off the function's signature.
    monkeypatch.setattr(bias, "rank_arrays", functools.wraps(bias.rank_arrays)(lambda **given: reach()))
    begins = ((train.hydra, "main"), (runs, "folder"), (making, "make"), (making, "measured"), (gather, "_measured"))
    for module, name in begins:
        monkeypatch.setattr(module, name, reach)
    if "--help" in arguments:
        command.main(arguments)
        return
    with pytest.raises(Reached):
        command.main(arguments)


def run_small(arguments: list[str]) -> None:
    """Run a whole line, with few seeds and steps."""
    name, *rest = arguments
    if any(word.startswith("checkpoints=") for word in rest):
        command.main(arguments)
        return
    few = ["size=small"] if name in ("export", "figures", "judge") else ["size=small", "seeds=8", "steps=200"]
    # The environment of the tests has no launchers.
    command.main([name, *(word for word in rest if not word.startswith("hydra")), *few])
