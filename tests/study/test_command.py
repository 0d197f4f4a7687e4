"""The command itself: what it says before JAX is imported, and its help."""

import os
import re
import subprocess
import sys

import pytest

from jaxattn.study import command, usage
from jaxattn.study.configuration.names import experiments, published

# Whether JAX was imported before the command said its first words, and whether it was in the end.
PROGRAM = """
import sys

class Noting:
    def __init__(self, output):
        self.output, self.before = output, None
    def write(self, text):
        if self.before is None and text.strip():
            self.before = "jax" in sys.modules
        return self.output.write(text)
    def __getattr__(self, name):
        return getattr(self.output, name)

sys.stdout = noting = Noting(sys.stdout)
from jaxattn.study.command import main
try:
    main({arguments})
except SystemExit as end:
    assert not end.code, end.code
print(f"before: {{noting.before}}, after: {{'jax' in sys.modules}}")
"""


def ran(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)


def test_figures_says_something_before_jax_is_imported(tmp_path):
    # A folder in which nothing can be written: an error, as soon as JAX is there.
    (tmp_path / "a-file").touch()
    line = f"main(['figures', 'rate', 'figures={tmp_path / 'a-file'}'])"
    program = PROGRAM.format(arguments=[]).replace("main([])", line).replace("assert not end.code, end.code", "pass")
    lines = ran(program).stdout.splitlines()
    assert lines[:2] == ["jaxattn: importing JAX", "jaxattn: reading the configurations of 1 experiment"]
    assert lines[-1] == "before: False, after: True"


@pytest.mark.parametrize("arguments", [["figures", "--help"], ["train", "-h"]])
def test_help_needs_no_jax(arguments):
    lines = ran(PROGRAM.format(arguments=arguments)).stdout.splitlines()
    assert any(line.startswith("usage: jaxattn ") for line in lines)
    assert lines[-1] == "before: False, after: False"


def test_an_unknown_experiment_is_named_without_jax():
    program = "import sys; from jaxattn.study.command import main\n"
    program += "try: main(['figures', 'rat'])\nexcept SystemExit as end: print(end.code, 'jax' in sys.modules)"
    done = ran(program)
    assert done.stdout.splitlines()[-1] == "2 False"
    assert "experiment: expected some of" in done.stderr


def test_the_overview_has_every_command(capsys):
    command.main(["--help"])
    overview = capsys.readouterr().out
    command.main([])
    assert capsys.readouterr().out == overview
    for name in usage.commands():
        assert re.search(rf"^  {name} +[A-Z].*\.$", overview, re.MULTILINE), name


@pytest.mark.parametrize("name", usage.commands())
def test_the_help_of_every_command_has_its_arguments_and_examples(name, capsys):
    command.main([name, "--help"])
    said = capsys.readouterr().out
    assert f"usage: jaxattn {name} " in said
    examples = said.partition("Examples:\n")[2].partition("\n\n")[0].splitlines()
    assert len(examples) >= 2
    assert all(one.startswith(f"  jaxattn {name}") for one in examples)


@pytest.mark.parametrize("name", ["export", "figures", "judge"])
def test_the_experiments_that_help_lists_are_those_of_the_configurations(name):
    listed = usage.of(name).partition("experiments, and")[2].splitlines()[1:]
    names, of_papers = experiments(), published()
    assert [line[2:].split()[0] for line in listed] == names
    for line, experiment in zip(listed, names, strict=True):
        assert line.startswith("* " if experiment in of_papers else "  ")
        assert re.match(r"[* ] \S+ +(\d+ s|\d+:\d\d min) +\S", line), line
        assert len(line) <= 120


def test_without_claims_the_experiments_are_listed_all_the_same(monkeypatch):
    monkeypatch.setattr(usage, "durations", dict)
    listed = usage.of("figures").partition("experiments, and")[2].splitlines()[1:]
    assert [line[2:].split()[0] for line in listed] == experiments()


@pytest.mark.parametrize("name", ["train", "which"])
def test_the_help_of_what_trains_lists_the_groups(name):
    groups = usage.of(name).partition("groups (GROUP=NAME):\n")[2]
    assert re.search(r"^  weights +along, .*free", groups, re.MULTILINE)
    assert re.search(r"^  optimizer +adam, adamw, convergent_muon, ", groups, re.MULTILINE)


def test_a_reader_that_has_read_enough_is_no_error():
    end, output = os.pipe()
    os.close(end)
    words = [sys.executable, "-m", "jaxattn.study", "--help"]
    done = subprocess.run(words, stdout=output, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (141, "")


def test_another_broken_pipe_is_told(capfd):
    def run():
        raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(SystemExit, match="2"):
        command.guarded(run)
    assert capfd.readouterr().err == "jaxattn: [Errno 32] Broken pipe\n"


@pytest.mark.parametrize("closed", [pytest.param(("2>&-",), marks=pytest.mark.slow), ("2>&-", ">&-")])
def test_a_process_without_outputs_trains(closed, tmp_path):
    words = [sys.executable, "-m", "jaxattn.study", "train", "seeds=1", "steps=30"]
    subprocess.run(" ".join([*words, *closed]), shell=True, check=True, cwd=tmp_path, timeout=240)
    assert next(tmp_path.glob("runs/*/record.zarr/zarr.json")).is_file()
