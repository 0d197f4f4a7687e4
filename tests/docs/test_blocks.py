"""The code of README.md and of the pages of docs/ runs, and prints what stands below it.

The blocks of a page share a namespace: fenced ones of `python` and cells of notebooks. A block behind `<!-- slow -->`
runs with the slow tests alone, with all of its page and its command lines, which get few seeds and steps.
A block of `text` right behind a block is what that prints; `...` stands for anything.
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
from tests.docs.command_lines import FENCE, PAGES, ROOT, SHELL, is_of_many, of_block, prepare, run_small

DECIMAL = re.compile(r"[+-]?\d+\.\d+")
COUNT = re.compile(r"(\d+) of (\d+)")


class Block(NamedTuple):
    """One block of code: where it begins, its text, whether it is slow, and what it is to print, if that is told."""

    line: int
    code: str
    is_slow: bool
    printed: str | None


def blocks(text: str) -> list[Block]:
    """Return the Python blocks of a page, and those of command lines as Python that runs them."""
    python: list[Block] = []
    for fence, following in itertools.pairwise([*FENCE.finditer(text), None]):
        if fence is None or fence[2] not in ("python", "{code-cell}", *SHELL):
            continue
        line = text.count("\n", 0, fence.start()) + 1
        if fence[2] in SHELL:
            if lines := [words for words in of_block(fence[3]) if not is_of_many(words)]:
                python.append(Block(line, "\n".join(f"run_small({words})" for words in lines), True, None))
            continue
        before = text[: fence.start()].rstrip().rpartition("\n")[2]
        # A block of text right behind it is its output.
        is_output = following and following[2] == "text" and not text[fence.end() : following.start()].strip()
        # The options of a cell, such as `:tags: [hide-input]`, are no code.
        code = re.sub(r"\A(:[\w-]+:[^\n]*\n)+", "", fence[3])
        printed = following[3] if following and is_output else None
        python.append(Block(line, code, before.strip() == "<!-- slow -->", printed))
    return python


def run(page: Path, with_slow: bool) -> None:
    """Run the blocks of a page, and hold what they print against what the page says."""
    names = {"__name__": page.stem, "run_small": run_small}
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
def test_the_slow_code_and_the_command_lines_of_a_page_run(page, tmp_path, monkeypatch):
    prepare(tmp_path, monkeypatch)
    run(page, with_slow=True)


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
