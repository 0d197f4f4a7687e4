"""Global convergence and rates: synthetic runs, descent followed in the logits, and Polyak's steps."""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxattn import attention, descent, losses, metrics, svm, tokens
from jaxattn.experiments.rates import merging
from jaxattn.experiments.rates.law import near_orthogonal
from jaxattn.experiments.rates.ngd_global import CLAIMS, estimate, measure, steps, summarize
from jaxattn.experiments.rates.ngd_global.record import Rates, Starts
from jaxattn.experiments.rates.polyak import log_excess, polyak
from jaxattn.study.settings import recording
from jaxattn.study.settings.schedule import Evenly, Logarithmically, never
from tests.experiments.synthetic import synthetic
from tests.recorded import written

VERDICTS = {"ngd-global:polyak-rate": "holds with a correction"}
pytestmark = pytest.mark.usefixtures("drawn_once")
KEY = jax.random.key(0)
PROBLEM = jax.jit(partial(near_orthogonal, n=3, T=4, d=20))(jax.random.key(1))
STARTS = Starts(small=0.1, large=5.0, margin=10.0)
PLAIN = "plain, d = 128"
MERGED, HALVED = (f"merged up to {shortest}, d = 128" for shortest in (0.1, 0.05))
STEPS = np.array(Logarithmically(8)(10_000))
FAILS = (1.0, 1.0, 1.0, 0.0)
SLOW = ((PLAIN, "gd", -0.3), (MERGED, "merged", -0.6), (HALVED, "merged", -0.6))


def measured():
    """Plain steps are slow, Polyak's fail from far away, and in four dimensions some starts end elsewhere."""
    return {name: run(optimizer, power) for name, optimizer, power in SLOW} | {
        "normalized, d = 128": run("scale_free_gd"),
        "Polyak, d = 128": run("polyak", arrived=(1.0, 1.0, 0.3, 0.5)),
        "normalized, d = 4": run("scale_free_gd", arrived=(0.9, 0.9, 0.6, 0.6), d=4),
    }


def run(optimizer, power=-2.0, arrived=(1.0,) * 4, d=128, step=1.0):
    """1 - cos of the starts falls like a power of the step, for these shares of 100 seeds; the others do not move.

    The path of plain steps is as long as the root of their number, that of others as their number.
    """
    place = (np.arange(100) + 0.5) / 100
    spread = 1 + 0.02 * np.resize([-1.0, 1.0], 100)[:, None]
    exponents = np.where(place[:, None] < np.asarray(arrived), spread * power, 0.0)
    off = np.minimum(STEPS ** exponents[:, :, None], 0.5)
    path = np.broadcast_to(STEPS.astype(float) ** (0.5 if optimizer == "gd" else 1.0), off.shape)
    dims = ("seed", "start", "snapshot")
    return synthetic(
        100,
        {"optimizer": optimizer, "optimizer.step_size": step, "data.n": 4, "data.T": 4, "data.d": d, "steps": 10_000},
        {"start": np.array(Starts.NAMES, object), "snapshot": STEPS},
        off=(dims, off),
        log_rest=(dims, np.where(exponents[:, :, None] < 0, -path, -1e-3) * spread[:, :, None]),
        path=(dims, path.copy()),
        selects=(dims[:2], off[:, :, -1] < 0.1),
        overflowed=(dims[:2], np.zeros((100, 4), bool)),
    )


def test_rates_are_over_the_last_decade_and_slopes_along_the_path():
    summary = estimate(run("scale_free_gd", arrived=(1.0, 1.0, 0.5, 0.0)), KEY)
    np.testing.assert_allclose(summary["exponent"], [-2.0, -2.0, -1.0, 0.0], atol=0.02)
    np.testing.assert_allclose(summary["arrived"], [1.0, 1.0, 0.5, 0.0])
    np.testing.assert_allclose(summary["late"][:2], -1.0, rtol=0.02)


def at_four(zero, far):
    """Starts in four dimensions of which these shares converge."""
    return {"normalized, d = 4": run("scale_free_gd", arrived=(zero, zero, far, far), d=4)}


@pytest.mark.parametrize(
    ("changes", "name", "verdict"),
    [
        # Plain steps are on another path; merged ones do not converge from one start; less merging gives another path.
        ({PLAIN: run("gd", power=-0.2)}, "any-start", "not decided"),
        ({name: run(one, power, FAILS) for name, one, power in SLOW}, "any-start", "does not hold"),
        ({HALVED: run("merged", power=-0.7)}, "any-start", "not decided"),
        # The start decides only if the same seeds converge from W = 0.
        (at_four(0.6, 0.6), "condition", "does not hold"),
        (at_four(1.0, 1.0), "condition", "does not hold"),
    ],
)
def test_a_claim_is_judged_by_all_runs_that_it_compares(changes, name, verdict):
    summaries = summarize(measured() | changes, KEY)
    found = {claim.id: claim.judge(summaries).verdict for claim in CLAIMS}
    assert found[f"ngd-global:{name}"] == verdict
    assert found["ngd-global:any-start-normalized"] == "holds"


