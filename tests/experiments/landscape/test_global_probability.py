"""The probability of the optimal tokens: synthetic runs, and what is read off weights."""

import jax
import numpy as np

from jaxattn import svm, tokens
from jaxattn.experiments.landscape.global_probability import EXPERIMENT, by_chance, difference, estimate, measure
from tests import instances
from tests.experiments.synthetic import synthetic
from tests.recorded import ended

VERDICTS = {"global-probability:d": "holds with a correction"}
# By n and T, over d: close to the independent run.
DIMENSIONS = (4, 10, 20, 40, 80)
SHARES = {
    (5, 5): (0.6, 0.9, 0.97, 0.99, 0.998),
    (10, 5): (0.12, 0.65, 0.87, 0.97, 0.985),
    (5, 10): (0.45, 0.72, 0.82, 0.85, 0.86),
}


def measured():
    """The probability rises with d, for W and T = 10 to less than 1, and falls with n and T."""
    runs = {}
    for (n, T), shares in SHARES.items():
        own = shares if T == 5 else (*shares[:3], 0.89, 0.97)
        for trained, weights, curve in (("W", "free", shares), ("KQ", "factored", (own[0] + 0.03, *own[1:]))):
            runs |= {f"{trained} n={n} T={T} d={d}": run(weights, n, T, d, curve[k]) for k, d in enumerate(DIMENSIONS)}
    return runs


def run(weights, n, T, d, share, seeds=4000, unsaturated=0):
    """A run in which this share of the seeds, the first ones, is at the optimal tokens."""
    seed = np.arange(seeds)
    settings = {"weights": weights, "data.n": n, "data.T": T, "data.d": d, "steps": 1500}
    return synthetic(
        seeds,
        settings | {"kept": seeds - unsaturated, "ambiguous": unsaturated},
        saturated=seed >= unsaturated,
        globally=seed < share * seeds,
        margin=1.0,
    )


def test_a_run_that_has_not_saturated_counts_as_not_optimal():
    summary = estimate(run("free", 5, 5, 4, 0.6, seeds=1000, unsaturated=100), jax.random.key(0))
    assert float(summary["global"]) == 0.5


def test_differences_are_counted_in_the_standard_errors_of_both_runs():
    # 0.6 of 1000 and 0.5 of 100, each with a hit and a miss more: 601 of 1002 and 51 of 102.
    expected = np.sqrt(0.5998 * 0.4002 / 1002 + 0.25 / 102)
    np.testing.assert_allclose(difference(0.6, 1000, 0.5, 100), (0.0998, expected), rtol=1e-3)
    certain, error = difference(1.0, 50, 1.0, 100)
    assert abs(certain / error) < 1
    assert [by_chance(count) for count in (1, 20, 30)] == [0, 3, 3]


def test_the_optimal_tokens_are_read_off_the_final_weights():
    problems = instances.problems(4)
    alpha = np.array(jax.vmap(tokens.optimal)(problems))
    alpha[1, 0] = (alpha[1, 0] + 1) % instances.T
    solved = svm.solve_batch(jax.vmap(svm.token_constraints)(problems, alpha))
    assert (solved.status == svm.Status.OPTIMAL).all()
    W = solved.W * np.array([30.0, 30.0, 1.0, np.nan])[:, None, None]
    found = measure(ended(problems, W=W))
    assert found["saturated"].values.tolist() == [True, True, False]
    assert found["globally"].values.tolist() == [True, False, True]
    assert [found.attrs[name] for name in ("attempted", "kept", "diverged", "ambiguous")] == [4, 2, 1, 1]


def test_a_curve_at_the_ceiling_cannot_show_a_fall_and_is_not_judged():
    (judge,) = (claim.judge for claim in EXPERIMENT.claims if claim.id == "global-probability:n")
    runs = measured() | {f"W n={n} T=5 d=80": run("free", n, 5, 80, 0.99) for n in (5, 10)}
    judgement = judge(EXPERIMENT.estimates(runs, jax.random.key(0)))
    assert judgement.verdict == "holds"
    assert "Not judged, as all probabilities are 0.95 to 1: to W n=10 T=5 d=40; W n=10 T=5 d=80" in judgement.note
    runs = measured() | {f"W n={n} T=5 d=40": run("free", n, 5, 40, 0.9) for n in (5, 10)}
    assert judge(EXPERIMENT.estimates(runs, jax.random.key(0))).verdict == "not decided"
