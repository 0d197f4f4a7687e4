"""Heads, losses and models that are dataclasses with arrays in their fields."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import bias, descent, losses, models
from jaxattn.bias import posing
from jaxattn.descent import loops
from tests import instances
from tests.instances import T, assert_close, d, slow

SEEDS = 8
P = np.random.default_rng(0).normal(size=(T, d))
A = np.arange(1.0, d + 1)
RULE = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)


@dataclass(frozen=True)
class _Head:
    a: Any

    def __call__(self, x, v):
        return v @ x + 0.1 * (self.a @ x) ** 2


@dataclass(frozen=True)
class _Loss:
    scale: Any

    def __call__(self, margin):
        return jnp.exp(-self.scale * margin)


@dataclass(frozen=True)
class _Shifted:
    P: Any

    def __call__(self, W, problem):
        return jnp.einsum("ntd,de,ne->nt", problem.X + self.P[None], W, problem.Z)


@dataclass(frozen=True)
class _Transform:
    P: Any

    def __call__(self, problem):
        return type(problem)(**problem.arrays | {"X": problem.X + self.P[None]})


def transformed(P):
    return models.TransformedInputs(_Transform(P))


# What takes it, how it is made of an array, the array, and the same without arrays.
KINDS: dict[str, tuple[str, Callable[[Any], Any], Any, Any]] = {
    "a head": ("head", _Head, A, lambda x, v: v @ x + 0.1 * (A @ x) ** 2),
    "a loss": ("loss", _Loss, np.array(2.0), lambda margin: jnp.exp(-2.0 * margin)),
    "a function as model": ("model", _Shifted, P, models.key_only(P)),
    "a model": ("model", transformed, P, models.key_only(P)),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_run_is_that_without_arrays_and_equal_content_compiles_once(kind):
    name, make, array, other = kind
    given: dict[str, Any] = {"optimizer": RULE, "steps": 3}
    start, problem = jnp.eye(d), instances.problem()
    run = descent.train(start, problem, **{name: make(array)}, **given)
    expected = descent.train(start, problem, **{name: other}, **given)
    assert_close(run.weights, expected.weights, rtol=1e-9)
    assert_close(run.loss, expected.loss, rtol=1e-9)
    before = loops.trainer.cache_info().misses
    again = descent.train(start, problem, **{name: make(jnp.array(array))}, **given)
    assert loops.trainer.cache_info().misses == before
    assert (again.rule, hash(again.rule)) == (run.rule, hash(run.rule))
    np.testing.assert_array_equal(again.weights, run.weights)
    changed: dict[str, Any] = {name: models.of(make(1.5 * array)) if name == "model" else make(1.5 * array)}
    assert descent.Rule(RULE, 3, **changed) != run.rule


@pytest.mark.parametrize("name", ["a head", "a model", slow("a function as model")])
def test_batches_are_trained_and_ranked(name):
    name, make, array, other = KINDS[name]
    given = {"optimizer": RULE, "steps": 20, "snapshots": (5, 20)}
    start, problems = jnp.zeros((SEEDS, d, d)), instances.problems(SEEDS)

    def ranked(value):
        return bias.rank(descent.train_batch(start, problems, **{name: value}, **given), problems, ("frobenius",))

    ranking, expected = ranked(make(array)), ranked(other)
    assert_close(ranking.margin_ratio, expected.margin_ratio, rtol=1e-6)
    assert ranking.counts == expected.counts
    caches = (loops.trainer, posing._linear, posing._seen)
    before = [cache.cache_info().misses for cache in caches]
    ranked(make(jnp.array(array)))
    assert [cache.cache_info().misses for cache in caches] == before


def test_the_slope_of_a_loss_with_arrays_is_its_attribute():
    @dataclass(frozen=True)
    class Known(_Loss):
        def log_slope(self, margin):
            return jnp.log(self.scale) - self.scale * margin

    slope = losses.log_slope(Known(np.array(2.0)))
    assert slope is not None
    assert_close(slope(jnp.array(1e3)), np.log(2.0) - 2e3)
    assert losses.log_slope(_Loss(np.array(2.0))) is None
    run = descent.train(jnp.eye(d), instances.problem(), loss=Known(jax.numpy.array(2.0)), optimizer=RULE)
    assert np.isfinite(run.weights).all()
