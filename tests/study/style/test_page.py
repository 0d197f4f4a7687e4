"""The line of counts under a figure, and its files."""

import xarray

from jaxattn.study.style import page


def counted(**counts: int) -> xarray.Dataset:
    return xarray.Dataset(attrs={"attempted": 9, "kept": 7} | counts)


def test_excluded_seeds_are_counted_by_reason_and_a_remark_follows():
    figure = page.new_figure(7.2, 3.0)
    page.add_counts(figure, {"W": counted(diverged=2), "other": counted(infeasible=0)}, "A remark.", "problems")
    lines = figure.get_supxlabel().splitlines()
    assert lines[0] == "$W$: 7 of 9 problems kept (2 diverged)   other: 7 of 9 problems kept (0 infeasible)"
    assert lines[1] == "A remark."


def test_kept_seeds_whose_solution_is_not_known_to_be_unique_are_counted_and_nothing_is_said_where_all_are():
    figure = page.new_figure(14.4, 3.0)
    doubted = counted(diverged=2, not_unique=3, uniqueness_unknown=1)
    page.add_counts(figure, {"W": doubted, "other": counted(diverged=2, not_unique=0, uniqueness_unknown=0)})
    told = "3 of them with a solution that is not unique, 1 of them with one not known to be unique"
    first, _, second = figure.get_supxlabel().partition(")")
    assert first == f"$W$: 7 of 9 seeds kept, {told} (2 diverged"
    assert second.strip() == "other: 7 of 9 seeds kept (2 diverged)"


def test_a_line_too_long_for_a_narrow_figure_is_broken():
    figure, name = page.new_figure(3.3, 3.0), "a run whose name says everything that there is to say of it, and more"
    page.add_counts(figure, {name: counted(diverged=1, infeasible=1)})
    lines = figure.get_supxlabel().splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 80
    assert " ".join(lines).endswith("(1 diverged, 1 infeasible)")


def test_both_files_are_written_and_hold_no_date(tmp_path):
    paths = []
    for place in ("one", "two"):
        figure = page.new_figure(2.0, 2.0)
        figure.subplots().plot([0, 1])
        paths.append(page.save(figure, tmp_path / place, "drawn"))
    assert [path.name for path in paths[0]] == ["drawn.png", "drawn.pdf"]
    assert [one.read_bytes() for one in paths[0]] == [one.read_bytes() for one in paths[1]]
