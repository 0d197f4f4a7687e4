"""Views: JSON values of few digits, in a file of moderate size; and those of the experiments that have one."""

import json

import numpy as np
import pytest

from jaxattn.experiments.bias.atlas import PREDICTIONS
from jaxattn.study.claims import experiment
from jaxattn.study.style import view
from tests.experiments.bias import synthetic
from tests.experiments.landscape import test_no_stationary_point
from tests.experiments.language import test_lm_margins


def test_numbers_are_rounded_to_digits_that_are_drawn():
    assert view.rounded(np.array([[1.23456, -2e-9], [0.0, 123456.0]]), 3) == [[1.23, -2e-09], [0.0, 123000.0]]
    assert view.rounded(np.array([True, False])) == [True, False]
    assert view.rounded(np.float64(2 / 3)) == 0.6667


def test_a_view_is_written_beside_the_figure(tmp_path):
    path = view.save({"steps": [1, 2]}, tmp_path, "rate")
    assert path == view.place(tmp_path, "rate") == tmp_path / "views" / "rate.json"
    assert json.loads(path.read_text()) == {"steps": [1, 2]}


def test_what_a_page_cannot_hold_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        view.save({"x": float("nan")}, tmp_path, "rate")
    with pytest.raises(ValueError, match="rate: expected a view of at most 300,000 bytes, found 1,0"):
        view.save({"x": "a" * 1_000_000}, tmp_path, "rate")
    assert list(tmp_path.iterdir()) == []


def shown(folder, datasets):
    """The view of an experiment on datasets built by hand, as JSON gives it back."""
    draw = experiment(f"jaxattn.experiments.{folder}").view
    assert draw is not None
    return json.loads(json.dumps(draw(datasets), allow_nan=False))


def test_landscapes_with_unequal_and_equal_scores():
    one = shown("landscape.no_stationary_point", test_no_stationary_point.measured())
    assert [each["name"] for each in one["landscapes"]] == ["unequal scores", "equal scores"]
    for each in one["landscapes"]:
        assert np.shape(each["risk"]) == (len(one["second"]), len(one["first"]))
        points = np.concatenate([np.array(line) for line in each["contours"]])
        assert points[:, 0].min() >= one["first"][0]
        assert points[:, 0].max() <= one["first"][-1]


def test_ratios_of_every_run_along_its_steps():
    predicted = PREDICTIONS[0]
    one = shown("bias.atlas", {predicted.run: synthetic.run({predicted.norm: 0.99})})
    (row,) = one["rows"]
    assert (row["weights"], row["predicted"], row["seeds"]) == ("W", predicted.norm, synthetic.SEEDS)
    assert np.shape(row["ratio"]) == (len(one["norms"]), len(row["steps"]))
    assert row["ratio"][one["norms"].index(predicted.norm)][-1] == pytest.approx(0.99, abs=1e-3)


def test_margins_of_texts_with_and_without_a_conflict():
    one = shown("language.lm_margins", test_lm_margins.measured())
    assert [text["feasible"] for text in one["texts"]] == [True] * 3 + [False] * 3
    for text in one["texts"]:
        kinds = [len(margins) > 0 for margins in text["margins"]]
        assert kinds == [True, False, False] if text["feasible"] else not kinds[0]
        assert {len(margin) for kind in text["margins"] for margin in kind} == {len(one["steps"])}
