"""The index of all claims, and the pages of the experiments."""

import json
import re
from types import SimpleNamespace

import pytest
import yaml

from jaxattn.study import report
from jaxattn.study.claims import Number, Verdict, above
from jaxattn.study.configuration.names import described, experiments, root
from jaxattn.study.style import table


def line(name: str, numbers: int = 1, runs: int = 1, **more) -> dict:
    measured = {f"number {k}": k / 3 for k in range(numbers)}
    slope = above(f"the slope of {name}", Number(3, 2, 4), 1)
    return {
        "id": name,
        "source": "a paper",
        "setting": "exact",
        "kind": "finding",
        "intervals": numbers,
        "criteria": [str(slope)],
        "criteria in numbers": [slope.numbers],
        "criteria of the correction": ["|x| is 1; asked for: at most 2 (met)"] if runs > 1 else [],
        "statement": f"What {name} states of |x|.",
        "expected": {f"number {numbers - 1}": 7.0},
        "measured": measured,
        "interval": {"number 0": [-0.5, 0.25]},
        "counts": {
            f"run {k}": {"attempted": 5, "kept": 2, "diverged": 3, "infeasible": 0, "not_unique": k % 2}
            for k in range(runs)
        },
        "verdict": "holds",
        "note": f"The rule of {name}.",
        "seconds": 12.3,
        "made_from": "abc",
    } | more


STUDIES = {
    name: SimpleNamespace(of=f"Figure of {name}.", departs=f"Departure of {name}.", place=place, notebook=notebook)
    for name, place, notebook in (("second", 2, ""), ("first", 1, "some.ipynb"), ("third", 3, ""))
}
FIRST = "arXiv 2308.16898, Theorem 1"


def written(folder, lines):
    report.write(folder, STUDIES, lines, "published")
    return (folder / "README.md").read_text()


def rows(text):
    """The rows of the tables of claims, by the headings above them."""
    parts = dict(part.split("\n", 1) for part in text.split("\n## ")[1:])
    return {heading: re.findall(r"^\| .*pages/.*$", part, re.M) for heading, part in parts.items()}


def test_the_index_begins_with_what_does_not_hold_and_sets_our_own_experiments_apart(tmp_path):
    lines = [
        line("first:a", source=FIRST),
        line("first:b", source=FIRST, verdict="holds with a correction", note="Correction: only so. More."),
        line("second:c", source=FIRST, setting="proxy", verdict="does not hold"),
        line("second:d", source=FIRST, kind="check"),
        line("third:e", source="jaxattn, a question: of ours", setting="ours"),
        line("third:f", source=FIRST, setting="ours", verdict="does not hold"),
    ]
    text = written(tmp_path, lines)
    assert text.index("5 claims: holds 2, holds with a correction 1, does not hold 2, not decided 0.") < 400
    measured = "Measured: the slope of {} is 3 [2, 4]; asked for: at least 1."
    assert rows(text) == {
        "The papers' statements, in their own settings": [
            "| [2308.16898] | Theorem 1; some.ipynb | [first](pages/first.md#b) | What first:b states of "
            "\\|x\\|. Correction: only so. | holds with a correction |",
            "| [2308.16898] | Theorem 1; some.ipynb | [first](pages/first.md#a) | What first:a states of "
            "\\|x\\|. | holds |",
        ],
        "The papers' statements, in settings that stand for theirs": [
            f"| [2308.16898] | Theorem 1 | [second](pages/second.md#c) | What second:c states of \\|x\\|. "
            f"{measured.format('second:c')} | **does not hold** |"
        ],
        "Experiments of our own": [
            f"| [2308.16898] | Theorem 1 | [third](pages/third.md#f) | What third:f states of \\|x\\|. "
            f"{measured.format('third:f')} | **does not hold** |",
            "| jaxattn | a question | [third](pages/third.md#e) | What third:e states of \\|x\\|. | holds |",
        ],
        "Checks": [
            "| [2308.16898] | Theorem 1 | [second](pages/second.md#d) | What second:d states of \\|x\\|. | holds |"
        ],
        "How a verdict is made": [],
        "Counts": [],
    }
    assert "\n[2308.16898]: https://arxiv.org/abs/2308.16898\n" in text


