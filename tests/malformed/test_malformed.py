"""Whatever is malformed is one short error in our own words, before any long computation, and changes nothing."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys

import jaxtyping
import pytest

from jaxattn.descent import loops
from jaxattn.parallel import batch
from jaxattn.study import command, making
from jaxattn.study.configuration.names import experiments, root
from jaxattn.study.settings import recording
from jaxattn.svm import batch_solver
from tests.instances import all_within
from tests.malformed.arguments import ARGUMENTS as GENERAL
from tests.malformed.other_lines import LINES as OTHERS
from tests.malformed.own_files import FILES
from tests.malformed.runs import RUNS
from tests.malformed.texts import TEXTS
from tests.malformed.train_lines import LINES as TRAIN

SOLVE = importlib.import_module("jaxattn.svm.solve")  # Under this name the package has the function.

ARGUMENTS = GENERAL | RUNS | TEXTS

# What other packages say, and what says nothing to a user.
RAW = (
    *("Traceback", "hydra.cc", "full_key", "object_type", "Lexer", "Error merging", "Could not ", "omegaconf"),
    *("OmegaConf", "XlaRuntime", "jax.errors", "jaxlib", "Tracer", "tracer", "zarr.errors", "JSONDecodeError"),
    *("beartype", "has no attribute", "object is not", "not supported between", "positional argument"),
    *("object at 0x", "<class '"),
)
LINES = [*((f"train {line}", message) for line, message in TRAIN), *OTHERS]
# Composing takes a tenth of a second and more: every fifth line is tried by default, the others among the slow tests.
SOME, REST = LINES[::5], [line for k, line in enumerate(LINES) if k % 5]
OWN = [pytest.param(*given, marks=[pytest.mark.slow] if k % 5 else []) for k, given in enumerate(FILES)]

# A user's own module, on the PYTHONPATH.
HEADS = """
import jax.numpy as jnp
def one(x): return x.sum()
def nan(x, v): return jnp.log(-jnp.vdot(x, x))
def steep(x, v): return jnp.sqrt(0 * jnp.vdot(x, v))
def vector(x, v): return x * v
def broken(x, v): return x.nothing
def good(x, v, slope=1.0): return jnp.tanh(slope * jnp.vdot(x, v))
"""


@pytest.fixture(autouse=True)
def _no_long_work(monkeypatch):
    """Nothing may be drawn, trained, solved, measured or recorded, except that heads are tried out."""

    def refuse(*given, **more):
        raise AssertionError("expected an error before any work")

    lifted = batch._lifted

    def trying_out_a_head(function, *given):
        return lifted(function, *given) if function.__qualname__.startswith("check_numbers") else refuse()

    monkeypatch.setattr(batch, "_lifted", trying_out_a_head)
    for module, name in (
        (making, "make"),
        (making, "measured"),
        (recording, "run"),
        (SOLVE, "proposing"),
        (SOLVE, "_certifying"),
        (batch_solver, "proposing"),
        (batch_solver, "certify_lanes"),
    ):
        monkeypatch.setattr(module, name, refuse)


@pytest.fixture(autouse=True)
def _unchecked():
    """As a user has it: without the tests' own checks of all annotations."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder with a user's modules, some of them mistaken, and things that stand in the way."""
    (tmp_path / "mistaken_heads.py").write_text(HEADS)
    (tmp_path / "mistaken_import.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "a-file").write_text("of years")
    for folder, text in (("a-folder", "of years"), ("broken", "{'a':"), ("foreign", '[{"id": 1}]')):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "claims.json").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("mistaken_heads", None)


def assert_in_own_words(said: str, message: str) -> None:
    """Hold that an error names the thing, what was expected and what was found, shortly."""
    assert re.search(f"(?s){message}", said), said
    # What a user's own function raises is said as it is.
    assert [one for one in RAW if one in said.partition(": raised ")[0]] == []
    first = said.partition("\nknown ")[0]
    # The names of all experiments, which some list, are the most of it.
    assert len(first) < 250 + sum(len(name) + 4 for name in experiments())
    assert first.count("\n") <= 3
    assert re.search("expected|unknown key|should be|cannot be|not there|needs|required|raised", said), said


def check_line(line, message, place, capsys):
    before = all_within(place)
    with pytest.raises(SystemExit) as end:
        command.main(shlex.split(line))
    printed, said = capsys.readouterr()
    assert end.value.code == 2
    assert said.startswith(("jaxattn: ", "usage: jaxattn "))
    assert_in_own_words(said, message)
    assert "seeds=8" not in printed
    assert all_within(place) == before


@pytest.mark.parametrize(("line", "message"), SOME, ids=[line for line, _ in SOME])
def test_a_malformed_line_is_one_error(line, message, place, capsys):
    check_line(line, message, place, capsys)


@pytest.mark.slow
@pytest.mark.parametrize(("line", "message"), REST, ids=[line for line, _ in REST])
def test_any_malformed_line_is_one_error(line, message, place, capsys):
    check_line(line, message, place, capsys)


@pytest.mark.parametrize(("file", "text", "line", "message"), OWN)
def test_a_mistake_in_a_users_own_file_is_one_error(file, text, line, message, place, capsys):
    path = place / "conf" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    check_line(line, message, place, capsys)


@pytest.fixture
def _no_descent(monkeypatch):
    """Nothing may even be traced of a descent; a command line's are, for their shapes."""
    loops.trainer.cache_clear()

    def refuse(*given, **more):
        raise AssertionError("expected an error before any work")

    monkeypatch.setattr(loops, "_train", refuse)
    yield
    loops.trainer.cache_clear()


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.usefixtures("_no_descent")
def test_a_malformed_argument_is_one_error(name):
    call, message = ARGUMENTS[name]
    with pytest.raises(ValueError, match=r"\A") as found:
        call()
    assert_in_own_words(str(found.value), message)


def test_there_are_many_and_no_two_are_the_same():
    lines = [line for line, _ in LINES]
    assert len(set(lines)) == len(lines)
    assert len(SOME) >= 35
    assert len(lines) + len(ARGUMENTS) >= 200


REAL = [
    "train seed=8",
    "train ~data",
    "train seeds=1000000000000",
    "train data.T=1",
    "train head._target_=nowhere.x",
    "train --multirun seeds=1,0",
    "figures nope",
    "judge rate runs=nowhere",
    "gather --to a-file seeds=3",
    "nope",
]


@pytest.mark.slow
@pytest.mark.parametrize("line", REAL)
def test_the_real_command_says_the_same(line, place):
    asked = [sys.executable, "-m", "jaxattn.study", *shlex.split(line)]
    done = subprocess.run(asked, capture_output=True, text=True, cwd=place, check=False, timeout=120)
    message = dict(LINES)[line]
    assert done.returncode == 2
    assert_in_own_words(done.stderr, message)
    assert (root() / "conf").is_dir()