def test_merged_steps_are_compared_after_paths_of_the_same_length():
    runs = measured()
    summary = summarize(runs, KEY)[MERGED]
    # 10,000 plain steps are a path of 100.
    np.testing.assert_allclose(summary["from_plain"], 0, atol=1e-3)
    np.testing.assert_allclose(summary["from_halved"], 0, atol=1e-12)
    runs["plain, d = 128"]["path"] *= 10
    summary = summarize(runs, KEY)[MERGED]
    np.testing.assert_allclose(summary["from_plain"], 100**-0.6 - 1000**-0.6, rtol=0.02)


def test_merged_steps_are_plain_ones_but_none_is_too_short():
    rules = descent.gd(10.0), merging.merged(10.0, 0.2)
    plain, merged = (followed(rule, 30, jnp.zeros((20, 20)), *range(1, 31)) for rule in rules)
    lengths = np.diff(np.asarray(plain.path, float), prepend=0)
    # The first steps are longer than the shortest.
    longer = int(np.argmax(lengths < 0.2))
    assert longer > 2
    np.testing.assert_allclose(merged.logits[:longer], plain.logits[:longer], rtol=1e-12)
    np.testing.assert_allclose(np.diff(np.asarray(merged.path, float))[longer:], 0.2, rtol=1e-9)


def test_each_input_has_one_relevant_token_and_the_query_is_its_first():
    X, Y = np.asarray(PROBLEM.X), np.asarray(PROBLEM.Y)
    best = np.asarray(tokens.optimal(PROBLEM))
    for i in range(3):
        np.testing.assert_array_equal(X[i, best[i]], Y[i] * np.asarray(PROBLEM.v))
    np.testing.assert_allclose(np.linalg.norm(X, axis=2), 1.0)
    np.testing.assert_array_equal(PROBLEM.Z, X[:, 0])


def test_the_cosine_of_noise_tokens_is_about_one_over_sqrt_d():
    X = np.asarray(jax.jit(partial(near_orthogonal, n=4, T=4, d=400))(KEY).X).reshape(16, 400)
    cosines = (X @ X.T)[np.triu_indices(16, 1)]
    cosines = cosines[np.abs(cosines) < 0.99]  # Relevant tokens are +mu or -mu.
    assert np.std(cosines) == pytest.approx(1 / 20, rel=0.3)


def followed(rule, number, W, *snapshots):
    """Descent followed in the logits from W, for this number of steps."""
    return jax.jit(steps.followed(rule, number, losses.logistic))(steps.begun(W, PROBLEM), jnp.array(snapshots))


@cache
def solution(shift=0):
    """The direction that selects the tokens so many places after the optimal ones."""
    return svm.solve(svm.token_constraints(PROBLEM, (tokens.optimal(PROBLEM) + shift) % 4)).W


@jax.jit
def log_distance(W, log_scale):
    return log_excess(attention.logits(W, PROBLEM), tokens.scores(PROBLEM), losses.logistic, log_scale)


@pytest.mark.parametrize(
    ("rule", "same", "scale"),
    [
        (descent.gd(0.5), descent.Exact(*descent.gd(0.5)), 0.0),
        (*(descent.normalized_gd(0.3, floor=0.0, penalty=0.0),) * 2, 1.0),
        (*(merging.merged(3.0, 0.2),) * 2, 0.0),
    ],
)
def test_what_is_followed_in_the_logits_is_training_of_W(rule, same, scale):
    W = jnp.asarray(scale * np.random.default_rng(0).normal(size=(20, 20)))
    run = descent.train(W, PROBLEM, optimizer=same, steps=60, snapshots=(1, 20, 60))
    found = followed(rule, 60, W, 1, 20, 60)
    logits = jax.vmap(lambda one: attention.logits(one, PROBLEM))(run.snapshots)
    np.testing.assert_allclose(found.logits, logits, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.size, np.linalg.norm(run.snapshots, axis=(1, 2)), rtol=1e-9)
    assert not found.overflowed


def excess(W):
    return losses.risk(W, PROBLEM) - jnp.mean(losses.logistic(jnp.max(tokens.scores(PROBLEM), axis=1)))


