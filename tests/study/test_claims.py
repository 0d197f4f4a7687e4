"""What a claim says: the verdicts on comparisons built by hand, and the line of claims.json."""

import dataclasses
import json
from collections.abc import Sequence

import jax
import numpy as np
import pytest
import xarray

from jaxattn.experiments.local.local_convergence import claims as local_convergence
from jaxattn.experiments.local.trajectories import claims as trajectories
from jaxattn.study.claims import Claim, Verdict, agree, counts_of, too_little

KEY = jax.random.key(0)
# Eight seeds of mean zero and standard deviation 0.001: the standard error of the mean is 0.00038.
WOBBLE = np.resize([-0.001, 0.001], 8)
NORMS = ["frobenius", "nuclear"]
COUNTS = {"attempted": 11, "kept": 8, "diverged": 1, "infeasible": 2, "unsolved": 0}
# Means (norm, step): of the run of W those of the authors' figure, of (K, Q) what confirms the claim.
STEPS = np.array([200, 400, 600, 800, 1000, 2000])
PUBLISHED = [[0.883, 0.960, 0.980, 0.988, 0.993, 0.995], [0.796, 0.848, 0.858, 0.861, 0.862, 0.862]]
FACTORED = [[0.7, 0.7, 0.7, 0.7, 0.7, 0.8], [0.9, 0.9, 0.9, 0.9, 0.9, 0.995]]
OPEN, HOLDS, CORRECTED, FAILS = Verdict.OPEN, Verdict.HOLDS, Verdict.CORRECTED, Verdict.FAILS


def trajectory(frobenius, nuclear, last: int = 2000, seeds: Sequence[int] = range(8)) -> xarray.Dataset:
    """A comparison of three tokens with these final correlations, and 0.5 before."""
    final = np.stack(np.broadcast_arrays(frobenius, nuclear, np.zeros(len(seeds)))[:2], axis=1)
    correlation = np.stack([np.full_like(final, 0.5), final], axis=2)
    variables = {"correlation": (("seed", "norm", "snapshot"), correlation), "X": ("token", np.zeros(3))}
    return xarray.Dataset(variables, {"seed": list(seeds), "norm": NORMS, "snapshot": [500, last]}, attrs=COUNTS)


def trajectory_claims(W: xarray.Dataset, KQ: xarray.Dataset) -> list[Claim]:
    claims = trajectories.summarize({"W": W, "KQ": KQ}, KEY)[1]
    assert [claim.id for claim in claims] == ["trajectories-3:W", "trajectories-3:KQ"]
    return claims


@pytest.mark.parametrize(
    ("final", "last", "verdicts"),
    [
        (0.995, 2000, [HOLDS, CORRECTED]),
        (0.995, 1000, [HOLDS, CORRECTED]),
        (0.995, 999, [OPEN, OPEN]),
        (0.99, 2000, [OPEN, OPEN]),
        (0.988, 2000, [FAILS, FAILS]),
    ],
)
def test_trajectories_are_judged_by_the_interval_of_the_final_correlation(final, last, verdicts):
    claims = trajectory_claims(trajectory(final + WOBBLE, 0.5, last), trajectory(0.5, final + WOBBLE, last))
    assert [claim.verdict for claim in claims] == verdicts
    assert all(("too short" in claim.note) == (last < 1000) for claim in claims)


def test_trajectories_report_both_norms_and_are_held_against_their_own():
    final = np.resize([0.999, 0.6], 8)
    W, KQ = trajectory_claims(trajectory(final, 0.999), trajectory(0.999, final))
    assert W.measured == pytest.approx(
        {"frobenius at step 2000": 0.7995, "nuclear at step 2000": 0.999, "share of seeds above 0.99": 0.5}
    )
    low, high = W.interval["frobenius at step 2000"]
    assert 0.6 < low < 0.7995 < high < 0.99
    assert [list(claim.expected) for claim in (W, KQ)] == [["frobenius at step 2000"], ["nuclear at step 2000"]]
    assert [claim.counts for claim in (W, KQ)] == [{"W": COUNTS}, {"KQ": COUNTS}]
    assert [claim.verdict for claim in (W, KQ)] == [FAILS, FAILS]


def test_the_trajectories_drawn_are_of_the_first_seed_kept_in_both_runs():
    KQ = trajectory(1.0, 1.0, seeds=[1, 3, 4, 5])
    drawn, _ = trajectories.summarize({"W": trajectory(1.0, 1.0, seeds=[0, 3, 5]), "KQ": KQ}, KEY)
    assert {run: int(one["seed"]) for run, one in drawn.items()} == {"W": 3, "KQ": 3}
    with pytest.raises(ValueError, match=r"^trajectories: no seed was kept in both runs, counts .*'infeasible': 2"):
        trajectories.summarize({"W": trajectory(1.0, 1.0, seeds=[0, 2]), "KQ": KQ}, KEY)


