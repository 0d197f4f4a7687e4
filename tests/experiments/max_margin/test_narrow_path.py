"""The experiment on paths of few columns: what is measured of a record, and the verdicts."""

import jax
import numpy as np
import pytest

from jaxattn.experiments.max_margin.narrow_path import claims, figure
from jaxattn.experiments.max_margin.narrow_path.examples import RADII, path, runs
from jaxattn.study.claims import Verdict
from tests.instances import drawn_lines

KEY = jax.random.key(0)
HOLDS, CORRECTED, FAILS, OPEN = Verdict.HOLDS, Verdict.CORRECTED, Verdict.FAILS, Verdict.OPEN


@pytest.mark.parametrize(
    ("changed", "verdicts"),
    [
        ({}, (HOLDS, HOLDS, HOLDS)),
        ({"exponent": -0.85, "size": 3.0}, (HOLDS, HOLDS, HOLDS)),
        ({"exponent": -0.75, "size": 3.0}, (FAILS, HOLDS, HOLDS)),
        ({"size": 400.0}, (FAILS, HOLDS, HOLDS)),
        ({"worse": 0.02}, (CORRECTED, HOLDS, HOLDS)),
        ({"worse": 0.01}, (OPEN, HOLDS, HOLDS)),
        ({"worse": -0.2}, (HOLDS, HOLDS, HOLDS)),
        ({"margin": 0.5}, (HOLDS, CORRECTED, FAILS)),
        ({"margin": 0.5, "reached": 0.9}, (HOLDS, FAILS, FAILS)),
        ({"margin": 0.9}, (HOLDS, OPEN, OPEN)),
        ({"there": False}, (HOLDS, HOLDS, OPEN)),
        ({"kept": 12}, (OPEN, OPEN, OPEN)),
        ({"radii": RADII[:6]}, (OPEN, OPEN, OPEN)),
    ],
)
def test_the_verdicts_follow_the_numbers(changed, verdicts):
    summaries = claims.summarize(runs(**changed), KEY)
    assert tuple(claim.judge(summaries).verdict for claim in claims.CLAIMS) == verdicts


def test_one_path_at_other_tokens_refutes_the_limit():
    found = runs()
    found["m=2"]["share"].values[3, -1] = -0.1
    summaries = claims.summarize(found, KEY)
    assert claims.CLAIMS[0].judge(summaries).verdict is FAILS
    # But not where the bound does not bind.
    found = runs()
    found["m=2"]["share"].values[-1, -1] = -0.1
    assert claims.CLAIMS[0].judge(claims.summarize(found, KEY)).verdict is HOLDS


def test_the_note_says_what_is_not_certified():
    found = runs()
    found["m=1"]["worse"].values[:5] = [0.5, -0.1, -0.1, 0.0, 0.0]
    found["m=1"]["worse"].values[5:] = 0.0
    note = claims.CLAIMS[0].judge(claims.summarize(found, KEY)).note
    assert (
        "at m=1 the limit equals the solver's best solution in 27 of 30 seeds, has a smaller norm in 2 and a larger"
        in note
    )
    assert "Their global optimality is not certified" in note


def test_the_figure_draws_the_estimates_of_every_width():
    summaries = claims.summarize(runs(), KEY)
    panels = figure.draw(summaries).axes
    assert len(panels) == 3
    drawn = drawn_lines(panels[0])[0]
    np.testing.assert_allclose(drawn[1], summaries["m=1"]["distance"])
    seeds = sum(len(np.asarray(points.get_offsets())) for points in panels[2].collections)
    assert seeds == 60
    shown = [text.get_text() for text in panels[2].texts]
    assert sorted(shown) == sorted(["15 at the\noptimal tokens", "15 at other\ntokens"] * 2)
    titles = [axes.get_title() for axes in panels]
    assert titles == [
        "(a) the path nears its limit like $R^{-1.00}$ and $R^{-1.00}$",
        "(b) its margin reaches 99.9% of the best found",
        "(c) 30 of 60 descents end elsewhere",
    ]


def test_the_figure_says_when_descent_refutes_the_claim():
    drawn = figure.draw(claims.summarize(runs(margin=0.3), KEY))
    assert drawn.axes[2].get_title() == "(c) claim refuted: 30 of 60 descents end elsewhere"
    # Too few seeds refute nothing.
    few = figure.draw(claims.summarize(runs(margin=0.3, kept=12), KEY))
    assert few.axes[2].get_title() == "(c) 12 of 24 descents end elsewhere"


def test_runs_without_a_seed_of_higher_rank_are_named():
    with pytest.raises(
        ValueError, match="narrow-path: expected runs with a kept seed of rank above m, found none in any"
    ):
        claims.summarize({}, KEY)
    one = path(1)
    with pytest.raises(ValueError, match=r"found none in \['m=1'\]"):
        claims.summarize({"m=1": one.isel(seed=one["rank"].values == 1)}, KEY)