def test_polyaks_steps_are_those_of_optax_where_nothing_underflows():
    W, factor = 0.3 * jax.random.normal(KEY, (20, 20)), 0.7
    # What optax multiplies the gradient by divides the step.
    own, others = polyak(factor), optax.polyak_sgd(max_learning_rate=1e9, scaling=1 / factor)
    mine: Any = W
    theirs: Any = W
    of_excess = jax.jit(jax.value_and_grad(excess))
    for _ in range(5):
        value, slope = of_excess(mine)
        mine = mine + own.update(slope, own.init(mine), value=value)[0]
        value, slope = of_excess(theirs)
        theirs = theirs + others.update(slope, others.init(theirs), theirs, value=value)[0]
    np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    found = followed(own, 5, W, 5)
    np.testing.assert_allclose(found.logits[0], attention.logits(mine, PROBLEM), rtol=1e-6, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("size", [0.0, 1.0, 12.0, 20.0])
def test_the_distance_from_the_least_risk_is_exact_in_the_log_domain(size):
    W = size * solution()
    found = log_distance(W, -3.0) - 3
    assert float(found) == pytest.approx(float(jnp.log(excess(W))), abs=1e-5 if size < 15 else 1e-2)


def test_beyond_all_numbers_the_distance_falls_like_the_norm_of_W():
    near, far = (log_distance(size * solution(), 0.0) for size in (1e3, 1e5))
    assert float(near - far) == pytest.approx(99_000, rel=1e-9)


def test_polyaks_steps_go_on_beyond_all_numbers():
    found = followed(polyak(), 10, 1e4 * solution(), 1, 10)
    assert np.diff(found.path)[0] > 5
    assert not found.overflowed


def test_a_step_that_is_too_long_is_not_taken():
    found = followed(polyak(), 10, 400 * solution(shift=1), 1, 10)
    assert found.overflowed
    assert all(np.isfinite(leaf).all() for leaf in found)


def setting(**changes):
    given: dict[str, Any] = {"law": lambda key: near_orthogonal(key, n=3, T=4, d=20), "initial": STARTS, "key": 5}
    given |= {"optimizer": descent.normalized_gd(1.0, floor=0.0, penalty=0.0), "loss": losses.logistic}
    given |= {"seeds": 3, "steps": 40, "snapshots": Logarithmically(4)}
    return Rates(**(given | changes))


def unknown_slope(margin):
    return jnp.exp(-2 * margin)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"initial": lambda key, d: jnp.zeros((d, d))}, r"^weights: expected the four starts"),
        ({"optimizer": optax.adam(0.1)}, r"^optimizer: expected one whose step depends on the gradient's length alone"),
        ({"snapshots": never}, r"^snapshots: expected at least one"),
        ({"steps": 0}, r"^steps: expected"),
        ({"snapshots": Evenly(50)}, r"^snapshots.every: expected at most"),
    ],
)
def test_a_setting_that_cannot_be_made_is_refused(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        setting(**changes)


def test_other_bad_input_is_named():
    with pytest.raises(ValueError, match=r"^factor: expected"):
        polyak(0.0)
    with pytest.raises(ValueError, match=r"^margin: expected"):
        Starts(small=0.1, large=5.0, margin=-1.0)
    with pytest.raises(ValueError, match="which need the distance of the risk"):
        descent.train(jnp.zeros((20, 20)), PROBLEM, optimizer=polyak(), steps=1)
    with pytest.raises(ValueError, match=r"^loss: expected one whose log_slope is known"):
        log_excess(jnp.zeros((3, 4)), tokens.scores(PROBLEM), unknown_slope, jnp.array(0.0))
    with pytest.raises(ValueError, match=r"^T: expected"):
        near_orthogonal(KEY, n=2, T=1, d=4)


def test_a_wrong_selection_has_no_optimal_token():
    for seed in range(20):
        words = jax.random.key_data(jax.random.key(seed))
        assert np.all(STARTS.wrong(words, PROBLEM) != tokens.optimal(PROBLEM))


@pytest.mark.slow
def test_a_record_is_measured_by_the_certified_solution(tmp_path):
    made = setting()
    record = written(made, tmp_path)
    one = measure(record)
    assert (one.attrs["kept"], one.sizes["seed"], one["start"].values.tolist()) == (3, 3, [*Starts.NAMES])
    assert {name: one[name].dims for name in one.data_vars if name != "size"} == {
        name: array.dims for name, array in run("scale_free_gd").data_vars.items()
    }
    # Seed 0, from W = 0, by the training of the library.
    data_key, _ = recording.keys(jnp.asarray(0), jax.random.key_data(jax.random.key(5)))
    problem = made.law(jax.random.wrap_key_data(data_key))
    trained = descent.train(jnp.zeros((20, 20)), problem, optimizer=made.optimizer, steps=40)
    alpha = tokens.optimal(problem)
    solution = svm.solve(svm.token_constraints(problem, alpha))
    assert float(one["off"][0, 0, -1]) == pytest.approx(
        1 - float(metrics.correlation(trained.weights, solution.W)), abs=1e-9
    )
    s = np.asarray(attention.probabilities(trained.weights, problem))[np.arange(3), alpha]
    assert float(one["log_rest"][0, 0, -1]) == pytest.approx(np.log(np.max(1 - s)), rel=1e-4)
    assert float(one["path"][0, 0, -1]) == pytest.approx(40 / float(solution.primal), rel=1e-6)
    # The start far along a wrong selection is at its margin.
    words = record["weights_key"].values[0]
    W_wrong = svm.solve(svm.token_constraints(problem, STARTS.wrong(words, problem))).W
    assert np.linalg.norm(STARTS(words, W_wrong)[3]) == pytest.approx(10 * np.linalg.norm(W_wrong))
