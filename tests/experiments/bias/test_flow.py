"""Synthetic measurements of gradient flows on K and Q; their data, starts and model; and what trained records give."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import attention, data, descent, initial, losses, models
from jaxattn.experiments.bias.flow import EXPERIMENT, laws, measure
from jaxattn.experiments.bias.flow.model import Diagonal
from jaxattn.study.settings import schedule
from tests.experiments.bias import synthetic
from tests.recorded import recorded

KEY = jax.random.key(0)
VERDICTS = {"flow:random": "does not hold", "flow:unbalanced": "not decided"}


def measured():
    """As predicted, but steps twice as long end elsewhere from random starts, and ratios of unbalanced ones fall."""
    found = {}
    for name in synthetic.run_names("flow"):
        norm = "frobenius" if name.startswith("one matrix") else "nuclear"
        moving = -0.05 if name.startswith("unbalanced") else 0.0
        found[name] = run({norm: 0.94 if name == "random, h = 1" else 0.99}, moving)
    return found


def run(ratios, moving=0.0):
    found = synthetic.run(ratios, ("frobenius", "nuclear"), moving)
    return found.assign(
        cosine=found["margin_ratio"],
        size=(("seed", "snapshot"), np.tile(synthetic.STEPS.astype(float), (synthetic.SEEDS, 1))),
        optimal=(("seed",), np.ones(synthetic.SEEDS)),
    )


def test_only_seeds_of_minimal_loss_are_judged_unless_they_are_few():
    reached = np.arange(synthetic.SEEDS) < 10
    for kept, ratio in ((reached, 0.99), (reached & (np.arange(synthetic.SEEDS) < 7), (7 * 0.99 + 13 * 0.66) / 20)):
        planted = run({"nuclear": 0.99})
        planted["margin_ratio"] = planted["margin_ratio"].where(kept[:, None, None], 0.66).transpose("seed", ...)
        one = EXPERIMENT.estimates({"random, h = 0.5": planted.assign(optimal=("seed", kept.astype(float)))}, KEY)
        summary = one["random, h = 0.5"]
        assert summary.attrs["minimal"] == kept.sum()
        assert float(summary["reached"]) == kept.mean()
        assert float(summary["ratio"].sel(norm="nuclear")) == pytest.approx(ratio, abs=0.01)


@pytest.mark.slow
def test_mirror_images_keep_diagonal_weights_diagonal():
    problem = laws.mirrored(KEY, n=2, T=3, d=5)
    assert problem.n == 2 * 2**4
    start = laws.on_axes(jax.random.key(1), 5)

    def risk(weights):
        return losses.risk(weights, problem, loss=losses.exponential)

    # Also away from W = 0.
    for weights in (start, attention.Factored(start.K, 0.7 * start.K)):
        for slope in jax.grad(risk)(weights):
            off = np.asarray(slope) - np.diag(np.diag(slope))
            assert np.abs(off).max() < 1e-14
    logits = np.asarray(attention.logits(attention.Factored(start.K, start.K), problem)).reshape(-1, 2, 3)
    np.testing.assert_allclose(logits, np.broadcast_to(logits[:1], logits.shape), rtol=1e-12)


@pytest.mark.parametrize("d", [1, 12])
def test_mirrored_data_of_too_few_or_too_many_dimensions_are_an_error(d):
    with pytest.raises(ValueError, match=f"^d: expected an integer of at least 2 .* found {d}"):
        laws.mirrored(KEY, n=2, T=3, d=d)


def test_an_unbalanced_start_has_the_product_of_the_one_that_is_drawn():
    one, drawn = laws.unbalanced(KEY, 5, ratio=16.0), initial.factored(KEY, 5)
    np.testing.assert_allclose(one.W, drawn.W, rtol=1e-12)
    lengths = [np.linalg.norm(K) / np.linalg.norm(Q) for K, Q in (one, drawn)]
    assert lengths[0] == pytest.approx(16 * lengths[1])
    with pytest.raises(ValueError, match="ratio: expected"):
        laws.unbalanced(KEY, 5, ratio=0.0)


def test_the_diagonal_model_is_attention_with_diagonal_matrices():
    problem = data.sphere(KEY, n=3, T=4, d=5)
    rng = np.random.default_rng(0)
    weights = attention.Factored(*(jnp.asarray(rng.normal(size=(5, 1))) for _ in range(2)))
    model = Diagonal()
    W = jnp.diag((weights.K * weights.Q)[:, 0])
    logits = model.logits(weights, problem)[0]
    np.testing.assert_allclose(logits, attention.logits(W, problem), rtol=1e-12)
    # The same as in the problem that it is ranked by.
    seen = attention.logits(model.matrix(weights), model.seen(problem))
    np.testing.assert_allclose(seen, logits, rtol=1e-12)
    probabilities = jax.nn.softmax(logits, axis=1)[None]
    expected = models.plain.predictions(None, probabilities, problem, lambda x, v: x @ v)
    np.testing.assert_allclose(model.predictions(None, probabilities, problem, lambda x, v: x @ v), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("weights", "model"),
    [
        (initial.factored, "jaxattn.models.TransformedInputs"),
        (laws.diagonal, "jaxattn.experiments.bias.flow.model.Diagonal"),
    ],
)
def test_a_record_is_measured_in_both_norms(tmp_path, weights, model):
    law, rule = partial(data.sphere, n=2, T=3, d=5), descent.falling(descent.jointly_normalized_gd(1.0, 0.0, 0.0))
    own: dict[str, Any] = {"model": Diagonal()} if weights is laws.diagonal else {}
    kept, config = schedule.Logarithmically(4), {"model": {"_target_": model}}
    record = recorded(tmp_path, law, weights, rule, config, seeds=3, steps=400, snapshots=kept, **own)
    found = measure(record)
    assert {name: found[name].dims for name in found} == {name: array.dims for name, array in run({}).items()}
    assert list(found["norm"].values) == ["frobenius", "nuclear"]
    assert all(np.isfinite(array).all() for array in found.values())
    if weights is laws.diagonal:
        W = record["K_snapshots"].values[:, -1] * record["Q_snapshots"].values[:, -1]
        np.testing.assert_allclose(found["size"][:, -1], np.linalg.norm(W, axis=(1, 2)))
