"""What a claim says: the verdicts on summaries built by hand, and the line of claims.json."""

import json
from collections.abc import Sequence
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import xarray

from jaxattn.experiments import local_convergence, trajectories
from jaxattn.experiments.claims import Claim, Verdict, agree, counts_of

KEY = jax.random.key(0)
SEEDS = 8
# Mean zero, standard deviation 0.001: a mean of 8 has a standard error of 0.00038.
WOBBLE = np.resize([-0.001, 0.001], SEEDS)
NORMS = ["frobenius", "nuclear"]
COUNTS = {"attempted": 11, "kept": SEEDS, "diverged": 1, "infeasible": 2, "unsolved": 0}
# What the authors' figure shows of the run of W, after these steps, and a probability that is saturated at the end.
STEPS = (200, 400, 600, 800, 1000, 2000)
PUBLISHED = np.array([[0.883, 0.960, 0.980, 0.988, 0.993, 0.995], [0.796, 0.848, 0.858, 0.861, 0.862, 0.862]])
FACTORED = np.array([[0.7] * 5 + [0.8], [0.9] * 5 + [0.995]])


def trajectory(final: dict, last: int = 2000, seeds: Sequence[int] = range(SEEDS)) -> xarray.Dataset:
    """A comparison whose seeds have these final correlations, and lower ones before."""
    values = np.stack([np.broadcast_to(final[norm], len(seeds)) for norm in NORMS], axis=1)
    return xarray.Dataset(
        {
            "correlation": (("seed", "norm", "snapshot"), np.stack([0 * values + 0.5, values], axis=2)),
            "X": (("seed", "input", "token", "feature"), np.zeros((len(seeds), 2, 3, 2))),
        },
        {"seed": list(seeds), "norm": NORMS, "snapshot": [last // 2, last]},
        attrs=COUNTS,
    )


def judged(W: dict, KQ: dict, last: int = 2000) -> dict[str, Claim]:
    """The claims on two runs with these final correlations in their own norms, and 0.5 in the other."""
    runs = {"W": trajectory({"nuclear": 0.5} | W, last), "KQ": trajectory({"frobenius": 0.5} | KQ, last)}
    return {claim.id: claim for claim in trajectories.summarize(runs, KEY)[1]}


@pytest.mark.parametrize(
    ("final", "last", "W", "KQ"),
    [
        (0.995 + WOBBLE, 2000, Verdict.HOLDS, Verdict.CORRECTED),
        (0.995 + WOBBLE, 1000, Verdict.HOLDS, Verdict.CORRECTED),
        (0.995 + WOBBLE, 999, Verdict.OPEN, Verdict.OPEN),
        (0.99 + WOBBLE, 2000, Verdict.OPEN, Verdict.OPEN),
        (0.988 + WOBBLE, 2000, Verdict.FAILS, Verdict.FAILS),
        (0.988 + WOBBLE, 999, Verdict.OPEN, Verdict.OPEN),
    ],
)
def test_trajectories_are_judged_by_the_interval_of_the_final_correlation(final, last, W, KQ):
    claims = judged({"frobenius": final}, {"nuclear": final}, last)
    assert {name: claim.verdict for name, claim in claims.items()} == {"trajectories-3:W": W, "trajectories-3:KQ": KQ}
    assert all(("too short" in claim.note) == (last < 1000) for claim in claims.values())


def test_trajectories_of_each_run_are_held_against_its_own_norm_only():
    claims = judged({"frobenius": 0.6, "nuclear": 0.999}, {"frobenius": 0.999, "nuclear": 0.6})
    assert [claim.verdict for claim in claims.values()] == [Verdict.FAILS] * 2
    assert [list(claim.expected) for claim in claims.values()] == [["frobenius at step 2000"], ["nuclear at step 2000"]]


def test_trajectories_report_means_intervals_shares_and_counts():
    claim = judged({"frobenius": np.where(np.arange(SEEDS) < 6, 0.999, 0.9)}, {"nuclear": 1.0})["trajectories-3:W"]
    assert claim.measured == pytest.approx(
        {"frobenius at step 2000": 0.97425, "nuclear at step 2000": 0.5, "share of seeds above 0.99": 0.75}
    )
    low, high = claim.interval["frobenius at step 2000"]
    assert 0.9 < low < 0.97425 < high <= 0.999
    assert claim.counts == {"W": COUNTS}


def test_the_trajectories_drawn_are_of_the_first_seed_kept_in_both_runs():
    final = {"frobenius": 1.0, "nuclear": 1.0}
    runs = {"W": trajectory(final, seeds=[0, 3, 5]), "KQ": trajectory(final, seeds=[1, 3, 4, 5])}
    drawn, _ = trajectories.summarize(runs, KEY)
    assert {run: int(one["seed"]) for run, one in drawn.items()} == {"W": 3, "KQ": 3}
    runs["W"] = trajectory(final, seeds=[0, 2])
    with pytest.raises(ValueError, match=r"^trajectories: no seed was kept in both runs, counts .*'infeasible': 2"):
        trajectories.summarize(runs, KEY)


@pytest.fixture
def runs() -> dict[str, SimpleNamespace]:
    """Means of two runs as published: correlations (norm, snapshot) and probabilities after the snapshots."""
    means = {"W": PUBLISHED.copy(), "KQ": FACTORED.copy()}
    return {
        run: SimpleNamespace(correlation=mean, probability=np.array([0.966, *[0.98] * 4, 0.99995]), last=STEPS[-1])
        for run, mean in means.items()
    }


def local_claims(runs: dict[str, SimpleNamespace]) -> dict[str, Claim]:
    comparisons = {}
    for run, means in runs.items():
        steps = [step for step in STEPS if step <= means.last]
        series = np.full((SEEDS, means.last), 0.5)
        series[:, np.array(steps) - 1] = means.probability[: len(steps)] + 0.01 * WOBBLE[:, None]
        correlation = means.correlation[None, :, : len(steps)] + WOBBLE[:, None, None]
        data = {"correlation": (("seed", "norm", "snapshot"), correlation), "probability": (("seed", "step"), series)}
        comparisons[run] = xarray.Dataset(data, {"snapshot": steps, "norm": NORMS}, attrs=COUNTS)
    return {claim.id[-1]: claim for claim in local_convergence.summarize(comparisons, KEY)[1]}


def test_local_convergence_as_published_holds_with_its_correction(runs):
    claims = local_claims(runs)
    verdicts = {panel: claim.verdict for panel, claim in claims.items()}
    assert verdicts == {"a": Verdict.HOLDS, "b": Verdict.HOLDS, "c": Verdict.CORRECTED}
    assert claims["a"].counts == {"W": COUNTS, "KQ": COUNTS}
    assert [list(claims[panel].counts) for panel in "bc"] == [["W"], ["KQ"]]
    assert claims["a"].measured == pytest.approx(
        {f"{run} at step {step}": mean for run in runs for step, mean in ((200, 0.966), (2000, 0.99995))}
    )
    names = [f"{norm} at step {step}" for norm in NORMS for step in STEPS[:-1]]
    assert claims["b"].measured == pytest.approx(dict(zip(names, PUBLISHED[:, :-1].ravel(), strict=True)))
    assert claims["b"].expected == pytest.approx(claims["b"].measured)
    assert claims["c"].measured == pytest.approx({"frobenius at step 2000": 0.8, "nuclear at step 2000": 0.995})


@pytest.mark.parametrize(
    ("run", "name", "where", "value", "failing"),
    [
        ("W", "probability", 0, 0.97, "a"),
        ("W", "probability", 5, 0.998, "a"),
        ("KQ", "probability", 5, 0.998, "a"),
        ("W", "correlation", (0, 2), 0.982, "b"),
        ("W", "correlation", (1, 4), 0.864, "b"),
        ("W", "correlation", (1, 5), 0.996, "b"),
        ("KQ", "correlation", (1, 5), 0.989, "c"),
        ("KQ", "correlation", (0, 5), 0.996, "c"),
    ],
)
def test_one_number_that_is_off_fails_its_panel_and_no_other(runs, run, name, where, value, failing):
    getattr(runs[run], name)[where] = value
    claims = local_claims(runs)
    assert [panel for panel, claim in claims.items() if claim.verdict is Verdict.FAILS] == [failing]


@pytest.mark.parametrize("correlation", [0.2, None])
def test_a_run_of_less_than_1000_steps_decides_nothing(runs, correlation):
    for means in runs.values():
        means.last = 800
        if correlation is not None:
            means.correlation[:] = correlation
    for claim in local_claims(runs).values():
        assert claim.verdict is Verdict.OPEN
        assert "800 steps is too short" in claim.note


@pytest.mark.parametrize(
    ("measured", "agrees"),
    [([1.28, 5.0], True), ([0.72, 5.0], True), ([1.29, 5.0], False), ([0.71, 5.0], False), ([1.0, 5.01], False)],
)
def test_numbers_agree_within_two_standard_errors_of_their_difference(measured, agrees):
    assert agree(measured, [0.1, 0.001], [1.0, 5.0]) is agrees


def test_counts_are_those_of_the_comparison_as_integers():
    one = xarray.Dataset(attrs={name: np.int64(count) for name, count in COUNTS.items()} | {"parameterization": "W"})
    assert counts_of({"W": one}) == {"W": COUNTS}
    assert json.loads(json.dumps(counts_of({"W": one}))) == {"W": COUNTS}


def test_a_line_of_claims_json_has_six_digits_and_every_field():
    third = 1 / 3
    claim = Claim(
        id="name:a",
        source="paper",
        statement="It is so.",
        expected={"x": third},
        measured={"x": np.float64(123456.789), "y": 1e-9 * third},
        interval={"x": (third, 2 * third)},
        counts={"W": COUNTS},
        verdict=Verdict.CORRECTED,
    )
    line = json.loads(json.dumps(claim.as_json()))
    assert line == {
        "id": "name:a",
        "source": "paper",
        "statement": "It is so.",
        "expected": {"x": 0.333333},
        "measured": {"x": 123457.0, "y": 3.33333e-10},
        "interval": {"x": [0.333333, 0.666667]},
        "counts": {"W": COUNTS},
        "verdict": "holds with a correction",
        "note": "",
        "seconds": 0.0,
    }
