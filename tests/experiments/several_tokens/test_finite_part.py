"""Ratios inside the selected sets, and the figure over lambda: on runs whose attention is put where it is best."""

import json
from functools import partial

import jax
import numpy as np
import pytest
import xarray
from matplotlib.patches import Rectangle

from jaxattn import data
from jaxattn.experiments.several_tokens import stationary
from jaxattn.experiments.several_tokens.finite_part import claims as finite_part
from jaxattn.experiments.several_tokens.finite_part import figure as ratios_figure
from jaxattn.experiments.several_tokens.multi_token_lambda import claims as multi_token_lambda
from jaxattn.experiments.several_tokens.multi_token_lambda import figure as lambda_figure
from jaxattn.experiments.several_tokens.multi_token_mlp.claims import WITHOUT
from jaxattn.study.claims import EXCLUDED, Verdict
from tests.instances import drawn_lines

KEY = jax.random.key(0)
SEEDS, n, T, d = 24, 3, 4, 6
STEPS = np.array([500, 1000, 1500, 2000])


def record(head: str = "quadratic", penalty: float = 0.2, off: float = 0.0, drifting: float = 0.0) -> xarray.Dataset:
    """Runs that end, and but for a drift stand, at the best attention; `off` is added to the first selected logit.

    Under the ReLUs they are alike on three tokens, the best of few inputs.
    """
    law = data.orthonormal if head == "quadratic" else data.mlp
    problems = jax.vmap(partial(law, n=n, T=T, d=d))(jax.random.split(KEY, SEEDS))
    every = np.ones((SEEDS, n, T), bool)
    if head == "quadratic":
        best, _ = stationary.quadratic(problems, penalty, every)
    else:
        best = every * (np.arange(T) < 3) / 3
    logits = np.where(best > 0, np.log(np.maximum(best, 1e-300)), -40.0 - np.arange(T))
    logits[np.arange(SEEDS)[:, None], np.arange(n), (best > 0).argmax(axis=2)] += off
    # Any W with these logits: orthonormal or not, fewer than d tokens are independent, and so are the queries.
    X, Z = np.asarray(problems.X), np.asarray(problems.Z)
    rows = np.einsum("sntd,sne->sntde", X, Z).reshape(SEEDS, n * T, d * d)
    W = (np.linalg.pinv(rows) @ logits.reshape(SEEDS, -1, 1)).reshape(SEEDS, d, d)
    drift = drifting * np.linspace(-1, 0, len(STEPS))[None, :, None, None] * np.arange(T)
    snapshots = logits[:, None] + drift
    size = np.repeat(np.linalg.norm(W, axis=(1, 2))[:, None], len(STEPS), axis=1)
    arrays = {
        "X": (("seed", "input", "token", "feature"), X),
        "Z": (("seed", "input", "query_feature"), Z),
        "Y": (("seed", "input"), np.asarray(problems.Y)),
        "v": (("seed", "feature", "unit")[: problems.v.ndim], np.asarray(problems.v)),
        "W": (("seed", "feature", "query_feature"), W),
        "logits_snapshots": (("seed", "snapshot", "input", "token"), snapshots),
        "size_snapshots": (("seed", "snapshot"), size),
    }
    config = (
        {"head": {"_target_": "jaxattn.heads.Quadratic", "penalty": penalty}}
        if head == "quadratic"
        else {"head": {"_target_": "jaxattn.heads.mlp"}}
    )
    return xarray.Dataset(arrays, {"snapshot": STEPS}, {"config": json.dumps(config)})


@pytest.fixture(scope="module")
def at_the_best():
    return finite_part.measure(record())


def test_at_the_best_attention_the_ratios_are_the_predicted_ones(at_the_best):
    one = at_the_best
    assert (one["kind"] == 0).all()
    assert one.sizes["pair"] > 20
    np.testing.assert_allclose(one["descended"], one["predicted"], atol=1e-12)
    assert np.ptp(one["predicted"].values) > 1
    # The finite part is then the same, fitted or foretold.
    assert one.sizes["whole"] > 5
    np.testing.assert_allclose(one["foretold"], one["fitted"], atol=1e-9)
    np.testing.assert_array_equal(one["drift"], 0)


@pytest.mark.parametrize("prefix", ["", "every_"])
def test_every_run_is_counted_once(at_the_best, prefix):
    counts = at_the_best.attrs
    left_out = [counts[prefix + reason] for reason in EXCLUDED if prefix + reason in counts]
    assert counts[prefix + "attempted"] == SEEDS == counts[prefix + "kept"] + sum(left_out)
    assert counts[prefix + "kept"] > 0


def test_a_ratio_that_is_off_or_moves_is_seen():
    off = finite_part.measure(record(off=0.4))
    difference = np.asarray(off["descended"] - off["predicted"])
    np.testing.assert_allclose(difference, -0.4, atol=1e-12)  # Of the others beside the first.
    assert (np.asarray(off["foretold"]) > np.asarray(off["fitted"]) + 1e-6).any()
    moving = finite_part.measure(record(drifting=0.3))
    assert (moving["drift"] > 0.01).all()


def quadratic_and_relu(**changes) -> dict[str, xarray.Dataset]:
    both = (finite_part.measure(record(head, **changes)) for head in ("quadratic", "mlp"))
    return {one.attrs["run"]: one for one in both}


