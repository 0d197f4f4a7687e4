"""Every command line that help and pages show is accepted, and does what it says; the page of commands has all."""

import itertools
import re
import shlex

import pytest

import jaxattn
from jaxattn.study import regenerating, usage
from tests.docs.command_lines import PAGES, ROOT, is_of_many, of_help, of_page, prepare, run_small, validate
from tests.docs.test_api_pages import extension

HELP = {name: of_help(name) for name in usage.commands()}
LINES = [*itertools.chain(*HELP.values()), *(line for page in PAGES for line in of_page(page.read_text()))]
# The commands that read the records of figures.
OF_FIGURES = ("export", "judge")
# Every line once; what composes the configurations of many experiments is slow.
ONCE = sorted({shlex.join(words): words for words in LINES}.items())
ACCEPTED = [pytest.param(one, id=line, marks=[pytest.mark.slow] if is_of_many(one) else []) for line, one in ONCE]


@pytest.mark.parametrize("words", ACCEPTED)
def test_a_line_of_help_or_of_a_page_is_accepted(words, tmp_path, monkeypatch):
    prepare(tmp_path, monkeypatch)
    validate([word for word in words if not word.startswith("hydra")], monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in HELP if name not in OF_FIGURES])
def test_the_examples_of_help_run(name, tmp_path, monkeypatch):
    prepare(tmp_path, monkeypatch)
    after = OF_FIGURES if name == "figures" else ()
    for line in itertools.chain(HELP[name], *(HELP[other] for other in after)):
        if name == "gather":
            sweep = line[1 : min(map(line.index, {"--to", "--norms"} & set(line)))]
            run_small(["train", "--multirun", *sweep])
        if not is_of_many(line):
            run_small(line)
    for code in re.findall("`(jaxattn[.][^`]+)`", usage.of(name)):
        assert eval(code, {"jaxattn": jaxattn}).sizes["run"] == 2


def test_a_wrong_line_is_found(tmp_path, monkeypatch):
    page = "See `jaxattn train ...` and `jaxattn which data.D=3`.\n\n```sh\n.venv/bin/jaxattn train sed=1  # no\n```\n"
    prepare(tmp_path, monkeypatch)
    found = of_page(page)
    assert found == [["train", "sed=1"], ["which", "data.D=3"]]
    for words in found:
        with pytest.raises(SystemExit):
            validate(words, monkeypatch)


commands = extension("commands")


def test_every_command_and_every_target_has_a_row():
    page = (ROOT / "docs/commands.md").read_text()
    assert [page.count(f":::{{{name}}}\n") for name in ("commands", "targets")] == [1, 1]
    phony = re.search(r"^\.PHONY: (.*)$", commands.MAKEFILE.read_text(), re.MULTILINE)
    assert phony is not None
    for table, names in (
        (commands.commands(), [f"jaxattn {name}" for name in usage.commands()]),
        (commands.targets(), [f"make {name}" for name in phony[1].split()]),
    ):
        rows = re.findall(r"^\| `(.+?)` \| \S.+ \|$", table, re.MULTILINE)
        assert sorted(rows) == sorted(names)


def test_one_is_said_in_the_singular():
    assert regenerating.what_else(["rate"], {}).startswith("not made: 1 other experiment, which takes ")
    assert regenerating.what_else(["rate", "flow"], {}).startswith("not made: 2 other experiments, which take ")
