"""The page of commands has every command and every target of the Makefile."""

import re

from jaxattn.study import regenerating, usage
from tests.docs.command_lines import ROOT
from tests.docs.test_api_pages import extension

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
