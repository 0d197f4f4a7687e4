"""Means over seeds: what NumPy gives, with intervals that depend on the values and the key alone."""

import jax
import numpy as np
import pytest
import scipy.stats

from jaxattn.statistics import Estimate, bootstrap, median, pooled, proportion

KEY = jax.random.key(0)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(3.0, 2.0, size=shape)


def assert_same(found: Estimate, expected: Estimate) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("shape", [(50,), (50, 2, 3)])
def test_mean_and_standard_error_are_those_of_numpy(shape):
    values = normal(*shape)
    estimate = bootstrap(values, KEY)
    np.testing.assert_allclose(estimate.mean, np.mean(values, axis=0), rtol=1e-12)
    np.testing.assert_allclose(estimate.error, np.sqrt(np.var(values, axis=0, ddof=1) / 50), rtol=1e-12)
    assert all(np.shape(part) == shape[1:] for part in estimate)


def test_the_interval_holds_the_true_mean_as_often_as_its_level_says():
    # 300 samples at once; the share has a standard deviation of 0.023.
    rng = np.random.default_rng(1)
    estimate = bootstrap(rng.normal(3.0, 2.0, size=(60, 300)), KEY, level=0.8)
    held = (estimate.low < 3.0) & (estimate.high > 3.0)
    assert 0.7 < held.mean() < 0.9


def test_the_same_key_gives_the_same_interval_and_another_key_another():
    values = normal(30)
    first, again, other = (bootstrap(values, jax.random.key(seed)) for seed in (7, 7, 8))
    assert_same(again, first)
    assert other.mean == first.mean
    assert other.low != first.low
    assert other.high != first.high


def test_every_entry_of_an_array_is_estimated_as_if_it_were_alone():
    values = normal(30, 2, 3)
    whole = bootstrap(values, KEY)
    for where in np.ndindex(2, 3):
        alone = bootstrap(values[:, *where], KEY)
        assert_same(Estimate(*(part[where] for part in whole)), alone)


def test_one_seed_is_its_own_mean_with_an_infinite_error():
    estimate = bootstrap(np.array([[2.0, -1.0]]), KEY)
    for part in (estimate.mean, estimate.low, estimate.high):
        np.testing.assert_allclose(part, [2.0, -1.0], rtol=1e-12)
    np.testing.assert_array_equal(estimate.error, [np.inf, np.inf])


@pytest.mark.parametrize("seeds", [1, 7, 200])
def test_a_proportion_of_all_or_none_still_has_an_interval(seeds):
    z = 1.959963984540054
    estimate = proportion(np.stack([np.ones(seeds, bool), np.zeros(seeds, bool)], axis=1))
    np.testing.assert_array_equal(estimate.mean, [1, 0])
    np.testing.assert_allclose(estimate.low, [seeds / (seeds + z**2), 0], rtol=1e-12)
    np.testing.assert_allclose(estimate.high, [1, z**2 / (seeds + z**2)], rtol=1e-12)
    assert estimate.low[1] == 0
    assert estimate.high[0] == 1


def test_cases_of_a_seed_that_are_all_alike_count_as_one():
    # Every seed's nine cases are the same, so that they say no more than one: a bootstrap over the seeds themselves.
    of_seed = np.random.default_rng(3).uniform(size=(80, 2)) < 0.3
    estimate = pooled(np.repeat(of_seed, 9, axis=0), np.repeat(np.arange(80), 9), KEY)
    assert_same(estimate._replace(error=0), bootstrap(of_seed, KEY)._replace(error=0))
    np.testing.assert_allclose(estimate.error, bootstrap(of_seed, KEY).error, rtol=0.1)


def test_the_share_of_cases_is_pooled_and_held_by_its_interval_as_often_as_its_level_says():
    # Seeds of one to six cases, each with a chance of its own that has mean 0.3.
    rng, cases = np.random.default_rng(4), 1 + np.arange(90) % 6
    chance = rng.beta(0.6, 1.4, size=(90, 300))
    seed = np.repeat(np.arange(90), cases)
    hits = rng.uniform(size=(seed.size, 300)) < chance[seed]
    estimate = pooled(hits, seed, KEY, level=0.8)
    np.testing.assert_allclose(estimate.mean, hits.mean(axis=0), rtol=1e-12)
    held = (estimate.low < 0.3) & (estimate.high > 0.3)
    assert 0.7 < held.mean() < 0.9
    # Taken for independent, they would be held less often.
    alone = proportion(hits, level=0.8)
    assert ((alone.low < 0.3) & (alone.high > 0.3)).mean() < 0.7


