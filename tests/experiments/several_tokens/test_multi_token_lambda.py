"""Synthetic runs under the quadratic head, against lambda, and tokens at the best attention."""

import jax
import numpy as np
import pytest

from jaxattn.experiments.several_tokens.descriptions import SOLUTIONS
from jaxattn.experiments.several_tokens.multi_token_lambda import EXPERIMENT, summarize
from tests.experiments.several_tokens.runs import resting
from tests.experiments.synthetic import synthetic

SEEDS, STEPS = 60, np.arange(5000, 20_001, 5000)
VERDICTS = {"multi-token-lambda:form": "does not hold"}
# The distances fall like ||W||^-1.5, not like ||W||^-2.


def measured():
    """More tokens for every larger lambda; at lambda = 0 single tokens are selected, so that W_SVMeq is W_mm."""
    return {f"lambda = {penalty:g}": run(penalty, tokens) for penalty, tokens in ((0.0, 1.0), (0.1, 1.5), (0.4, 2.5))}


def run(penalty, tokens):
    """A run whose ||W|| grows like k^0.5, and whose distances fall like ||W||^-1.5, with a spread over seeds."""
    spread, size = np.resize([0.9, 1.1], SEEDS), np.sqrt(STEPS / STEPS[-1])
    off = np.outer(spread, (0.01, 0.05, 0.3, 0.9) if penalty else (0.01, 0.01, 0.01, 0.9))
    whole = np.arange(16 if penalty else 0)
    return synthetic(
        SEEDS,
        {"head.penalty": penalty, "steps": int(STEPS[-1])},
        {"solution": np.array(SOLUTIONS, object), "snapshot": STEPS},
        off=(("seed", "solution", "snapshot"), off[:, :, None] / size**1.5),
        size=np.full((SEEDS, 1), 20.0) * size,
        several=np.full(SEEDS, penalty > 0),
        whole_seed=("whole", whole),
        foretold=("whole", 1.1 * off[whole, 0]),
        fitted=("whole", off[whole, 0]),
        tokens=("attempt", np.where(tokens > 1, tokens * spread, tokens)),
        best=("attempt", np.full(SEEDS, tokens)),
        diverged=("attempt", np.zeros(SEEDS, bool)),
    )


def test_rises_are_those_of_the_same_seeds_and_the_motion_is_that_of_the_norm():
    summary = summarize(measured(), jax.random.key(0))["lambda = 0.4"]
    np.testing.assert_allclose([summary["rise"], summary["growth"], summary["order"]], [1.0, 0.5, 0.25])
    # (1 - cos) ||W|| falls like ||W||^-0.5 from half of the steps on.
    np.testing.assert_allclose(summary["approach"], -0.25 * np.log(2))
    np.testing.assert_allclose(summary["power"], -1.5)
    assert summary.attrs["determined"] == 16


def test_the_exponent_of_the_norm_is_that_of_the_mean_changes():
    runs, sizes = measured(), np.resize([0.5, 0.7], SEEDS)[:, None] * np.log(STEPS / STEPS[-1])
    off = np.where(np.arange(SEEDS)[:, None] % 2, -2.4, -1.6) * sizes
    one = runs["lambda = 0.4"]
    one["size"] = (one["size"].dims, np.exp(sizes))
    one["off"].loc[{"solution": "W_mm"}] = 0.05 * np.exp(off)
    summary = summarize(runs, jax.random.key(0))["lambda = 0.4"]
    np.testing.assert_allclose(summary["power"], -(2.4 * 0.7 + 1.6 * 0.5) / 1.2)
    assert float(summary["power_low"]) < -2.067 < float(summary["power_high"])


def test_one_lambda_decides_no_trend():
    summaries = summarize({"lambda = 0.1": run(0.1, 1.5)}, jax.random.key(0))
    assert EXPERIMENT.claims[0].judge(summaries).note.startswith("A trend needs two values of lambda, found one.")


@pytest.mark.parametrize("penalty", [0.0, 0.4])
def test_at_the_best_attention_the_selected_tokens_are_those_that_are_mixed(penalty):
    found = EXPERIMENT.measure(resting(penalty=penalty))
    # But for a token that the best attention gives less than 1e-3 of the next one.
    rare = np.asarray(found["tokens"] != found["best"])
    assert (np.asarray(found["tokens"])[rare] < np.asarray(found["best"])[rare]).all()
    assert rare.mean() < 0.1
    assert penalty > 0 or (found["tokens"] == 1).all()
