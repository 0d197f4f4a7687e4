"""The code of README.md and of the pages of docs/ runs, and prints what stands below it.

The blocks of a page share a namespace, from top to bottom: fenced ones of `python` and cells of notebooks. A block that
is preceded by `<!-- slow -->` runs with the slow tests alone, together with all others of its page. A block of `text`
right behind a block is what that prints; `...` stands for anything.
"""

import contextlib
import doctest
import io
import itertools
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from jaxattn.study import command
from jaxattn.study.configuration import composition

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs").glob("howto/*.md"))]
FENCE = re.compile(r"^(`{3,})(\{code-cell\}|\w*)[^\n]*\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)


DECIMAL = re.compile(r"[+-]?\d+\.\d+")
COUNT = re.compile(r"(\d+) of (\d+)")


class Block(NamedTuple):
    """One block of code: where it begins, its text, whether it is slow, and what it is to print, if that is told."""

    line: int
    code: str
    is_slow: bool
    printed: str | None


def blocks(text: str) -> list[Block]:
    """Return the Python blocks of a page."""
    python: list[Block] = []
    for fence, following in itertools.pairwise([*FENCE.finditer(text), None]):
        if fence is None or fence[2] not in ("python", "{code-cell}"):
            continue
        before = text[: fence.start()].rstrip().rpartition("\n")[2]
        # A block of text right behind it is its output.
        is_output = following and following[2] == "text" and not text[fence.end() : following.start()].strip()
        # The options of a cell, such as `:tags: [hide-input]`, are no code.
        code = re.sub(r"\A(:[\w-]+:[^\n]*\n)+", "", fence[3])
        line, printed = text.count("\n", 0, fence.start()) + 1, following[3] if following and is_output else None
        python.append(Block(line, code, before.strip() == "<!-- slow -->", printed))
    return python


def commands(text: str, name: str) -> list[list[str]]:
    """Return the arguments of the lines of shell blocks that call this command of `jaxattn`."""
    lines = [line for one in FENCE.finditer(text) if one[2] == "sh" for line in one[3].splitlines()]
    words = [shlex.split(line, comments=True) for line in lines]
    return [one[2:] for one in words if len(one) > 1 and one[0].endswith("jaxattn") and one[1] == name]


def run(page: Path, with_slow: bool) -> None:
    """Run the blocks of a page, and hold what they print against what the page says."""
    names = {"__name__": page.stem}
    for block in blocks(page.read_text()):
        if block.is_slow and not with_slow:
            continue
        out = io.StringIO()
        # Errors name the line of the page.
        program = compile("\n" * block.line + block.code, str(page), "exec")
        with contextlib.redirect_stdout(out):
            exec(program, names)
        if block.printed is not None and not is_same(block.printed, out.getvalue()):
            raise AssertionError(f"{page.name}, line {block.line}: expected\n{block.printed}\nfound\n{out.getvalue()}")


def is_same(expected: str, found: str) -> bool:
    """Whether a text is the expected one, but for what rounding on another machine changes.

    These are the last digits of decimal numbers, and of a count "k of n" one in fifty: whether a solution is proven to
    be unique may hang on the last digit.
    """
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    asked, given = (DECIMAL.sub("#", COUNT.sub(r"# of \2", text)) for text in (expected, found))
    if not doctest.OutputChecker().check_output(asked, given, flags):
        return False
    if "..." in expected:
        return doctest.OutputChecker().check_output(expected, found, flags)
    counts, others = ([(int(k), int(n)) for k, n in COUNT.findall(text)] for text in (expected, found))
    if any(abs(k - other) > n / 50 for (k, n), (other, _) in zip(counts, others, strict=True)):
        return False
    numbers, others = ([float(one) for one in DECIMAL.findall(text)] for text in (expected, found))
    return others == pytest.approx(numbers, abs=2e-3)


def test_only_last_digits_may_differ():
    for expected, found in (
        ("cos 0.9989, 3 of 4\n", "cos 0.9991, 3 of 4\n"),
        ("97 of 100", "98 of 100"),
        ("at 0.99 ... end", "at 0.99 and so on to the end"),
    ):
        assert is_same(expected, found)
    for expected, found in (
        ("cos 0.9989", "cos 0.9500"),
        ("cos 0.9989, 3 of 4", "cos 0.9989, 4 of 4"),
        ("97 of 100", "94 of 100"),
        ("97 of 100", "97 of 99"),
    ):
        assert not is_same(expected, found)


def named(pages: list[Path]) -> list:
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages]


FAST = [page for page in PAGES if not all(block.is_slow for block in blocks(page.read_text()))]
SLOW = [page for page in PAGES if any(block.is_slow for block in blocks(page.read_text()))]


@pytest.mark.examples
@pytest.mark.parametrize("page", named(FAST))
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(page, with_slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", named(SLOW))
def test_the_slow_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(page, with_slow=True)


@pytest.mark.parametrize("page", named([page for page in PAGES if "jaxattn" in page.read_text()]))
def test_the_settings_of_command_lines_are_known(page, tmp_path, monkeypatch):
    (tmp_path / "mymodule.py").write_text("def quadratic(x, v):\n    return v @ x - 0.1 * (x @ x)\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("train", "which", "gather"):
        for given in commands(page.read_text(), name):
            words = [one for before, one in itertools.pairwise(["", *given]) if before != "--to"]
            settings = [one for one in words if not one.startswith(("hydra", "--"))]
            for combination in composition.expand(settings):
                assert composition.compose(combination).seeds >= 1


TOLD = [re.findall(r"^(jaxattn which\b.*?)  # (verdict: .*)$", page.read_text(), re.MULTILINE) for page in PAGES]
VERDICTS = sorted(set(itertools.chain(*TOLD)))


@pytest.mark.slow
@pytest.mark.parametrize(("line", "verdict"), VERDICTS)
def test_a_command_prints_the_verdict_beside_it(line, verdict, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command.main(shlex.split(line)[1:])
    printed = next(one for one in capsys.readouterr().out.splitlines() if one.startswith("verdict: "))
    assert printed == verdict or printed.startswith(f"{verdict}: ")


def test_blocks_are_found_with_what_they_print_and_commands_with_their_verdicts():
    assert len(VERDICTS) >= 3
    text = "```python\na = 1\n```\n\n<!-- slow -->\n```{code-cell}\n:tags: [x]\n\nprint(a)\n```\n\n```text\n1\n```\n"
    first, second = blocks(text)
    assert (first.code, first.is_slow, first.printed) == ("a = 1\n", False, None)
    assert (second.code.strip(), second.is_slow, second.printed) == ("print(a)", True, "1\n")


def test_what_a_block_prints_is_compared(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(2)\n```\n\n```text\n1\n```\n")
    with pytest.raises(AssertionError, match=r"page.md, line 1: expected\n1\n"):
        run(page, with_slow=False)