def test_cases_that_are_all_hits_have_the_interval_of_as_many_seeds():
    seed = np.repeat(np.arange(7), 3)
    estimate = pooled(np.stack([np.ones(21, bool), np.zeros(21, bool), seed == 0], axis=1), seed, KEY)
    certain = proportion(np.stack([np.ones(7, bool), np.zeros(7, bool)], axis=1))
    np.testing.assert_allclose(estimate.mean, [1, 0, 1 / 7], rtol=1e-12)
    np.testing.assert_allclose((estimate.low[:2], estimate.high[:2]), (certain.low, certain.high), rtol=1e-12)
    assert estimate.low[2] < 1 / 7 < estimate.high[2]


@pytest.mark.parametrize("hits", [0, 1, 7, 20])
def test_the_interval_of_a_share_is_that_of_scipy(hits):
    estimate = proportion(np.arange(20) < hits)
    theirs = scipy.stats.binomtest(hits, 20).proportion_ci(0.95, "wilson")
    np.testing.assert_allclose([estimate.low, estimate.high], theirs, atol=1e-14)


def test_the_interval_of_a_mean_is_that_of_scipy_up_to_resampling():
    values = np.random.default_rng(3).exponential(size=50)
    estimate = bootstrap(values, jax.random.key(5), samples=20_000)
    theirs = scipy.stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(4)
    ).confidence_interval
    np.testing.assert_allclose([estimate.low, estimate.high], theirs, atol=0.02 * values.std())


def spoiled(number: float) -> np.ndarray:
    return np.where(np.isin(np.arange(10).reshape(5, 2), (2, 4)), number, normal(5, 2))


ONE_TWO = np.array([1.0, 2.0])
LEVEL, HITS = "level: expected a share between 0 and 1, found", "pooled: expected hits with a seed each, found shapes"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bootstrap(np.zeros(0), KEY), "bootstrap: expected at least one seed, found none"),
        (lambda: bootstrap(np.zeros((0, 3)), KEY), "bootstrap: expected at least one seed, found none"),
        (lambda: bootstrap(spoiled(np.nan), KEY), "bootstrap: expected finite values, found 2 others"),
        (lambda: bootstrap(spoiled(np.inf), KEY), "bootstrap: expected finite values, found 2 others"),
        *(
            (lambda level=level: bootstrap(normal(5), KEY, level=level), f"{LEVEL} {level}")
            for level in (0.0, 1.0, -0.5, 95.0, np.nan)
        ),
        (lambda: median(ONE_TWO[:0], ONE_TWO[:0], ONE_TWO[:0], KEY), "median: expected at least one seed, found none"),
        (lambda: median(np.nan * ONE_TWO, ONE_TWO, ONE_TWO, KEY), "median: expected numbers, found NaN in 2 of 2"),
        (
            lambda: median(ONE_TWO, ONE_TWO[:1], ONE_TWO, KEY),
            r"median: expected values and their ranges of one shape, found \[\(2,\), \(1,\), \(2,\)\]",
        ),
        (lambda: median(ONE_TWO, ONE_TWO, ONE_TWO, KEY, level=95), f"{LEVEL} 95"),
        (lambda: proportion(np.zeros((0, 2), bool)), "proportion: expected at least one seed"),
        (lambda: proportion(np.ones(3, bool), level=1.0), f"{LEVEL} 1"),
        (lambda: pooled(np.ones(3, bool), np.arange(2), KEY), rf"{HITS} \(3,\) and \(2,\)"),
        (lambda: pooled(np.zeros(0, bool), np.arange(0), KEY), ".*expected at least one seed"),
    ],
)
def test_values_without_a_mean_and_levels_that_are_no_share_are_refused(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()