def local_claims(last: int = 2000, changed=()) -> list[Claim]:
    """Claims a, b and c on two runs as published, with means changed: (run, name, where, value) each."""
    kept, comparisons = last >= STEPS, {}
    for run, correlation in (("W", PUBLISHED), ("KQ", FACTORED)):
        means = {"correlation": np.array(correlation), "probability": np.array([0.966, *[0.98] * 4, 0.99995])}
        for _, name, where, value in (change for change in changed if change[0] == run):
            means[name][where] = value
        series = np.full((8, last), 0.5)
        series[:, STEPS[kept] - 1] = means["probability"][kept] + 0.01 * WOBBLE[:, None]
        values = means["correlation"][None, :, kept] + WOBBLE[:, None, None]
        variables = {"correlation": (("seed", "norm", "snapshot"), values), "probability": (("seed", "step"), series)}
        comparisons[run] = xarray.Dataset(variables, {"snapshot": STEPS[kept], "norm": NORMS}, attrs=COUNTS)
    claims = local_convergence.summarize(comparisons, KEY)[1]
    assert [claim.id for claim in claims] == [f"local-convergence:{panel}" for panel in "abc"]
    return claims


def test_local_convergence_as_published_holds_with_its_correction():
    a, b, c = local_claims()
    assert [a.verdict, b.verdict, c.verdict] == [HOLDS, HOLDS, CORRECTED]
    assert [a.counts, b.counts, c.counts] == [{"W": COUNTS, "KQ": COUNTS}, {"W": COUNTS}, {"KQ": COUNTS}]
    means = {f"{run} at step {step}": mean for run in ("W", "KQ") for step, mean in ((200, 0.966), (2000, 0.99995))}
    assert a.measured == pytest.approx(means)
    rows = zip(NORMS, PUBLISHED, strict=True)
    published = {f"{norm} at step {STEPS[k]}": row[k] for norm, row in rows for k in range(5)}
    assert b.expected == published
    assert b.measured == pytest.approx(published)
    assert c.measured == pytest.approx({"frobenius at step 2000": 0.8, "nuclear at step 2000": 0.995})


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        (("W", "probability", 0, 0.97), 0),
        (("W", "probability", 5, 0.998), 0),
        (("KQ", "probability", 5, 0.998), 0),
        (("W", "correlation", (0, 2), 0.982), 1),
        (("W", "correlation", (1, 4), 0.864), 1),
        (("W", "correlation", (1, 5), 0.996), 1),
        (("KQ", "correlation", (1, 5), 0.989), 2),
        (("KQ", "correlation", (0, 5), 0.996), 2),
    ],
)
def test_one_mean_that_is_off_fails_its_panel_and_no_other(change, failing):
    assert [claim.verdict is FAILS for claim in local_claims(changed=[change])] == [k == failing for k in range(3)]


def test_a_run_of_less_than_1000_steps_decides_nothing():
    low = [(run, "correlation", slice(None), 0.2) for run in ("W", "KQ")]
    for claim in local_claims(last=800) + local_claims(last=800, changed=low):
        assert claim.verdict is OPEN
        assert "800 steps is too short" in claim.note


@pytest.mark.parametrize("off", [(0.28, 0.0), (-0.28, 0.0), (0.29, 0.0), (-0.29, 0.0), (0.0, 0.01)])
def test_numbers_agree_within_two_standard_errors_of_their_difference(off):
    assert agree(np.add([1.0, 5.0], off), [0.1, 0.001], [1.0, 5.0]) is (abs(off[0]) == 0.28)


def test_counts_are_those_of_the_comparison_as_integers_that_json_can_write():
    one = xarray.Dataset(attrs={name: np.int64(count) for name, count in COUNTS.items()} | {"run": "W"})
    assert json.loads(json.dumps(counts_of({"W": one}))) == {"W": COUNTS}


def test_a_line_of_claims_json_has_every_field_and_numbers_of_six_digits():
    measured, interval = {"x": np.float64(123456.789), "y": 1e-9 / 3}, {"x": (1 / 3, 2 / 3)}
    claim = Claim("name:a", "paper", "It is so.", {"x": 1.0}, measured, interval, {"W": COUNTS}, CORRECTED)
    line = json.loads(json.dumps(claim.as_json()))
    assert list(line) == [field.name for field in dataclasses.fields(Claim)]
    assert (line["id"], line["counts"], line["verdict"]) == ("name:a", {"W": COUNTS}, "holds with a correction")
    assert line["measured"] == {"x": 123457.0, "y": 3.33333e-10}
    assert line["interval"] == {"x": [0.333333, 0.666667]}


def test_a_run_without_the_published_steps_or_with_few_seeds_decides_nothing():
    one = xarray.Dataset({"snapshot": [300, 700, 1900]}, attrs=COUNTS)
    assert too_little(one) == ""
    assert "[200, 1000]" in too_little(one, [200, 700, 1000])
    assert "7 kept seeds" in too_little(one.assign_attrs(kept=7))
    few = {"W": trajectory(0.999 + WOBBLE, 0.5), "KQ": trajectory(0.5, 0.999 + WOBBLE)}
    few = {run: comparison.isel(seed=[0]).assign_attrs(kept=1) for run, comparison in few.items()}
    assert [claim.verdict for claim in trajectories.summarize(few, KEY)[1]] == [OPEN, OPEN]
