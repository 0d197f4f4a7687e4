"""Gradient flow on K and Q: its data and starts, the verdicts, and what a trained record gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import attention, data, descent, initial, losses, models
from jaxattn.experiments.bias.flow import claims, examples, figure, laws
from jaxattn.experiments.bias.flow.measure import measure
from jaxattn.experiments.bias.flow.model import Diagonal
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import schedule
from tests.instances import drawn_lines
from tests.recorded import recorded

KEY = jax.random.key(0)
CLAIMS = {claim.id.partition(":")[2]: claim for claim in claims.CLAIMS}


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
    # As the problem that it is ranked by says.
    seen = attention.logits(model.matrix(weights), model.seen(problem))
    np.testing.assert_allclose(seen, logits, rtol=1e-12)
    probabilities = jax.nn.softmax(logits, axis=1)[None]
    expected = models.plain.predictions(None, probabilities, problem, lambda x, v: x @ v)
    np.testing.assert_allclose(model.predictions(None, probabilities, problem, lambda x, v: x @ v), expected)


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, Verdict.HOLDS),
        # Steps twice as long end elsewhere: what was followed is no flow.
        ({"error": 0.05}, Verdict.FAILS),
        ({"moving": -0.05}, Verdict.OPEN),
    ],
)
def test_the_verdict_has_to_name_the_norm_and_the_steps_to_be_short(name, changes, verdict):
    (prediction,) = (one for one in claims.PREDICTIONS if one.name == name)
    runs = examples.runs(prediction.row["start"], {prediction.norm: 0.99}, **changes)
    assert CLAIMS[name].judge(claims.summarize(runs, KEY)).verdict is verdict


def test_the_other_norm_refutes():
    summaries = claims.summarize(examples.runs("random", {"frobenius": 0.99, "nuclear": 0.9}), KEY)
    assert CLAIMS["random"].judge(summaries).verdict is Verdict.FAILS


def test_without_the_steps_of_twice_the_length_nothing_is_judged():
    short, _ = examples.runs("random", {"nuclear": 0.99}).items()
    found = CLAIMS["random"].judge(claims.summarize(dict([short]), KEY))
    assert found.verdict is Verdict.OPEN
    assert "twice as long" in found.undecided


def test_the_figure_draws_the_short_steps_of_every_start():
    runs = {}
    for prediction in claims.PREDICTIONS:
        runs |= examples.runs(prediction.row["start"], {prediction.norm: 0.99})
    summaries = claims.summarize(runs, KEY)
    drawn = figure.draw(summaries)
    one = summaries["diagonal, h = 0.5"]
    for axes, norm in zip(drawn.axes, ("nuclear", "frobenius"), strict=False):
        lines = drawn_lines(axes, least=3)
        assert len(lines) == len(claims.PREDICTIONS)
        np.testing.assert_allclose(lines[0], [one["size"], 1 - one["path"].sel(norm=norm)])
    assert "4 of 4 starts" in drawn.get_suptitle()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "weights", "law", "model"),
    [
        ("random", initial.factored, "jaxattn.initial.factored", "jaxattn.models.TransformedInputs"),
        ("diagonal", laws.diagonal, "flow.laws.diagonal", "jaxattn.experiments.bias.flow.model.Diagonal"),
    ],
)
def test_a_record_is_measured_and_looks_like_the_examples(tmp_path, start, weights, law, model):
    rule = descent.falling(descent.jointly_normalized_gd(1.0, floor=0.0, penalty=0.0))
    config = {
        "weights": {"_target_": law},
        "optimizer": {"optimizer": {"step_size": 1.0}},
        "model": {"_target_": model},
    }
    given = {"model": Diagonal()} if start == "diagonal" else {}
    record = recorded(
        tmp_path,
        lambda key: data.sphere(key, n=2, T=3, d=5),
        weights,
        rule,
        config=config,
        seeds=3,
        steps=400,
        snapshots=schedule.Logarithmically(4),
        **given,
    )
    one = measure(record)
    made = examples.runs(start, {"nuclear": 0.99})[f"{start}, h = 1"]
    assert one.attrs["run"] == f"{start}, h = 1"
    assert {name: made[name].dims for name in made.data_vars} == {name: one[name].dims for name in one.data_vars}
    assert set(made.attrs) == set(one.attrs)
    W = record["K_snapshots"].values[:, -1] * record["Q_snapshots"].values[:, -1]
    if start == "diagonal":
        np.testing.assert_allclose(one["size"][:, -1], np.linalg.norm(W, axis=(1, 2)))