@pytest.fixture(scope="module")
def summarized():
    return finite_part.summarize(quadratic_and_relu(), KEY)


def test_the_verdict_is_that_of_the_line_and_of_what_is_determined(summarized):
    summaries, (quadratic, relu) = summarized
    assert quadratic.verdict is Verdict.HOLDS
    assert quadratic.measured["quadratic, slope"] == pytest.approx(1, abs=1e-9)
    assert quadratic.measured["quadratic, intercept"] == pytest.approx(0, abs=1e-9)
    assert quadratic.measured["quadratic, rms"] == pytest.approx(0, abs=1e-9)
    # Under the ReLUs few minima are at one point, and the line alone does not make the claim hold.
    assert relu.measured["ReLU, determined"] < 0.5
    assert relu.verdict is Verdict.FAILS
    runs = ("lambda = 0.2", "lambda = 0.2" + WITHOUT)
    assert [quadratic.counts[run]["attempted"] for run in runs] == [SEEDS, SEEDS]
    assert set(quadratic.counts) == set(runs)
    assert summaries["quadratic"].attrs["kept"] == quadratic.counts["lambda = 0.2"]["kept"]
    assert set(summaries) == {"quadratic", "ReLU", "quadratic" + WITHOUT, "ReLU" + WITHOUT}


def test_ratios_beside_the_line_fail():
    _, (quadratic, _) = finite_part.summarize(quadratic_and_relu(off=0.4), KEY)
    assert quadratic.verdict is Verdict.FAILS
    assert abs(quadratic.measured["quadratic, intercept"]) > 0.05


def test_the_figure_draws_every_ratio_and_the_shares(summarized):
    summaries, _ = summarized
    drawn = ratios_figure.draw(summaries)
    points = [points for points in drawn_lines(drawn.axes[0]) if points.shape[1] > 2]
    for part, (x, y) in zip(("quadratic" + WITHOUT, "quadratic"), points, strict=True):
        np.testing.assert_array_equal(x, summaries[part]["predicted"])
        np.testing.assert_array_equal(y, summaries[part]["descended"])
    widths = np.array([bar.get_width() for bar in drawn.axes[2].patches if isinstance(bar, Rectangle)]).reshape(4, 3)
    np.testing.assert_allclose(widths.sum(axis=1), 1)


def lambdas(**changes) -> dict[str, xarray.Dataset]:
    runs = (multi_token_lambda.measure(record(penalty=penalty, **changes)) for penalty in (0.4, 0.0, 0.1))
    return {one.attrs["run"]: one for one in runs}


@pytest.fixture(scope="module")
def over_lambda():
    return lambdas()


def test_at_the_best_attention_the_selected_tokens_are_those_that_are_mixed(over_lambda):
    for one in over_lambda.values():
        # But for a token that the best attention gives less than 1e-3 of the next one.
        rare = np.asarray(one["tokens"] != one["best"])
        assert (np.asarray(one["tokens"])[rare] < np.asarray(one["best"])[rare]).all()
        assert rare.mean() < 0.1
    assert (over_lambda["lambda = 0"]["tokens"] == 1).all()


def test_more_tokens_and_the_order_of_the_descriptions(over_lambda):
    summaries, (tokens, order) = multi_token_lambda.summarize(over_lambda, KEY)
    assert list(summaries) == ["lambda = 0", "lambda = 0.1", "lambda = 0.4"]
    assert (tokens.verdict, order.verdict) == (Verdict.HOLDS, Verdict.HOLDS)
    assert tokens.measured == pytest.approx(tokens.expected, rel=0.03)
    for run in summaries:
        best, second, worst = (order.measured[f"{run}, {name}"] for name in multi_token_lambda.RANKED)
        assert best <= second + 1e-9
        assert second <= worst + 1e-9
    drawn = lambda_figure.draw(summaries)
    curves = [y.tolist() for _, y in drawn_lines(drawn.axes[0], least=3)]
    assert list(tokens.measured.values()) in curves
    assert list(tokens.expected.values()) in curves


def test_no_rise_and_another_order_fail(over_lambda):
    changed = {run: one.copy(deep=True) for run, one in over_lambda.items()}
    changed["lambda = 0.4"]["tokens"].values[:] = changed["lambda = 0.1"]["tokens"].values
    changed["lambda = 0.1"]["off"].values[:] = changed["lambda = 0.1"]["off"].values[:, [1, 0, 2, 3]]
    claims = multi_token_lambda.summarize(changed, KEY)[1]
    assert [claim.verdict for claim in claims] == [Verdict.FAILS, Verdict.FAILS]


def test_few_steps_decide_nothing(over_lambda):
    short = {run: one.assign_coords(snapshot=one["snapshot"] // 10) for run, one in over_lambda.items()}
    assert {claim.verdict for claim in multi_token_lambda.summarize(short, KEY)[1]} == {Verdict.OPEN}
    both = quadratic_and_relu()
    short = {run: one.assign_coords(snapshot=one["snapshot"] // 10) for run, one in both.items()}
    assert {claim.verdict for claim in finite_part.summarize(short, KEY)[1]} == {Verdict.OPEN}


def test_another_head_is_named():
    with pytest.raises(ValueError, match=r"^head: expected Quadratic, found jaxattn.heads.mlp"):
        multi_token_lambda.measure(record("mlp"))
