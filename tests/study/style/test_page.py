"""A page: its width, the line of counts and the texts on it, and its files."""

import pytest
import xarray
from matplotlib import rcParams
from matplotlib.image import imread

from jaxattn.study.mistakes import UsageError
from jaxattn.study.style import fitting, page


def counted(**counts: int) -> xarray.Dataset:
    return xarray.Dataset(attrs={"attempted": 9, "kept": 9 - counts.get("diverged", 0)} | counts)


def test_runs_that_kept_all_and_as_many_are_counted_together_and_a_remark_follows():
    figure = page.full(3.0)
    page.add_counts(figure, {"W": counted(diverged=0), "KQ": counted(infeasible=0)}, "A remark.", "problems")
    assert figure.get_supxlabel() == "2 runs x 9 problems, all kept.\nA remark."
    page.add_counts(figure, {"W": counted(diverged=0)})
    assert figure.get_supxlabel() == "9 seeds, all kept."


def test_only_reasons_for_which_something_is_excluded_are_named():
    figure = page.full(3.0)
    page.add_counts(figure, {"W": counted(diverged=2, infeasible=0), "other": counted(diverged=0)})
    assert figure.get_supxlabel() == "$W$: 7 of 9 seeds kept (excluded: 2 diverged). other: 9 seeds, all kept."


def test_texts_longer_than_their_room_are_broken_between_words_and_formulas():
    long = "a text that says everything there is to say of $x + y = z + 1$, and more than that, "
    with page.style():
        figure = page.column(3.0)
        left, right = figure.subplots(1, 2)
        page.note(figure, 2 * long + "ended")
        left.set(title=long, xlabel="short", ylabel=2 * long)
        right.set(title="short")
    assert all(not line.cut for line in fitting.drawn_texts(figure))
    lines = left.get_title().split("\n")
    assert len(lines) > 2
    assert " ".join(lines) == long.strip()
    assert left.get_xlabel() == right.get_title() == "short"
    assert all(line.count("$") % 2 == 0 for line in figure.get_supxlabel().split("\n"))
    assert left.get_ylabel().count("\n") > 0


def test_small_and_cut_texts_are_found_and_hidden_ones_are_not():
    with page.style():
        figure = page.column(3.0)
        axes = figure.subplots()
        axes.set_title("title")
        assert min(line.size for line in fitting.drawn_texts(figure)) == page.SMALLEST
        axes.text(0.5, 0.5, "tiny", fontsize=5)
        axes.text(0.5, 0.5, "hidden", fontsize=4, visible=False)
        axes.text(1.0, 0.5, "over the edge", in_layout=False)
        lines = fitting.drawn_texts(figure)
    assert min(line.size for line in lines) == 5
    assert [line.text for line in lines if line.cut] == ["over the edge"]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        *((0.00117, "0.0012"), (0.0012, "0.0012"), (0.00120001, "0.0013"), (0.0999, "0.1"), (7.0, "7")),
        *((8.61e-5, r"$8.7\times10^{-5}$"), (9.99e-5, r"$1.0\times10^{-4}$"), (0.0, "0"), (-1e-16, "0")),
    ],
)
def test_what_is_at_most_is_rounded_up(value, written):
    assert page.at_most(value) == written


@pytest.mark.parametrize(("make", "width"), [(page.column, 3.3), (page.full, 6.75)])
def test_both_files_have_the_size_of_the_page_and_truetype_fonts_and_hold_no_date(make, width, tmp_path):
    paths, before = [], dict(rcParams)
    for place in ("one", "two"):
        with page.style():
            figure = make(2.0)
            figure.subplots().plot([0, 1])
            figure.axes[0].set(title=r"formulas: $\|W_{mm}\|_F \leq 10^{-3}\,\sum_i \alpha_i$", xlabel="steps")
            page.note(figure, "a long line under the figure " * 9)
        # Outside the style, as a study saves it.
        paths.append(page.save(figure, tmp_path / place, "drawn"))
    assert dict(rcParams) == before
    png, pdf = paths[0]
    assert [path.name for path in paths[0]] == ["drawn.png", "drawn.pdf"]
    assert [one.read_bytes() for one in paths[0]] == [one.read_bytes() for one in paths[1]]
    assert imread(png).shape[:2] == (600, 300 * width)
    assert f"/MediaBox [ 0 0 {72 * width:g} 144 ]".encode() in pdf.read_bytes()
    assert b"/Type3" not in pdf.read_bytes()
    assert b"/FontFile2" in pdf.read_bytes()  # As TrueType fonts are embedded.


def test_a_style_of_ones_own_comes_on_top_and_is_gone_afterwards(tmp_path):
    with page.style():
        before = rcParams["font.size"], rcParams["axes.grid"]
    own = tmp_path / "my.mplstyle"
    own.write_text("font.size: 11.5\n")
    with page.with_own(str(own)), page.style():
        assert (rcParams["font.size"], rcParams["axes.grid"]) == (11.5, before[1])
    with page.with_own("dark_background"), page.style():
        assert rcParams["figure.facecolor"] == "black"
    with page.with_own(None), page.style():
        assert (rcParams["font.size"], rcParams["axes.grid"]) == before


def test_a_style_with_a_mistake_is_refused_and_leaves_no_trace(tmp_path):
    own = tmp_path / "my.mplstyle"
    for text, wrong in (("lines.linewidth: thick", "Could not convert"), ("nonsense", "Missing colon")):
        own.write_text(text)
        with (
            pytest.raises(UsageError, match=rf"style: expected .* found .*my\.mplstyle: .*{wrong}"),
            page.with_own(str(own)),
        ):
            pass
    with page.style():
        assert rcParams["lines.linewidth"] == 1.3
