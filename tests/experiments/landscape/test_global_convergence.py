"""Global convergence: what is measured of a record, shares and verdicts on datasets built by hand, and the figure."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxattn import Problem, data, descent, heads, initial, losses, metrics, records, svm, tokens
from jaxattn.descent import optimizers
from jaxattn.experiments.landscape.global_convergence import figure
from jaxattn.experiments.landscape.global_convergence import measure as global_convergence
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import recording, schedule, training
from tests.instances import assert_close, drawn_lines, problem

KEY = jax.random.key(0)
SLOPE = jax.jit(jax.grad(losses.risk))


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    setting = training.Training(
        functools.partial(data.sphere, n=3, T=4, d=5),
        initial.free_zero,
        descent.normalized_gd(0.1, floor=0.0, penalty=0.0),
        losses.logistic,
        heads.linear,
        seeds=12,
        key=1,
        steps=300,
        snapshots=schedule.Logarithmically(1),
        record_every=100,
    )
    path = tmp_path_factory.mktemp("runs") / "record.zarr"
    recording.run(setting, path, {"config": json.dumps({"optimizer": {}, "data": {}, "steps": 300})})
    return records.load(path)


def test_the_first_step_and_the_tokens_in_the_end_are_judged_seed_by_seed(record):
    one = global_convergence.measure(record)
    assert one.attrs["run"] == "from W = 0, n = 3, d = 5, spread = 1"
    assert one.sizes["seed"] == one.attrs["kept"] == 12
    for seed in range(3):
        own = Problem(**{name: record[name].values[seed] for name in ("X", "Z", "Y", "v")})
        alpha = tokens.optimal(own)
        constraints = svm.token_constraints(own, alpha)
        W_mm, first = svm.solve(constraints).W, -SLOPE(jnp.zeros((5, 5)), own)
        np.testing.assert_allclose(one["correlation"][seed], metrics.correlation(first, W_mm), rtol=1e-9)
        worst = svm.margins(constraints, first / metrics.norm(first)).min() * metrics.norm(W_mm)
        np.testing.assert_allclose(one["margin"][seed], worst, rtol=1e-7)
        right = np.asarray(tokens.selected(jnp.asarray(record["W"].values[seed]), own) == alpha)
        assert bool(one["optimal"][seed]) == right.all()
        assert (float(one["lost"][seed]) == 0) == right.all()
    assert np.all(one["margin"] <= 1)


@pytest.mark.slow
def test_equal_scores_do_not_make_descent_global():
    # Two inputs of two tokens have no other limit than the global one; ten of eight do, and a start close to one stays.
    few = functools.partial(data.spread_scores, n=2, T=2, d=3, spread=0.0)
    many = functools.partial(data.spread_scores, n=10, T=8, d=10, spread=0.0)
    shares = []
    for law, d in ((few, 3), (many, 10)):
        keys = jax.random.split(KEY, 40)
        problems = jax.vmap(law)(keys)
        start = jax.vmap(functools.partial(initial.free, d=d))(keys)
        optimizer = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
        run = descent.train_batch(start, problems, optimizer=optimizer, steps=1000)
        right = jax.vmap(tokens.selected)(run.weights, problems) == jax.vmap(tokens.optimal)(problems)
        shares.append(float(np.mean(np.all(right, axis=1))))
    assert shares[0] == 1
    assert shares[1] < 0.98


def test_a_long_first_step_is_followed_by_short_ones():
    one, start = problem(), jnp.zeros((5, 5))
    run = descent.train(start, one, optimizer=optimizers.long_first_gd(0.1, first=7.0), steps=3, snapshots=(1, 2, 3))
    gradient = SLOPE(start, one)
    assert_close(run.snapshots[0], -7 * gradient / metrics.norm(gradient))
    after = descent.train(
        run.snapshots[0], one, optimizer=descent.normalized_gd(0.1, floor=0.0, penalty=0.0), steps=2, snapshots=(1, 2)
    )
    assert_close(run.snapshots[1:], after.snapshots, rtol=1e-11)
    with pytest.raises(ValueError, match="first: expected a positive finite number, found -1"):
        optimizers.long_first_gd(0.1, first=-1.0)


def made(start, share, spread=1.0, n=4, d=5, lost=0.2, separated=1.0, steps=2000, seeds=100):
    """What `measure` would return where a share is right, more often those of the better first step."""
    rank = np.arange(seeds) / seeds
    hits = rank >= 1 - share - 1e-9
    margin = np.where(rank >= 0.8, 0.1, -0.3)
    hits[rank >= 0.8] &= rank[rank >= 0.8] >= 1 - 0.2 * separated - 1e-9
    variables = {
        "optimal": (("seed",), hits),
        "correlation": (("seed",), 0.31 + 0.4 * rank),
        "margin": (("seed",), margin),
        "lost": (("seed",), np.where(hits, 0.0, lost)),
    }
    run = f"{start}, n = {n}, d = {d}, spread = {spread:g}"
    attrs = {"run": run, "start": start, "n": n, "T": 5, "d": d, "spread": spread, "steps": steps}
    return xarray.Dataset(variables, attrs=attrs | {"attempted": seeds, "kept": seeds, "infeasible": 0})


def judged(*runs):
    summaries, claims = global_convergence.summarize({one.attrs["run"]: one for one in runs}, KEY)
    return summaries, {claim.id.partition(":")[2]: claim for claim in claims}


FIRST = (made("zero", 0.7), made("long", 0.6))
SPREAD = (made("random", 1.0, 0.0), made("random", 0.8, 0.5), made("random", 0.5, 1.0))


@pytest.mark.parametrize(
    ("runs", "name", "verdict"),
    [
        (FIRST, "first-gradient", Verdict.HOLDS),
        ((made("zero", 0.7, separated=0.5), FIRST[1]), "first-gradient", Verdict.CORRECTED),
        ((FIRST[0], made("long", 0.7, separated=0.5)), "first-gradient", Verdict.FAILS),
        (FIRST, "alignment", Verdict.HOLDS),
        ((made("zero", 1.0), FIRST[1]), "alignment", Verdict.FAILS),
        (SPREAD, "equal-scores", Verdict.HOLDS),
        (SPREAD, "score-gap", Verdict.HOLDS),
        ((made("random", 0.9, 0.0, lost=1e-12), *SPREAD[1:]), "equal-scores", Verdict.FAILS),
        # Not there yet is not a refutation.
        ((made("random", 0.9, 0.0, lost=0.1), *SPREAD[1:]), "equal-scores", Verdict.OPEN),
        ((made("random", 0.7, 0.0), *SPREAD[1:]), "score-gap", Verdict.FAILS),
        ((made("random", 1.0, 0.0, steps=200), *SPREAD[1:]), "equal-scores", Verdict.OPEN),
        ((made("zero", 0.7, seeds=15), FIRST[1]), "alignment", Verdict.OPEN),
    ],
)
def test_verdicts_follow_from_the_shares(runs, name, verdict):
    assert judged(*runs)[1][name].verdict is verdict


def test_a_claim_counts_the_seeds_of_its_own_runs():
    claims = judged(*FIRST, *SPREAD)[1]
    assert set(claims["alignment"].counts) == {one.attrs["run"] for one in FIRST}
    assert set(claims["equal-scores"].counts) == {one.attrs["run"] for one in SPREAD}
    assert all(counts["attempted"] == 100 for claim in claims.values() for counts in claim.counts.values())


def test_seeds_are_binned_by_their_first_step():
    summary = judged(*FIRST)[0]["zero"]
    assert summary["by_margin_seeds"].values.tolist() == [0, 0, 80, 0, 0, 20, 0]
    assert summary["by_correlation_seeds"].values.tolist()[0] == [23, 25, 25, 27]
    assert float(summary["by_margin"][5]) == 1
    assert (float(summary["by_margin_low"][0]), float(summary["by_margin_high"][0])) == (0, 1)
    assert float(summary["optimal"][0]) == 0.7
    assert float(summary["separated"][0]) == 1


def test_the_figure_draws_every_share_that_has_seeds():
    summaries = judged(*FIRST, *SPREAD)[0]
    drawn = figure.draw(summaries)
    assert len(drawn.axes) == 3
    assert "random weights: 300 of 300 seeds kept" in drawn.get_supxlabel()
    (points,) = [points for points in drawn_lines(drawn.axes[2]) if points.shape[1] == 3]
    np.testing.assert_allclose(points, [[0, 0.5, 1], [1, 0.8, 0.5]])
