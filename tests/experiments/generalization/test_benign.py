"""Token selection with flipped labels: synthetic outcomes, the data, and what a record gives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxattn import data, descent, heads, losses, records
from jaxattn.experiments.generalization.benign import CLAIMS, bands, law
from jaxattn.experiments.generalization.benign.measure import _new, measure
from jaxattn.experiments.generalization.benign.record import Selecting
from jaxattn.study.settings import recording, schedule
from tests.experiments.synthetic import synthetic

KEY = jax.random.key(0)
SIZES = {"n": 4, "T": 3, "d": 400, "least": 5.0, "most": 20.0}
SEEDS, STEPS = 300, np.array(schedule.Logarithmically(8)(1500))
VERDICTS = {"benign:high-snr": "holds with a correction", "benign:late": "does not hold"}


def measured():
    """Runs of d = 2,000 and a million: low ratios overfit benignly, weak signals harmfully; fits follow selection."""
    weaker = run(20, 1_000_000, before=0.8)
    return {
        "n = 20, d = 2,000": run(20, 2000),
        "n = 20, d = 1,000,000": run(20, 1_000_000),
        f"n = 20, d = 1,000,000{bands.WEAKER}": weaker,
    }


def run(n, d, before=None):
    """A run with signals from weak to strong; accuracy falls with weak ones; labels are fit by snapshot 16.

    A head that knows little beforehand learns before labels are fit.
    """
    strength = np.geomspace(0.5, 20, SEEDS)
    # Seeds also differ in their changes.
    spread = np.resize([-1.0, 1.0, -0.5, 0.5], SEEDS)[:, None]
    snapshots = np.arange(len(STEPS))
    first, then = np.interp(snapshots, [8, 16], [0, 1]), np.interp(snapshots, [17, snapshots[-1]], [0, 1])
    test = np.where((strength <= 1.2)[:, None], 0.8 - 0.2 * (1 + 0.2 * spread) * first, 0.99) + 0.002 * spread
    return synthetic(
        SEEDS,
        {"steps": int(STEPS[-1])},
        {"snapshot": STEPS},
        clean=np.ones_like(test),
        flipped=np.tile(1.0 * (first >= 1), (SEEDS, 1)),
        attends=0.125 + 0.8 * np.minimum(2 * first, 1) + 0.002 * spread,
        test=test,
        finds=0.125 + 0.5 * then + 0.002 * spread,
        time=np.tile(0.01 * STEPS - 2.0, (SEEDS, 1)),
        before=test[:, 0] if before is None else before + 0.002 * spread[:, 0],
        ratio=strength**2 * (n / d) ** 0.5,
        strength=strength,
    )


@pytest.mark.parametrize(
    ("before", "after", "low", "late"),
    [
        # Known beforehand; learnt; lost.
        (0.99, 0.99, "not decided", "not decided"),
        (0.6, 0.99, "holds", "holds"),
        (0.6, 0.3, "does not hold", "does not hold"),
    ],
)
def test_what_is_known_before_training_does_not_show_what_is_learnt(before, after, low, late):
    runs = measured()
    for one in runs.values():
        rise = np.interp(np.arange(len(STEPS)), [17, len(STEPS) - 1], [before, after])
        one["test"] = one["test"] * 0 + rise + 0.002 * np.resize([-1.0, 1.0], SEEDS)[:, None]
        one["before"] = one["test"].isel(snapshot=0, drop=True)
    summaries = bands.summarize(runs, KEY)
    found = {claim.id: claim.judge(summaries).verdict for claim in CLAIMS}
    assert (found["benign:low-snr"], found["benign:late"]) == (low, late)


def test_tokens_have_the_inner_products_of_a_signal_in_noise():
    draw = jax.jit(jax.vmap(functools.partial(law.signal_tokens, **SIZES)))
    problems = draw(jax.random.split(KEY, 2000))
    X, mu = np.asarray(problems.X), np.asarray(law.signal(problems.v))
    assert mu.min() >= 5 * (1 - 1e-12)
    assert mu.max() <= 20 * (1 + 1e-12)
    noise = X.copy()
    # Labels 1, 1, -1, -1, of which none is flipped by its class: the first input of each class is not of this test.
    for i, (own, other) in enumerate([(0, 1), (0, 1), (1, 0), (1, 0)]):
        noise[:, i, 0, own] -= mu
        noise[:, i, 1, own] -= 0.1 * mu
        noise[:, i, 2, other] -= 0.1 * mu
    flat = noise.reshape(2000, 12, 15)
    products = np.einsum("sad,sbd->sab", flat, flat)
    # Of standard normal vectors in R^400: squared lengths have mean 400 and variance 800, products 0 and 400.
    own = products[:, np.arange(12), np.arange(12)]
    np.testing.assert_allclose(own.mean(axis=0), 400, atol=4)
    np.testing.assert_allclose(own.var(axis=0), 800, rtol=0.2)
    across = products[:, ~np.eye(12, dtype=bool)]
    np.testing.assert_allclose(across.mean(axis=0), 0, atol=3)
    np.testing.assert_allclose(across.var(axis=0), 400, rtol=0.2)
    # The head reads 1 / sqrt 2 of a signal.
    scores = np.einsum("sntd,sd->snt", X - noise, problems.v)
    np.testing.assert_allclose(scores[:, 0, 0], 0.5**0.5, rtol=1e-12)
    np.testing.assert_allclose(scores[:, 3, 2], 0.1 * 0.5**0.5, rtol=1e-12)


def test_as_many_labels_of_each_class_are_flipped_as_the_share_says():
    assert np.flatnonzero(law.flipped(20, 0.2)).tolist() == [0, 1, 10, 11]
    assert not law.flipped(20, 0.0).any()
    problem = jax.jit(functools.partial(law.signal_tokens, n=20, T=3, d=100, least=5.0, most=5.0))(KEY)
    np.testing.assert_array_equal(law.classes(20) != problem.Y, law.flipped(20, 0.2))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"n": 5}, "n, T, d: expected an even n"),
        ({"T": 2}, "n, T, d: expected an even n, T of at least 3"),
        ({"d": 14}, "d of at least n T \\+ 3"),
        ({"least": 30.0}, "least, most, noise: expected least <= most"),
        ({"blur": -1.0}, "blur: expected a finite number of at least 0"),
        ({"noise": 1.5}, "noise in 0..1, found 5.0, 20.0, 1.5"),
        ({"most": float("inf")}, "most: expected"),
    ],
)
def test_wrong_sizes_of_the_data_are_named(changes, named):
    with pytest.raises(ValueError, match=named):
        law.signal_tokens(KEY, **(SIZES | changes))


@pytest.mark.slow
def test_new_inputs_are_those_of_the_law():
    # Logits and scores of tokens drawn in full, against those that are drawn from their joint law.
    draw = functools.partial(law.signal_tokens, n=4, T=3, d=15, least=5.0, most=5.0, blur=0.5)
    problem = draw(KEY)
    w = 0.3 * jax.random.normal(jax.random.key(1), (15,))
    X = np.array(jax.vmap(lambda key: draw(key).X)(jax.random.split(jax.random.key(2), 4000))).reshape(-1, 4, 3, 15)
    # A Wishart factor is no sample of normal tokens: these have the first three coordinates and any others drawn.
    X[..., 3:] = np.random.default_rng(0).normal(size=X[..., 3:].shape)
    label, logits, scores = (
        np.concatenate(parts)
        for parts in zip(*(_new(key, w, problem) for key in jax.random.split(jax.random.key(3), 40)), strict=True)
    )
    for sign, inputs in ((1, slice(0, 2)), (-1, slice(2, 4))):
        for drawn, vector in ((logits, w), (scores, problem.v)):
            expected = (X[:, inputs] @ np.asarray(vector)).reshape(-1, 3)
            np.testing.assert_allclose(drawn[label == sign].mean(axis=0), expected.mean(axis=0), atol=0.06)
            np.testing.assert_allclose(drawn[label == sign].std(axis=0), expected.std(axis=0), rtol=0.06)
    centred = [values[label == 1, 0] - values[label == 1, 0].mean() for values in (logits, scores)]
    assert np.mean(centred[0] * centred[1]) == pytest.approx(float(w @ problem.v), abs=0.03)


def test_labels_count_as_fit_from_where_they_stay_so():
    fits = np.array([[0, 1, 0, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 1, 0], [0, 0, 0, 0, 1]], float)
    seeds = xarray.Dataset({"clean": (("seed", "snapshot"), np.ones((4, 5))), "flipped": (("seed", "snapshot"), fits)})
    assert bands._fitted(seeds).tolist() == [3, 0, -1, 4]


def selecting(problems):
    rule = descent.normalized_gd(0.05, floor=0.0, penalty=0.0)
    kept = schedule.Logarithmically(4)
    return Selecting(problems, rule, losses.logistic, heads.linear, seeds=3, key=1, steps=200, snapshots=kept)


def test_inputs_with_queries_of_their_own_are_an_error():
    setting = selecting(functools.partial(data.sphere, n=4, T=3, d=5))
    with pytest.raises(ValueError, match="data: expected inputs with one common query"):
        setting.block(np.arange(2), np.asarray(jax.random.key_data(KEY)))


@pytest.mark.slow
def test_a_record_is_measured(tmp_path):
    setting = selecting(functools.partial(law.signal_tokens, **SIZES))
    recording.run(setting, tmp_path / "record.zarr", {})
    record = records.load(tmp_path / "record.zarr")
    found = measure(record.assign_attrs({"data.d": 400, "optimizer.step_size": 0.05}))
    expected = run(4, 400)
    assert {name: expected[name].dims for name in expected} == {name: found[name].dims for name in found}
    # What is kept is W z of the W that training alone gives.
    problem = law.signal_tokens(jax.random.wrap_key_data(jnp.asarray(record["data_key"].values[0])), **SIZES)
    trained = descent.train(jnp.zeros((15, 15)), problem, optimizer=setting.optimizer, steps=200)
    np.testing.assert_allclose(record["w_snapshots"].values[0, -1], trained.weights @ problem.Z[0], atol=1e-6)
    fits = np.asarray(problem.Y * heads_of(problem, trained.weights @ problem.Z[0]) > 0)
    assert found["clean"].values[0, -1] == pytest.approx(fits[np.asarray(~law.flipped(4, 0.2))].mean())


def heads_of(problem, w):
    """The predictions of attention with logits X w."""
    return jnp.sum(jax.nn.softmax(problem.X @ w, axis=1) * (problem.X @ problem.v), axis=1)
