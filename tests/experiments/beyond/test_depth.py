"""Two layers of attention: their gradient, the setting that trains them, what is measured, the verdicts, the figure."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxattn import data, descent, losses, records
from jaxattn.experiments.beyond.depth import examples, figure, layers
from jaxattn.experiments.beyond.depth.claims import CLAIMS, summarize
from jaxattn.experiments.beyond.depth.layers import Layers
from jaxattn.experiments.beyond.depth.measure import measure
from jaxattn.experiments.beyond.depth.record import TwoLayers
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import recording, schedule
from tests.instances import T, d, drawn_lines, n, problem

KEY = jax.random.key(0)
RULE = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
SPHERE = functools.partial(data.sphere, n=n, T=T, d=d)


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
    slopes = jax.grad(risk)(weights(3e4), one)
    assert max(float(jnp.abs(slope).max()) for slope in slopes) < 1e-9
    for found in layers.directions(weights(3e4), one):
        assert np.isfinite(found).all()
        assert float(jnp.linalg.norm(found)) > 1e-3


def test_the_unread_share_is_that_of_the_gradient_by_the_first_logits():
    one, given = problem(), weights(1.0)

    def moved(shift):
        logits = jnp.einsum("nsd,de,nte->nts", one.X, given.first, one.X) + shift
        outputs = one.X + jnp.einsum("nts,nsd->ntd", jax.nn.softmax(logits, axis=-1), one.X)
        s = jax.nn.softmax(jnp.einsum("ntd,de,ne->nt", outputs, given.second, one.Z), axis=1)
        return jnp.mean(losses.logistic(one.Y * jnp.einsum("nt,ntd,d->n", s, outputs, one.v)))

    mass = np.abs(jax.grad(moved)(jnp.zeros((n, T, T))))
    logits = np.einsum("nsd,de,nte->nts", one.X, given.first, one.X)
    mass[np.arange(T) == logits.argmax(axis=-1)[..., None]] = 0
    outputs = layers.attended(given.first, one)
    read = np.einsum("ntd,de,ne->nt", outputs, given.second, one.Z).argmax(axis=1)
    unread = mass.sum() - mass[np.arange(n), read].sum()
    assert 10 ** float(layers.log_unread(given, one)) == pytest.approx(unread / mass.sum(), rel=1e-9)


def test_snapshots_are_those_of_a_loop():
    one = problem()
    zero = Layers(jnp.zeros((d, d)), jnp.zeros((d, d)))
    found = layers.trained(zero, one, RULE, (2, 5))
    W = zero
    for step in range(1, 6):
        slopes = layers.directions(W, one)
        W = Layers(*(V - 0.1 * G / jnp.linalg.norm(G) for V, G in zip(W, slopes, strict=True)))
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


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, {}),
        ({"second": 0.9}, {"second": Verdict.FAILS}),
        ({"first": 0.9}, {"first": Verdict.FAILS}),
        ({"first": 0.9, "moving": {"first": 0.05}}, {"first": Verdict.OPEN}),
        ({"every": 0.1}, {"every-position": Verdict.FAILS}),
        # It would come there.
        ({"every": 0.8, "moving": {"every": 0.05}}, {"every-position": Verdict.OPEN}),
        ({"every": 0.1, "moving": {"every": 0.05}}, {"every-position": Verdict.FAILS}),
        ({"gone": 0.8}, {"unread": Verdict.FAILS}),
    ],
)
def test_each_claim_follows_its_own_number(changes, wrong):
    summaries = summarize(examples.runs(**changes), KEY)
    found = {claim.id.partition(":")[2]: claim.judge(summaries).verdict for claim in CLAIMS}
    assert found == {name: wrong.get(name, Verdict.HOLDS) for name in found}


@pytest.mark.parametrize(
    ("changes", "claims"),
    [({"seeds": 6}, 4), ({"probability": 0.9}, 2)],
)
def test_few_seeds_and_soft_attention_decide_nothing(changes, claims):
    summaries = summarize(examples.runs(**changes), KEY)
    assert [claim.judge(summaries).verdict for claim in CLAIMS].count(Verdict.OPEN) == claims


def test_more_than_one_run_and_shares_above_one_are_errors():
    one = examples.runs()["two layers"]
    with pytest.raises(ValueError, match=r"^depth: expected one run"):
        summarize({"a": one, "b": one}, KEY)
    with pytest.raises(ValueError, match=r"^depth: expected logarithms of shares, found 40"):
        summarize({"a": one.assign(unread=-one["unread"])}, KEY)


def test_the_figure_draws_the_means_and_every_seed():
    summaries = summarize(examples.runs(every=0.1), KEY)
    drawn = figure.draw(summaries)
    left, middle, right = drawn.axes
    curves = [(left, "second", "frobenius"), (left, "second", "nuclear"), (middle, "first", "frobenius")]
    for k, (axes, name, norm) in enumerate(curves):
        line = drawn_lines(axes, least=3)[k % 2]
        np.testing.assert_array_equal(line[1], summaries[name]["along"].sel(norm=norm))
    dots = drawn_lines(right, least=3)[0]
    np.testing.assert_array_equal(dots[1], summaries["first"]["lack"])
    assert "the first where the second reads" in str(drawn.get_suptitle())


@pytest.mark.slow
def test_a_record_is_measured_and_looks_like_the_examples(tmp_path):
    recording.run(setting(), tmp_path / "record.zarr", {})
    one, made = measure(records.load(tmp_path / "record.zarr")), examples.runs()["two layers"]
    assert one.attrs["kept"] > 0
    assert {name: made[name].dims for name in made.data_vars} == {name: one[name].dims for name in one.data_vars}
    assert set(made.attrs) == set(one.attrs)
    assert (one["first"].sel(norm="frobenius")[:, -1] <= 1 + 1e-6).all()
    assert one.attrs["attempted"] == sum(one.attrs[name] for name in ("kept", "diverged", "infeasible", "unsolved"))