def test_what_is_not_decided_says_why(tmp_path):
    unclear, moving = above("x", Number(3, 2, 4), 3), above("x", Number(9, 8, 9), 3)
    lines = [
        line(name, verdict="not decided", note="Still moving. More.", criteria=[str(one)])
        | {"criteria in numbers": [one.numbers]}
        for name, one in (("first:a", unclear), ("second:b", moving))
    ]
    first, second = rows(written(tmp_path, lines))["The papers' statements, in their own settings"]
    assert "Measured: x is 3 [2, 4]; asked for: at least 3. | not decided |" in first
    assert "|. Still moving. | not decided |" in second


def test_a_long_reason_ends_between_two_of_its_parts(tmp_path):
    note = f"Correction: {'as long as this, ' * 20}it holds."
    (row,) = rows(written(tmp_path, [line("first:a", note=note, verdict="holds with a correction")]))[
        "The papers' statements, in their own settings"
    ]
    assert "as long as this, as long as this … | holds with a correction |" in row
    assert len(row) < 400


@pytest.mark.parametrize(
    ("statements", "result"),
    [
        (
            ("Descent on W obeys one norm.", "Descent on W obeys two; a conjecture: x."),
            "Descent on W obeys one norm; two.",
        ),
        (("The more, the better.", "The less, the worse."), "The more, the better. The less, the worse."),
        ((f"One {'long ' * 30}.", f"Another {'long ' * 30}."), "2 claims: a, b"),
    ],
)
def test_our_own_claims_of_one_source_and_verdict_share_a_row(statements, result, tmp_path):
    lines = [
        line(f"first:{name}", setting="ours", statement=statement)
        for name, statement in zip("ab", statements, strict=True)
    ]
    own = rows(written(tmp_path, [*lines, line("first:c", setting="ours", source="another, 1")]))
    assert own["Experiments of our own"][0] == f"| a paper |  | [first](pages/first.md) | {result} | holds |"
    assert "pages/first.md#c" in own["Experiments of our own"][1]


def test_a_page_has_figures_origin_command_and_all_claims(tmp_path):
    (tmp_path / "first-2.png").touch()
    lines = [
        line("first:B", verdict="not decided"),
        line("first:a-.5"),
        line("first:c", kind="check"),
        line("second:b"),
    ]
    written(tmp_path, lines)
    assert "![second-2]" not in (tmp_path / "pages" / "second.md").read_text()
    page = (tmp_path / "pages" / "first.md").read_text()
    for part in (
        "\n# first\n\n![first](../first.png)\n\n![first-2](../first-2.png)\n",
        "\n**In the paper:** Figure of first. The authors' notebook: some.ipynb.\n",
        "\n**Differences from the paper:** Departure of first.\n",
        "\nMade by `make figures experiment=first` in 12 s, beside others. [All claims](../README.md).\n",
        "\n- not decided: [B](#b)\n- holds: [a-.5](#a-5), [c](#c)\n",
        "\n## B\n\n**first:B: not decided**\n\nWhat first:B states of",
        "\n## c\n\n**first:c: check, holds**\n",
        "\n- the slope of first:a-.5 is 3 [2, 4]; asked for: at least 1 (met)\n",
    ):
        assert part in page
    assert not (tmp_path / "pages" / "third.md").exists()


def test_a_table_stands_in_place_of_a_figure(tmp_path):
    one = table.Table(("$x$", "kept"), (("1", "3 of 5"),), "The largest $x$.")
    table.save(one, tmp_path, "second")
    written(tmp_path, [line("second:b")])
    page = (tmp_path / "pages" / "second.md").read_text()
    assert f"# second\n\n{table.markdown(one)}\n**In the paper:** Figure of second." in page
    assert "![" not in page


def test_the_pages_do_not_depend_on_the_order_in_which_the_claims_were_made(tmp_path):
    lines = [line("first:b"), line("second:b"), line("first:a")]
    (tmp_path / "other").mkdir()
    assert written(tmp_path, lines) == written(tmp_path / "other", lines[::-1])
    pages = [(folder / "pages" / "first.md").read_text() for folder in (tmp_path, tmp_path / "other")]
    assert pages[0] == pages[1]


