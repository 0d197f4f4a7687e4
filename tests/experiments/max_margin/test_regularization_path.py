"""The experiment on regularization paths: what is estimated of them, and the verdicts."""

import jax
import numpy as np
import pytest

from jaxattn.experiments.max_margin.regularization_path import claims as regularization
from jaxattn.experiments.max_margin.regularization_path import figure
from jaxattn.experiments.max_margin.regularization_path.examples import RADII, path, runs
from jaxattn.study.claims import Verdict
from tests.instances import drawn_lines

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, Verdict.HOLDS),
        ({"exponent": -0.5, "size": 0.3}, Verdict.FAILS),
        ({"size": 50.0}, Verdict.FAILS),
        ({"other": 1e-3}, Verdict.FAILS),
        ({"selected": False}, Verdict.FAILS),
        ({"exponent": -0.85}, Verdict.HOLDS),
        ({"exponent": -0.75, "size": 2.0}, Verdict.FAILS),
        ({"exponent": -1.15, "size": 20.0}, Verdict.HOLDS),
        ({"exponent": -1.25, "size": 20.0}, Verdict.FAILS),
        ({"size": 19.5}, Verdict.OPEN),
        ({"other": 5e-3}, Verdict.OPEN),
        ({"kept": 8}, Verdict.OPEN),
        ({"radii": RADII[:6]}, Verdict.OPEN),
    ],
)
def test_the_verdicts_follow_the_paths(changed, verdict):
    summaries = regularization.summarize(runs(**changed), KEY)
    judged = [claim.judge(summaries) for claim in regularization.CLAIMS]
    assert {one.verdict for one in judged} == {verdict}
    for one, summary in zip(judged, summaries.values(), strict=True):
        (counts,) = one.counts.values()
        assert counts["attempted"] == counts["kept"] + counts["infeasible"] + counts["unsolved"]
        assert float(summary["one_way"][0]) == pytest.approx(1 / 3, abs=0.05)
        assert float(summary["apart"][0]) == 0


def test_one_seed_at_other_tokens_refutes_the_limit():
    found = runs()
    found["W"]["selected"].values[4, -1] = False
    summaries = regularization.summarize(found, KEY)
    assert [claim.judge(summaries).verdict for claim in regularization.CLAIMS] == [Verdict.FAILS, Verdict.HOLDS]
    found["W"]["selected"].values[4] = [False] * (RADII.size - 1) + [True]
    summaries = regularization.summarize(found, KEY)
    assert [claim.judge(summaries).verdict for claim in regularization.CLAIMS] == [Verdict.HOLDS, Verdict.HOLDS]


def test_a_path_that_was_not_measured_decides_nothing():
    summaries = regularization.summarize({"W": path("W")}, KEY)
    of_W, of_KQ = (claim.judge(summaries) for claim in regularization.CLAIMS)
    assert of_W.verdict is Verdict.HOLDS
    assert of_KQ.verdict is Verdict.OPEN
    assert of_KQ.note == "No regularization path of KQ was measured, only of ['W']."


def test_the_exponent_is_that_of_the_power_and_the_figure_draws_the_estimates():
    summaries = regularization.summarize(runs(exponent=-0.8), KEY)
    np.testing.assert_allclose(summaries["W"]["exponent_mean"].sel(norm="frobenius"), -0.8, atol=1e-6)
    panels = figure.draw(summaries).axes
    assert len(panels) == 3
    drawn = drawn_lines(panels[0])[0]
    np.testing.assert_allclose(drawn[1], summaries["W"]["distance"].sel(norm="frobenius"))
    assert panels[0].get_ylim() == panels[1].get_ylim()
    titles = [axes.get_title() for axes in panels]
    assert titles[:2] == [
        "(a) path of $W$ tends to $W_F$ like $R^{-0.80}$",
        "(b) path of $(K, Q)$ tends to $W_*$ like $R^{-0.80}$",
    ]
    assert titles[2] == "(c) two minima: 0% ($W$) and 0% ($KQ^\\top$) of seeds"


def test_the_figure_says_when_a_path_is_nearest_to_the_other_solution():
    summaries = regularization.summarize(runs(other=1e-3), KEY)
    left, *_ = figure.draw(summaries).axes
    assert left.get_title() == "(a) path of $W$ is nearest to $W_*$, which refutes the claim"


def test_a_path_without_a_kept_seed_is_named():
    measured = {"W": path("W"), "KQ": path("KQ").isel(seed=slice(0))}
    with pytest.raises(ValueError, match="expected a kept seed of each path"):
        regularization.summarize(measured, KEY)
