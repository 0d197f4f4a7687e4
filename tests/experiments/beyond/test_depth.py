"""Synthetic measurements of two layers; their gradient, the setting that trains them, and what a record gives."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray

from jaxattn import data, descent, losses
from jaxattn.experiments.beyond.depth import FIRST, layers, summarize
from jaxattn.experiments.beyond.depth.layers import Layers
from jaxattn.experiments.beyond.depth.measure import NORMS
from jaxattn.experiments.beyond.depth.record import TwoLayers
from jaxattn.study.settings import recording, schedule
from tests.experiments.bias import synthetic
from tests.instances import T, d, n, problem

KEY = jax.random.key(0)
RULE = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
SPHERE = functools.partial(data.sphere, n=n, T=T, d=d)
VERDICTS = {"depth:first": "not decided", "depth:every-position": "does not hold", "depth:unread": "does not hold"}


def measured():
    """The second layer obeys the Frobenius norm; the first still moves, far from it over every position."""
    ratios = {"second": (0.99, 0.0), "first": (0.9, 0.05), "every": (0.1, 0.05)}
    # The logarithm of a share that falls in four fifths of the seeds.
    ends = np.where(np.arange(synthetic.SEEDS) % 5, -40.0, -1.0)
    falls = ends[:, None] * np.linspace(0.1, 1, len(synthetic.STEPS))
    arrays: dict[str, Any] = {"unread": (("seed", "snapshot"), falls)}
    for name, (ratio, moving) in ratios.items():
        layer = synthetic.run({"frobenius": ratio}, NORMS[:1] if name == "every" else NORMS, moving)
        arrays |= {f"{name}_{part}": layer[part] for part in ("probability", "size")}
        arrays[f"{name}_confusion"] = ((f"{name}_norm", f"{name}_rival"), layer["confusion"].values)
        arrays[name] = (layer.isel(norm=0, drop=True) if name == "every" else layer)["margin_ratio"]
    exponents = {f"{name}_exponents": "[]" for name in ratios}
    return {"two layers": xarray.Dataset(arrays, attrs=synthetic.run({}, NORMS).attrs | exponents)}


def test_unread_positions_are_gone_below_a_hundredth():
    first = summarize(measured(), KEY)[FIRST]
    assert float(first["gone"]) == pytest.approx(0.8)
    np.testing.assert_allclose(first["lack"], 0.1 * synthetic.SPREAD)
    assert set(first["unread_end"].values) == {-40.0, -1.0}


def test_more_than_one_run_and_shares_above_one_are_errors():
    run = measured()["two layers"]
    with pytest.raises(ValueError, match=r"^depth: expected one run"):
        summarize({"a": run, "b": run}, KEY)
    with pytest.raises(ValueError, match=r"^depth: expected logarithms of shares, found 40"):
        summarize({"a": run.assign(unread=-run["unread"])}, KEY)


def weights(size: float = 3.0) -> Layers:
    return Layers(*(size * jax.random.normal(key, (d, d)) for key in jax.random.split(KEY)))


def risk(given: Layers, one) -> jax.Array:
    return jnp.mean(losses.logistic(one.Y * layers.predictions(given, one)))


@pytest.mark.slow
@pytest.mark.parametrize("size", [0.0, 1.0, 3.0])
def test_directions_are_those_of_the_gradient(size):
    one, given = problem(), weights(size)
    for slope, found in zip(jax.grad(risk)(given, one), layers.directions(given, one), strict=True):
        scale = jnp.sum(slope * found) / jnp.sum(found**2)
        assert scale > 0
        np.testing.assert_allclose(scale * found, slope, rtol=1e-9, atol=1e-12 * float(jnp.abs(slope).max()))


def test_directions_do_not_underflow():
    one = problem()
    slopes = jax.jit(jax.grad(risk))(weights(3e4), one)
    assert max(np.abs(slope).max() for slope in slopes) < 1e-9
    for found in jax.jit(layers.directions)(weights(3e4), one):
        assert np.isfinite(found).all()
        assert np.linalg.norm(found) > 1e-3


def test_the_unread_share_is_that_of_the_gradient_by_the_first_logits():
    one, given = problem(), weights(1.0)

    def moved(shift):
        logits = jnp.einsum("nsd,de,nte->nts", one.X, given.first, one.X) + shift
        outputs = one.X + jnp.einsum("nts,nsd->ntd", jax.nn.softmax(logits, axis=-1), one.X)
        s = jax.nn.softmax(jnp.einsum("ntd,de,ne->nt", outputs, given.second, one.Z), axis=1)
        return jnp.mean(losses.logistic(one.Y * jnp.einsum("nt,ntd,d->n", s, outputs, one.v)))

    mass = np.abs(jax.jit(jax.grad(moved))(jnp.zeros((n, T, T))))
    logits = np.einsum("nsd,de,nte->nts", one.X, given.first, one.X)
    mass[np.arange(T) == logits.argmax(axis=-1)[..., None]] = 0
    outputs = layers.attended(given.first, one)
    read = np.einsum("ntd,de,ne->nt", outputs, given.second, one.Z).argmax(axis=1)
    unread = mass.sum() - mass[np.arange(n), read].sum()
    assert 10 ** float(jax.jit(layers.log_unread)(given, one)) == pytest.approx(unread / mass.sum(), rel=1e-9)


def test_snapshots_are_those_of_a_loop():
    one = problem()
    zero = Layers(jnp.zeros((d, d)), jnp.zeros((d, d)))
    found = layers.trained(zero, one, RULE, (2, 5))
    W, directions = zero, jax.jit(layers.directions)
    for step in range(1, 6):
        slopes = map(np.asarray, directions(W, one))
        W = Layers(*(V - 0.1 * G / np.linalg.norm(G) for V, G in zip(W, slopes, strict=True)))
        if step in (2, 5):
            for kept, wanted in zip(found, W, strict=True):
                np.testing.assert_allclose(kept[(2, 5).index(step)], wanted, rtol=1e-9, atol=1e-12)


def setting(**changes) -> TwoLayers:
    given = {"law": SPHERE, "optimizer": RULE, "seeds": 3, "key": 1, "steps": 400, "snapshots": schedule.Evenly(100)}
    return TwoLayers(**given | changes)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"optimizer": descent.normalized_gd(0.1)}, TypeError, "^optimizer: expected one that moves a matrix along"),
        ({"optimizer": descent.ScaleFree(*optax.adam(0.1, eps=0.0))}, TypeError, "^optimizer: expected one that moves"),
        ({"law": data.Spheres(n, T, (4, 5))}, TypeError, "^data: expected a law of one dimension"),
        ({"seeds": 0}, ValueError, "seeds"),
        ({"snapshots": schedule.never}, ValueError, "^snapshots: expected at least one, found none"),
    ],
)
def test_a_setting_that_cannot_be_trained_is_named(changes, error, message):
    with pytest.raises(error, match=message):
        setting(**changes)


def test_a_law_with_a_mask_is_refused():
    with pytest.raises(TypeError, match=r"^data: expected a law such as sphere"):
        recording.shapes(setting(law=functools.partial(data.causal, n=n, T=T, d=d)))
