"""Pages of the reproduction and markup of the pictures, as they are written before a build."""

import json
import re
from types import SimpleNamespace

import pytest

from jaxattn.study.style import table
from tests.docs.test_api_pages import EXTENSIONS, extension
from tests.study.test_report import line

reproduction = extension("reproduction")
panels = extension("panels")
pictures = extension("pictures")
STUDY = SimpleNamespace(
    of="A figure.", notebook="", departs="No.", experiment="jaxattn.experiments.max_margin.rate", place=1
)
LINES = [
    line("rate:a", revision="abc1234", verdict="not decided", source="arXiv 1, Theorem <2>"),
    line("rate:b-c", revision="abc1234", kind="check"),
]


def test_a_page_has_figure_configuration_and_all_of_every_claim():
    page = reproduction.page("rate", STUDY, LINES)
    assert ":::{result} rate\n:alt: A figure.\n:::" in page
    assert "{literalinclude} ../../conf/experiment/rate.yaml" in page
    assert "(claim-rate-a)=\n### rate:a: not decided" in page
    assert "(claim-rate-b-c)=\n### rate:b-c: check, holds" in page
    for part in (
        "the paper's setting",
        "| number 0 | 7 | 0 | -0.5 to 0.25 |",
        "asked for: at least 1 (met)",
        "Strongest evidence against it: the slope of rate:a is 3 [2, 4]; asked for: at least 1 (met so far with",
        "Why it is not decided: The rule of rate:a.",
        "run 0: 2 of 5 kept, 3 diverged",
        "`make figures experiment=rate` from `conf/experiment/rate.yaml`",
        "commit `abc1234`",
        "`abc`",
    ):
        assert part in page


def test_a_page_shows_a_second_figure_below_the_first(tmp_path, monkeypatch):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "rate-2.png").touch()
    monkeypatch.setattr(reproduction, "ROOT", tmp_path)
    assert ":::\n\n:::{result} rate-2\n:alt: A figure.\n:::" in reproduction.page("rate", STUDY, LINES)


def test_a_page_shows_a_table_in_place_of_a_figure(tmp_path, monkeypatch):
    written = table.Table((r"$\sigma_1$", "kept"), ((r"$2\times10^{-16}$", "3 of 5"),), "The largest $x$.")
    table.save(written, tmp_path / "figures", "rate")
    monkeypatch.setattr(reproduction, "ROOT", tmp_path)
    page = reproduction.page("rate", STUDY, LINES)
    assert page.startswith(f"# rate\n\n{table.markdown(written)}\n**In the paper:** A figure.")
    assert ":::{result}" not in page
    assert "`make figures experiment=rate` makes this table and judges the claims below." in page


@pytest.mark.parametrize("name", ["low-rank-lemma", "tensor-trick"])
def test_formulas_of_the_tables_are_formulas_on_the_site(name):
    config, mdit, renderer = (
        pytest.importorskip(module, reason="`make docs` installs it")
        for module in ("myst_parser.config.main", "myst_parser.parsers.mdit", "markdown_it.renderer")
    )
    text = table.shown(reproduction.ROOT / "figures", name)
    settings = config.MdParserConfig(enable_extensions={"dollarmath"})
    parsed = mdit.create_md_parser(settings, renderer.RendererHTML).parse(text)
    outer = [one.type for one in parsed if one.level == 0 and one.type.endswith("_open")]
    assert outer == ["table_open", "paragraph_open"]
    inside = [child for one in parsed for child in one.children or ()]
    assert sum(child.type == "math_inline" for child in inside) == text.count("$") / 2 > 5
    assert not any("$" in child.content for child in inside if child.type == "text")


def test_the_front_page_counts_what_is_not_decided_and_its_rows_say_what_they_are_chosen_by():
    index = reproduction.index({"rate": STUDY}, LINES)
    assert "1 claim: holds 0, holds with a correction 0, does not hold 0, not decided 1. 1 check" in index
    assert "## Not decided: 1\n" in index
    assert "- {ref}`rate:a <claim-rate-a>`: The rule of rate:a." in index
    assert index.count("<tr data-paper=") == 2
    assert '<tr data-paper="arXiv 1" data-topic="max margin" data-verdict="not decided">' in index
    assert "(arXiv 1, Theorem &lt;2&gt;)" in index
    assert 'href="rate.html#claim-rate-a"' in index


@pytest.mark.parametrize("lacking", ["revision", "criteria in numbers"])
def test_claims_of_another_version_are_named(lacking, tmp_path, monkeypatch):
    (tmp_path / "figures").mkdir()
    written = {key: value for key, value in LINES[0].items() if key != lacking}
    (tmp_path / "figures" / "claims.json").write_text(json.dumps([written]))
    monkeypatch.setattr(reproduction, "ROOT", tmp_path)
    with pytest.raises(ValueError, match=f"expected lines with {lacking}; `make figures` writes them"):
        reproduction.pages()


@pytest.fixture
def views(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "VIEWS", tmp_path)
    steps = {"W": [1, 100], "KQ": [1, 10]}
    run = {"off": {"frobenius": [0.5, 0.25], "nuclear": [0.5, 0.125]}}
    seed = {"seed": 7, "place": "</script>", "X": [[[1.0, 2.0], [0.0, -2.0]]] * 2, "runs": {"W": run, "KQ": run}}
    (tmp_path / "some.json").write_text(json.dumps({"steps": steps, "seeds": [seed]}))
    return tmp_path


def test_a_picture_holds_its_view_its_panels_and_its_numbers_as_a_table(views):
    text = pictures.markup("some", "trajectories")
    inside = re.search(r'<script type="application/json">(.*?)</script>', text)
    assert inside is not None
    found = json.loads(inside[1])
    assert found["view"] == json.loads((views / "some.json").read_text())
    plane, attention, distance = found["panels"]
    assert plane["x"]["ends"] == [-2.5, 2.5]
    assert attention["x"]["names"] == ["1", "2", "1", "2"]
    assert (distance["x"]["ends"], distance["x"]["names"]) == ([1, 100], ["1", "1e1", "1e2"])
    assert '<th scope="row">7</th><td>&lt;/script&gt;</td><td>(K, Q)</td><td>10</td><td>0.25</td><td>0.125</td>' in text


def test_a_view_that_is_not_there_is_an_error(views):
    assert views.exists()
    with pytest.raises(FileNotFoundError):
        pictures.markup("other", "trajectories")


def test_axes_have_ticks_within_their_ends():
    assert panels.logarithmic("x", (0.5, 2e4), 2)["names"] == ["1", "1e2", "1e4"]
    assert panels.curbed("x", (-5.0, 200.0))["ticks"] == [-1, 0, 1, 10, 100]


def test_every_kind_of_picture_has_panels_a_key_and_a_script():
    script = (EXTENSIONS.parent / "_static" / "pictures" / "pictures.js").read_text()
    assert set(panels.PANELS) == set(panels.KEYS) == {*pictures.ROWS, "atlas"}
    assert f"const PICTURES = {{ {', '.join(panels.PANELS)} }};" in script


def test_the_scripts_are_at_most_420_lines_and_load_nothing():
    scripts = [path.read_text() for path in (EXTENSIONS.parent / "_static" / "pictures").glob("*.js")]
    assert len(scripts) == 2
    assert sum(text.count("\n") for text in scripts) <= 420
    assert not any(re.search(r"\b(fetch|import|XMLHttpRequest)\b", text) for text in scripts)
