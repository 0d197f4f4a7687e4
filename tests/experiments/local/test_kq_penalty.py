"""Descent on (K, Q) over penalties and rules: verdicts on the claims, and what the figure draws."""

import jax
import numpy as np
import pytest

from jaxattn.experiments.local.kq_penalty import claims as kq_penalty
from jaxattn.experiments.local.kq_penalty import examples, figure
from jaxattn.experiments.local.made import STEPS
from jaxattn.study.claims import Verdict

KEY = jax.random.key(0)
HOLDS, CORRECTED, FAILS, OPEN = Verdict.HOLDS, Verdict.CORRECTED, Verdict.FAILS, Verdict.OPEN
# From step 2054 to 200000, 1.99 decades, this falls by a factor of 3.
THIRD = STEPS ** (np.log(1 / 3) / np.log(STEPS[-1] / STEPS[np.argmin(np.abs(np.log(STEPS / 2000)))]))


def judged(datasets):
    summaries = kq_penalty.summarize(datasets, KEY)
    return summaries, {claim.id.partition(":")[2]: claim.judge(summaries) for claim in kq_penalty.CLAIMS}


def raised(path, penalty, factor):
    """A path on which the distance at one penalty is so many times as large."""
    return lambda at: path(at) * (factor if at == penalty else 1)


@pytest.mark.parametrize(
    ("changed", "claim", "verdict"),
    [
        ({}, "published", HOLDS),
        ({"ratio": 3.0}, "published", FAILS),
        ({"ratio": 0.82}, "published", HOLDS),
        ({"ratio": 0.8}, "published", OPEN),
        ({"ratio": 0.78}, "published", FAILS),
        ({"ratio": 1.22}, "published", HOLDS),
        ({"ratio": 1.28}, "published", FAILS),
        ({}, "no-penalty", CORRECTED),
        ({"joint": 6e-3}, "no-penalty", FAILS),
        ({"separate": 10.0 * STEPS**-1.0}, "no-penalty", HOLDS),
        # The joint rule goes on by a factor of 3, by much more, or by less.
        ({"joint": 0.1 * THIRD}, "no-penalty", OPEN),
        ({"joint": 0.1 * THIRD**2}, "no-penalty", CORRECTED),
        ({"joint": 0.1 * THIRD**0.1}, "no-penalty", FAILS),
        # The other one has arrived: it need not go on. It may have; then only the joint one's standstill is clear.
        ({"separate": 5e-4}, "no-penalty", HOLDS),
        ({"separate": 1e-3}, "no-penalty", OPEN),
        ({"separate": 5e-4, "joint": 6e-3}, "no-penalty", FAILS),
        ({"separate": 10.0 * STEPS**-1.0, "joint": 6e-3}, "no-penalty", FAILS),
        ({}, "penalized", HOLDS),
        ({"path": lambda penalty: 1e-2}, "penalized", FAILS),
        ({"path": lambda penalty: 3e-3 - 1e-2 / np.log(penalty)}, "penalized", FAILS),
        # The fall is large, and one smaller penalty is farther, as far, or nearer by less than can be told.
        ({"path": raised(examples.along_the_path, 1e-16, 6)}, "penalized", FAILS),
        ({"path": raised(examples.along_the_path, 1e-16, 4)}, "penalized", OPEN),
        ({"path": raised(examples.along_the_path, 1e-16, 3)}, "penalized", HOLDS),
    ],
)
def test_the_verdicts_on_the_penalty_follow_the_runs(changed, claim, verdict):
    summaries, found = judged(examples.runs(**changed))
    assert found[claim].verdict is verdict, [*map(str, found[claim].stated)]
    assert len(figure.draw(summaries).axes) == 2


def test_notes_are_made_from_the_numbers():
    _, found = judged(examples.runs())
    assert "it is the penalty of 2.2e-16 that sets where" in found["published"].note
    assert found["published"].measured == pytest.approx(dict.fromkeys(found["published"].measured, 1.0))
    assert (
        "to 5e-05 at step 200000. With a norm of each its own, as published, 1 - cos goes" in found["no-penalty"].note
    )
    assert "goes like log(1 / penalty)^-2.0" in found["penalized"].note
    _, other = judged(examples.runs(ratio=3.0, separate=examples.FALLS, path=lambda penalty: -1 / np.log(penalty)))
    assert other["published"].note == "Geometric mean over seeds."
    assert not other["no-penalty"].note.startswith("Correction")
    assert "goes like log(1 / penalty)^-1.0" in other["penalized"].note


def test_ratios_are_taken_seed_by_seed():
    runs = dict(examples.runs())
    summaries, _ = judged(runs)
    path = {one.attrs["penalty"]: run for run, one in summaries.items() if "next" in one}
    assert sorted(path) == [1e-30, 1e-16]
    ends = {run: runs[run]["off"].sel(norm="nuclear").values[:, -1] for run in runs}
    ratio = np.log(ends[path[1e-30]] / ends[path[1e-16]])
    np.testing.assert_allclose(summaries[path[1e-30]]["next"], np.exp(ratio.mean()))
    # Both are of the same seeds, of which some are nearer than others under every penalty.
    width = np.log(summaries[path[1e-30]]["next_high"] / summaries[path[1e-30]]["next_low"])
    np.testing.assert_allclose(width, 2 * 1.96 * ratio.std() / np.sqrt(ratio.size), rtol=0.2)
    # Where a seed is kept under one of them alone it is not compared.
    runs[path[1e-16]] = runs[path[1e-16]].isel(seed=slice(20)).assign_attrs(kept=20)
    np.testing.assert_allclose(judged(runs)[0][path[1e-30]]["next"], np.exp(ratio[:20].mean()))
    runs[path[1e-30]] = runs[path[1e-30]].isel(seed=slice(20, 30)).assign_attrs(kept=10)
    with pytest.raises(ValueError, match="kq-penalty: expected seeds that both of"):
        kq_penalty.summarize(runs, KEY)


def without(runs, **attrs):
    return {run: one for run, one in runs.items() if any(one.attrs[name] != value for name, value in attrs.items())}


def test_runs_that_are_missing_short_or_of_few_seeds_decide_nothing():
    runs = examples.runs()
    found = judged(without(runs, optimizer="normalized_gd"))[1]
    assert [one.verdict for one in found.values()] == [OPEN, CORRECTED, HOLDS]
    assert "no run under the published rule" in found["published"].note
    found = judged(without(runs, optimizer="jointly_normalized_gd"))[1]
    assert [one.verdict for one in found.values()] == [HOLDS, OPEN, HOLDS]
    assert "with joint norm" in found["no-penalty"].note
    found = judged(without(runs, optimizer="exact_normalized_gd", penalty=1e-8))[1]
    assert [one.verdict for one in found.values()] == [HOLDS, CORRECTED, OPEN]
    assert "2 penalties are too few" in found["penalized"].note
    short = {run: one.assign_attrs(steps=9_999) for run, one in runs.items()}
    assert all("less than 10000 steps" in one.note for one in judged(short)[1].values())
    few = {run: one.assign_attrs(kept=19) for run, one in runs.items()}
    assert all("19 kept seeds" in one.note for one in judged(few)[1].values())


def test_a_run_without_a_kept_seed_is_named():
    runs = dict(examples.runs())
    name = next(iter(runs))
    runs[name] = runs[name].isel(seed=slice(0))
    with pytest.raises(ValueError, match="expected a kept seed in each run"):
        kq_penalty.summarize(runs, KEY)