def test_pages_of_experiments_that_are_gone_are_removed_but_no_file_of_a_user(tmp_path):
    written(tmp_path, [line("first:a"), line("second:b")])
    notes = {"notes.md": b"# notes\n", "bytes.md": b"\xff", "first.txt": b"x"}
    for name, content in notes.items():
        (tmp_path / "pages" / name).write_bytes(content)
    written(tmp_path, [line("first:a")])
    assert {path.name for path in (tmp_path / "pages").iterdir()} == {"first.md", *notes}
    assert all((tmp_path / "pages" / name).read_bytes() == content for name, content in notes.items())


def test_claims_are_counted_by_their_papers(tmp_path):
    lines = [
        line("first:a", source=FIRST),
        line("first:b", source="jaxattn, a question of ours", verdict="not decided", setting="ours"),
        line("second:c", source="arXiv 2308.16898, Figure 2, panel b", verdict="does not hold"),
        line("second:d", source="arXiv 2308.16898, Lemma 1", kind="check"),
    ]
    link = "arXiv [2308.16898](https://arxiv.org/abs/2308.16898)"
    assert f"| {link} | 1, 0, 1, 0 |  |  |\n| jaxattn |  |  | 0, 0, 0, 1 |" in written(tmp_path, lines)


def test_what_changed_is_a_page_of_its_own_with_the_reasons(tmp_path):
    lines = [line("first:a", verdict="does not hold"), line("second:b")]
    changes = {
        "first:a": {"before": "holds", "why": "A |bound| failed."},
        "first:gone": {"before": "holds", "why": "x"},
    }
    (tmp_path / "changes.yaml").write_text(yaml.safe_dump({"since": "abc", "claims": changes}))
    assert "\n2 verdicts and claims are [others than before](changes.md)" in written(tmp_path, lines)
    page = (tmp_path / "changes.md").read_text()
    assert "| [first:a](pages/first.md#a) | holds | does not hold | A \\|bound\\| failed. |" in page
    assert "| first:gone | holds | no claim | x |" in page


def test_the_changes_of_the_repository_are_changes():
    verdicts = {line["id"]: report.judged_as(line) for line in json.loads((FIGURES / "claims.json").read_text())}
    for name, change in yaml.safe_load((FIGURES / "changes.yaml").read_text())["claims"].items():
        assert change["before"].removesuffix(", a check") in (*Verdict, "new"), name
        assert verdicts.get(name) != change["before"], name
        assert change["why"], name


def test_the_page_says_how_many_intervals_and_verdicts_are_expected_to_be_wrong(tmp_path):
    # 39 intervals under one verdict make a miss all but certain; 1 under another, one in twenty; exact ones none.
    lines = [line("first:a", numbers=39), line("first:b"), line("first:c", numbers=0), line("first:d", kind="check")]
    lines[2]["expected"] = {}
    page = written(tmp_path, lines)
    assert "2 of these verdicts rest on 40 intervals of 95 %. About 2 of the intervals" in page
    assert "no more than about 1 verdicts" in page


def test_every_experiment_has_its_own_place():
    places = [described(name).place for name in experiments()]
    assert min(places) > 0
    assert len(set(places)) == len(places)


FIGURES = root() / "figures"


def test_the_index_and_the_pages_of_the_repository_are_shown_on_the_web():
    assert (FIGURES / "README.md").stat().st_size < 60_000
    pages = {path.stem: path.stat().st_size for path in (FIGURES / "pages").iterdir()}
    # GitHub shows no more of a file.
    assert set(pages) == set(experiments())
    assert max(pages.values()) < 512_000


def test_the_links_of_the_index_and_the_pages_of_the_repository_lead_somewhere():
    def targets(path):
        """The headings of a page as GitHub links to them."""
        headings = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
        found = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
        assert len(set(found)) == len(found)
        return found

    for page in (FIGURES / "README.md", *(FIGURES / "pages").iterdir()):
        links = re.findall(r"\]\((?!https)([^)#]*)#?([^)]*)\)", page.read_text())
        assert links
        for file, anchor in links:
            to = (page.parent / file) if file else page
            assert to.exists()
            assert not anchor or anchor in targets(to)
