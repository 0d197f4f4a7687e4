"""Descent on (K, Q) over penalties and rules: verdicts on the claims, and what the figure draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import descent, losses
from jaxattn.experiments.local.kq_penalty import claims as kq_penalty
from jaxattn.experiments.local.kq_penalty import examples, figure, measure
from jaxattn.study.claims import Verdict
from tests import instances

KEY = jax.random.key(0)
HOLDS, CORRECTED, FAILS, OPEN = Verdict.HOLDS, Verdict.CORRECTED, Verdict.FAILS, Verdict.OPEN


def judged(datasets):
    summaries = kq_penalty.summarize(datasets, KEY)
    return summaries, {claim.id.partition(":")[2]: claim.judge(summaries) for claim in kq_penalty.CLAIMS}


def raised(path, penalty, factor):
    """A path on which the distance at one penalty is so many times as large."""
    return lambda at: path(at) * (factor if at == penalty else 1)


@pytest.mark.parametrize(
    ("changed", "claim", "verdict"),
    [
        ({}, "published", CORRECTED),
        ({"residual": 0.08}, "published", HOLDS),
        ({"residual": 0.1}, "published", OPEN),
        ({"residual": 0.12}, "published", CORRECTED),
        # What another run rests at says nothing if that does not rest, or elsewhere.
        ({"rested": 0.2}, "published", FAILS),
        ({"apart": 1.05}, "published", CORRECTED),
        ({"apart": 1.25}, "published", FAILS),
        ({"apart": 0.7}, "published", FAILS),
        ({}, "normalization", HOLDS),
        ({"joint": 1.1}, "normalization", HOLDS),
        ({"joint": 1.25}, "normalization", OPEN),
        ({"joint": 0.6}, "normalization", FAILS),
        ({}, "start", HOLDS),
        ({"start": 0.9}, "start", HOLDS),
        ({"start": 0.8}, "start", OPEN),
        ({"start": 1.5}, "start", FAILS),
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
    note = found["published"].note
    assert (
        "the residual is 0.4. With decreasing steps it is 0.01, and 1 - cos of the published run is 1.00 times" in note
    )
    assert "the penalty of 2.2e-16 determines where the run ends" in note
    assert "goes like log(1 / penalty)^-2.0" in found["penalized"].note
    assert found["start"].note.startswith("Without a penalty, after the same number of steps, this ratio is 1.67")
    _, other = judged(examples.runs(apart=3.0, path=lambda penalty: -1 / np.log(penalty)))
    assert "goes like log(1 / penalty)^-1.0" in other["penalized"].note


@pytest.mark.parametrize("penalty", [1e-3, 1e-12])
def test_the_residual_is_that_of_the_penalized_risk(penalty):
    one, weights = instances.problem(), instances.factored(m=2)
    if penalty < 1e-6:
        # Where the attention has saturated, and both gradients are of about one length.
        weights = jax.tree.map(lambda leaf: 4.0 * leaf, descent.train(weights, one, steps=200).weights)
    of_risk = jax.grad(losses.risk)(weights, one)
    of_penalty = jax.tree.map(lambda leaf: 2 * penalty * leaf, weights)

    def length(pair):
        return np.sqrt(sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(pair)))

    expected = length(jax.tree.map(jnp.add, of_risk, of_penalty)) / (length(of_risk) + length(of_penalty))
    np.testing.assert_allclose(measure.residual(weights, one, jnp.asarray(penalty)), expected, rtol=1e-3)
    # It does not see a penalty's size: that and the gradient's may be far below the smallest square.
    far = jax.tree.map(lambda leaf: 20.0 * leaf, weights)
    assert 0 <= measure.residual(far, one, jnp.asarray(1e-200)) <= 1 + 1e-12


@pytest.mark.slow
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


@pytest.mark.slow
def test_runs_that_are_missing_short_or_of_few_seeds_decide_nothing():
    runs = examples.runs()
    found = judged(without(runs, optimizer="normalized_gd"))[1]
    assert [one.verdict for one in found.values()] == [OPEN, HOLDS, HOLDS, HOLDS]
    assert "its penalty and decreasing steps, is missing" in found["published"].note
    found = judged(without(runs, optimizer="jointly_normalized_gd"))[1]
    assert [one.verdict for one in found.values()] == [CORRECTED, OPEN, HOLDS, HOLDS]
    assert "under 0 penalties are too few" in found["normalization"].note
    found = judged(without(without(runs, optimizer="exact_normalized_gd", penalty=1e-8), scale=0.01))[1]
    assert [one.verdict for one in found.values()] == [CORRECTED, OPEN, OPEN, OPEN]
    assert "2 penalties are too few" in found["penalized"].note
    assert "A run with a start of scale 0.01" in found["start"].note
    short = {run: one.assign_attrs(steps=9_999) for run, one in runs.items()}
    assert all("fewer than 10000 steps" in one.note for one in judged(short)[1].values())
    few = {run: one.assign_attrs(kept=19) for run, one in runs.items()}
    assert all("19 kept seeds" in one.note for one in judged(few)[1].values())


def test_a_run_without_a_kept_seed_is_named():
    runs = dict(examples.runs())
    name = next(iter(runs))
    runs[name] = runs[name].isel(seed=slice(0))
    with pytest.raises(ValueError, match="expected a kept seed in each run"):
        kq_penalty.summarize(runs, KEY)


@pytest.mark.parametrize(
    ("path", "trend"),
    [(examples.along_the_path, "the nuclear error falls"), (lambda _: 1e-2, "the nuclear error does not always fall")],
)
def test_the_figure_says_after_how_many_steps_and_whether_the_error_falls(path, trend):
    over, along = figure.draw(judged(examples.runs(path=path))[0]).axes
    assert over.get_title() == f"(a) after 200,000 steps: {trend} with the penalty"
    assert along.get_title() == "(b) nuclear SVM, along 200,000 steps: as published it ends at 0.002"
    assert "published penalty, 2.2e-16" in [one.get_text() for one in over.texts]
