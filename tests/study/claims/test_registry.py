"""Experiments as folders: their rooms, what is missing in them, and what is judged."""

import importlib
import sys

import jax
import numpy as np
import pytest
import xarray

from jaxattn.study.claims import (
    Claim,
    Experiment,
    Judgement,
    Number,
    Setting,
    Source,
    Verdict,
    above,
    experiment,
    folders,
    judged,
    not_a_number,
    registry,
)

KEY = jax.random.key(0)
ROOMS = {
    "measure": "def measure(record, solver=None):\n    return record\n",
    "claims": "CLAIMS = ()\ndef summarize(datasets, key):\n    return datasets\n",
    "figure": "def draw(summaries):\n    return None\n",
}
# The package has a function of the same name.
MODULE = importlib.import_module("jaxattn.study.claims.registry")


@pytest.fixture
def house(tmp_path, monkeypatch):
    """Writes the rooms of an experiment of this test's own, and returns its folder as a dotted path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def build(**rooms):
        folder = tmp_path / "house" / "one"
        folder.mkdir(parents=True)
        for place in (folder, folder.parent):
            (place / "__init__.py").touch()
        for name, text in (ROOMS | rooms).items():
            if text is not None:
                (folder / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        return "house.one"

    yield build
    for name in [name for name in sys.modules if name.partition(".")[0] == "house"]:
        del sys.modules[name]


def claim(name, mean=1.0):
    stated = (above("it", Number.exact(mean), 0.5),)
    source = Source("paper", "figure 1", Setting.EXACT)
    return Claim(name, source, "It is so.", lambda _: Judgement({}, {}, {}, stated=stated), dict)


def of(*claims):
    return Experiment(measure=lambda record: record, summarize=lambda runs, _: runs, claims=claims, draw=print)


def test_the_rooms_of_an_experiment_are_found(house):
    one = experiment(house())
    assert one.measure("record") == "record"
    runs = {"W": xarray.Dataset()}
    assert one.summarize(runs, KEY) is runs
    assert one.draw is not None
    assert (one.claims, one.draw({}), one.table, one.view) == ((), None, None, None)


def test_an_experiment_has_a_table_in_place_of_a_figure(house):
    one = experiment(house(figure=None, table="def table(summaries):\n    return summaries\n"))
    assert one.draw is None
    assert one.table is not None
    assert one.table({}) == {}


@pytest.mark.parametrize(("rooms", "found"), [({"figure": None}, "none"), ({"table": "table = print"}, "both")])
def test_an_experiment_has_exactly_one_of_figure_and_table(house, rooms, found):
    asked = rf"experiment: expected one of the modules house\.one\.figure and house\.one\.table, found {found}"
    with pytest.raises(ValueError, match=asked):
        experiment(house(**rooms))


def test_a_table_without_its_function_is_named(house):
    with pytest.raises(ValueError, match=r"experiment: expected table in house\.one\.table, found none"):
        experiment(house(figure=None, table="draw = print"))


def test_the_claims_of_a_configuration_are_those_with_its_id():
    one = of(claim("a-3:W"), claim("a-5:W"), claim("a-3:KQ"))
    assert [found.id for found in one.of("a-3")] == ["a-3:W", "a-3:KQ"]
    assert one.of("a") == ()


@pytest.mark.parametrize("room", ["measure", "claims"])
def test_a_room_that_is_missing_is_named(house, room):
    with pytest.raises(ValueError, match=rf"experiment: expected a module house\.one\.{room}, found none"):
        experiment(house(**{room: None}))


@pytest.mark.parametrize(
    ("room", "name"), [("measure", "measure"), ("claims", "summarize"), ("claims", "CLAIMS"), ("figure", "draw")]
)
def test_what_is_missing_in_a_room_is_named(house, room, name):
    with pytest.raises(ValueError, match=rf"experiment: expected {name} in house\.one\.{room}, found none"):
        experiment(house(**{room: ROOMS[room].replace(name, "other")}))


@pytest.mark.parametrize("folder", ["jaxattn.experiments.local.none", "jaxattn.experiments.nowhere.none"])
def test_a_folder_that_is_not_there_is_named(folder):
    with pytest.raises(ValueError, match=rf"experiment: expected a module {folder}\.measure, found none"):
        experiment(folder)


def test_a_package_that_a_room_needs_and_lacks_is_named_as_such(house):
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        experiment(house(claims="import no_such_package"))


def test_every_folder_is_a_package_of_a_topic():
    found = folders()
    assert found == sorted(found)
    assert "jaxattn.experiments.local.rate" in found
    assert {name.count(".") for name in found} == {3}


def test_claims_are_ordered_by_id_and_two_of_one_id_are_refused(monkeypatch):
    houses = {"one": of(claim("b:1"), claim("a:1")), "two": of(claim("a:2"))}
    monkeypatch.setattr(MODULE, "folders", lambda: [*houses])
    monkeypatch.setattr(MODULE, "experiment", houses.__getitem__)
    assert list(registry()) == ["a:1", "a:2", "b:1"]
    houses["two"] = of(claim("b:1"), claim("c:1"))
    with pytest.raises(ValueError, match=r"claims: expected different ids, found \['b:1'\] twice"):
        registry()


def test_what_is_not_a_number_is_named_wherever_it_was_measured():
    values = np.array([[1.0, np.nan], [np.nan, np.inf]])
    one = xarray.Dataset({"off": (("seed", "norm"), values), "rank": ("seed", [1, 2])}, {"norm": ["a", "b"]})
    assert not_a_number({"W": one.isel(norm=[0], seed=[0]), "KQ": one}) == (
        "KQ: 2 of 4 entries of off are not a number."
    )
    assert not_a_number({"W": one.fillna(0.0)}) == ""
    assert "radius" in not_a_number({"W": xarray.Dataset(coords={"radius": [1.0, np.nan]})})
    assert not_a_number({}) == ""


def test_measured_datasets_are_judged_by_the_claims_of_their_configuration():
    house, runs = of(claim("a-3:W"), claim("a-3:KQ", mean=0.0), claim("a-5:W")), {"W": xarray.Dataset({"off": 1.0})}
    summaries, found = judged(house, "a-3", runs, KEY)
    assert summaries is runs
    assert [(one.id, judgement.verdict) for one, judgement in found] == [
        ("a-3:W", Verdict.HOLDS),
        ("a-3:KQ", Verdict.FAILS),
    ]


def test_nothing_is_estimated_from_what_is_not_a_number():
    summaries, found = judged(of(claim("a:W"), claim("a:KQ")), "a", {"W": xarray.Dataset({"off": np.nan})}, KEY)
    assert summaries is None
    assert [judgement.verdict for _, judgement in found] == [Verdict.OPEN] * 2
    assert {judgement.note for _, judgement in found} == {"W: 1 of 1 entries of off are not a number."}
