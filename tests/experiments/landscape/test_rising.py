"""Trends of shares along a size: which pairs of points are apart, and what is asked of them."""

import itertools

import numpy as np
import pytest

from jaxattn.experiments.landscape.rising import Point, trend
from jaxattn.study.claims import Number


def curve(*means, half=0.05):
    return [Point(f"run {k}", Number(mean, mean - half, mean + half)) for k, mean in enumerate(means)]


@pytest.mark.parametrize(
    ("means", "up", "outcomes"),
    [
        ((0.1, 0.5, 0.9), True, ["met", "met"]),
        ((0.1, 0.5, 0.9), False, ["broken", "broken"]),
        ((0.9, 0.5, 0.1), False, ["met", "met"]),
        ((0.1, 0.9, 0.5), True, ["met", "broken"]),
        ((0.1, 0.15, 0.25), True, ["met", "met"]),
        ((0.1, 0.15, 0.18), True, ["unclear", "met"]),
    ],
)
def test_ends_have_to_be_apart_and_no_neighbours_the_other_way(means, up, outcomes):
    found = trend([curve(*means)], up)
    assert [str(one.outcome) for one in found.criteria("rise", "neighbours")] == outcomes
    assert found.pairs == 2


def test_the_least_change_is_asked_for_and_every_curve_without_one_is_named():
    found = trend([curve(0.1, 0.9), curve(0.3, 0.35)], up=True)
    assert (found.apart, found.against, found.level) == (1, (), ("run 1",))
    np.testing.assert_allclose(found.change, (0.05, -0.05, 0.15))
    assert "to run 1." in found.remark("points")


def test_other_pairs_than_neighbours_can_be_compared():
    means = (0.4, 0.35, 0.28)
    neighbours = trend([curve(*means)], up=True)
    every = trend([curve(*means)], up=True, pairs=lambda one: itertools.combinations(one, 2))
    assert neighbours.against == ()
    assert every.against == ("run 0 to run 2",)
    assert "(run 0 to run 2)" in every.remark("points")


def test_what_cannot_be_told_is_said():
    assert trend([], up=True).undecided == "No curve has two points."
    assert [str(one.outcome) for one in trend([], up=True).criteria("rise", "points")] == ["unclear", "met"]
    assert trend([curve(0.5, 0.52)], up=True).undecided == "No two compared points have disjoint intervals."
    assert trend([curve(0.9, 0.1)], up=True).undecided == ""
