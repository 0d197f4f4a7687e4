"""The page of figures: every claim with its numbers, counts and verdict, in the order of the paper."""

from types import SimpleNamespace

import pytest

from jaxattn.study import report
from jaxattn.study.claims import Number, above
from jaxattn.study.configuration.names import described, experiments
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
    name: SimpleNamespace(of=f"Figure of {name}.", departs=f"Departure of {name}.", place=place)
    for name, place in (("second", 2), ("first", 1), ("third", 3))
}


@pytest.fixture
def page(tmp_path):
    lines = [line("first:a"), line("second:b", numbers=40, runs=9, verdict="does not hold"), line("first:c")]
    report.write(tmp_path / "README.md", STUDIES, lines)
    return (tmp_path / "README.md").read_text()


def test_figures_stand_in_the_order_of_the_paper_and_those_without_claims_are_left_out(page):
    places = [page.index(f"## {name}\n") for name in ("first", "second")]
    assert places == sorted(places)
    assert "third" not in page
    for name in ("first", "second"):
        assert f"![{name}]({name}.png)" in page
        assert f"Figure of {name}." in page
        assert f"Departure of {name}." in page


def test_the_page_does_not_depend_on_the_order_in_which_the_claims_were_made(tmp_path):
    lines = [line("first:b"), line("second:b"), line("first:a")]
    report.write(tmp_path / "README.md", STUDIES, lines)
    report.write(tmp_path / "other.md", STUDIES, lines[::-1])
    assert (tmp_path / "README.md").read_text() == (tmp_path / "other.md").read_text()


def test_a_table_stands_in_place_of_a_figure(tmp_path):
    written = table.Table(("$x$", "kept"), (("1", "3 of 5"),), "The largest $x$.")
    table.save(written, tmp_path, "second")
    report.write(tmp_path / "README.md", STUDIES, [line("first:a"), line("second:b")])
    page = (tmp_path / "README.md").read_text()
    assert f"## second\n\n{table.markdown(written)}\n**In the paper:** Figure of second." in page
    assert "![second]" not in page
    assert "![first](first.png)" in page


def test_every_claim_has_its_numbers_counts_and_verdict(page):
    assert "3 claims: holds 2, holds with a correction 0, does not hold 1, not decided 0." in page
    assert "### first:a: holds" in page
    assert "| number 0 | 7 | 0 | -0.5 to 0.25 |" in page
    assert "The rule of second:b." in page
    assert "(a paper; the paper's setting)" in page
    assert "- the slope of second:b is 3 [2, 4]; asked for: at least 1 (met)" in page
    assert page.count("As corrected:") == 1
    assert "- \\|x\\| is 1; asked for: at most 2 (met)" in page
    assert "run 0: 2 of 5 kept, 3 diverged, 0 infeasible" in page
    assert "9 runs: 18 of 45 kept, 4 of them with a solution that is not unique, 27 diverged, 0 infeasible" in page
    assert "| What first:a states of \\|x\\|. | holds |" in page


def test_claims_are_grouped_by_their_papers(tmp_path):
    lines = [
        line("first:a", source="arXiv 2308.16898, Theorem 1"),
        line("first:b", source="jaxattn, a question of ours", verdict="not decided"),
        line("second:c", source="arXiv 2308.16898, Figure 2, panel b", verdict="does not hold"),
        line("second:d", source="arXiv 2308.16898, Lemma 1", kind="check"),
    ]
    report.write(tmp_path / "README.md", STUDIES, lines)
    page = (tmp_path / "README.md").read_text()
    link = "arXiv [2308.16898](https://arxiv.org/abs/2308.16898)"
    assert f"| {link} | 2 | 1 | 0 | 1 | 0 |\n| jaxattn | 1 | 0 | 0 | 0 | 1 |" in page
    first, second = page.index(f"**{link}**"), page.index("**jaxattn**")
    rows = [page.index(f"| What {name} states") for name in ("first:a", "second:c", "second:d", "first:b")]
    assert rows == sorted(rows)
    assert first < rows[0] < rows[2] < second < rows[3]


def test_the_page_says_how_many_intervals_and_verdicts_are_expected_to_be_wrong(tmp_path):
    # 39 intervals under one verdict make a miss all but certain; 1 under another, one in twenty; exact ones none.
    lines = [line("first:a", numbers=39), line("first:b"), line("first:c", numbers=0), line("first:d", kind="check")]
    lines[2]["expected"] = {}
    report.write(tmp_path / "README.md", STUDIES, lines)
    page = (tmp_path / "README.md").read_text()
    assert "2 of these verdicts rest on 40 intervals of 95 %. About 2 of the intervals" in page
    assert "no more than about 1 verdicts" in page


def test_every_experiment_has_its_own_place():
    places = [described(name).place for name in experiments()]
    assert min(places) > 0
    assert len(set(places)) == len(places)
