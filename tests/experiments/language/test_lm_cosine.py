"""Descent on texts against soft margin and the limit of several tokens: synthetic errors, and those of a record."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxattn import svm
from jaxattn.experiments.language import text_solutions
from jaxattn.experiments.language.lm_cosine import estimate
from jaxattn.experiments.language.lm_cosine.measure import measure
from jaxattn.study.claims import not_a_number
from jaxattn.study.settings import texts
from tests.experiments.language.text_records import drawn_record
from tests.experiments.synthetic import synthetic

KEY = jax.random.key(0)
STEPS, SEEDS = np.array([1, 3, 10, 30, 100, 300, 1000, 3000, 10_000]), 24
VERDICTS = {"lm-cosine:conflict": "holds with a correction", "lm-cosine:hyperplanes": "holds with a correction"}


def measured():
    """Two sizes: 1 - cos falls to 1e-4 without a conflict; with one, to 0.05 from the soft solution, else to 0.01."""
    return {f"m={m} n=5 d=100": size(m) for m in (10, 20)}


def size(m):
    """Texts of which the first half have no conflict."""
    rng, feasible = np.random.default_rng(m), np.arange(SEEDS) < SEEDS // 2

    def fall(end):
        ends = np.asarray(end) * np.exp(0.05 * rng.normal(size=SEEDS))
        return 0.3 * (ends[:, None] / 0.3) ** np.linspace(0, 1, len(STEPS))

    return synthetic(
        SEEDS,
        {"steps": int(STEPS[-1]), "data.m": m, "data.n": 5, "data.d": 100},
        {"snapshot": STEPS},
        feasible=feasible,
        has_mixed=~feasible,
        soft=fall(np.where(feasible, 1e-4, 0.05)),
        mixed=fall(0.01),
        apart=np.linspace(0, 1e-8, SEEDS),
        different=np.linspace(0.6, 0.7, SEEDS),
        different_own=np.linspace(0.98, 1, SEEDS),
    )


@pytest.fixture(scope="module")
def record():
    """Some trained texts, with and without conflicts."""
    return drawn_record(steps=300, seeds=6)


@pytest.mark.slow
def test_the_texts_are_solved_and_told_apart(record):
    found = text_solutions.solutions(record)
    assert found.counts == {"attempted": 6, "kept": 6, "diverged": 0, "unsolved": 0}
    for seed, feasible in enumerate(found.feasible):
        text = texts.choices_of({str(name): record[name].values[seed] for name in record.data_vars})
        pairs = set(zip(text.last.tolist(), text.next.tolist(), strict=True))
        conflict = len(pairs) > len(set(text.last.tolist()))
        # In so many dimensions nothing but a conflict keeps words from being separated.
        assert feasible == (not conflict)
        assert found.mixed[seed] == conflict
    assert 0 < found.feasible.sum() < 6


def test_a_text_that_diverged_is_counted(record):
    broken = record.copy(deep=True)
    broken["pairs"][2] = np.inf
    found = text_solutions.solutions(broken)
    assert found.counts == {"attempted": 6, "kept": 5, "diverged": 1, "unsolved": 0}
    assert found.kept.tolist() == [True, True, False, True, True, True]


def test_correlations_are_those_of_the_matrices(record):
    run = measure(record)
    found = text_solutions.solutions(record)
    for seed in range(6):
        E, pairs = found.texts.E[seed], record["pairs_snapshots"].values[seed, -1]
        W = E.T @ pairs.T @ E
        soft = found.soft.W[seed]
        cosine = np.sum(W * soft) / np.linalg.norm(W) / np.linalg.norm(soft)
        assert run["soft"].values[seed, -1] == pytest.approx(1 - cosine, abs=1e-12)
        limit = np.asarray(svm.with_finite_part(*map(jnp.asarray, (W, found.finite.W[seed], found.sets.W[seed]))))
        cosine = np.sum(W * limit) / np.linalg.norm(W) / np.linalg.norm(limit)
        assert run["mixed"].values[seed, -1] == pytest.approx(1 - cosine, abs=1e-12)
        normals = found.texts.E[seed] @ W.T
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        inputs = [
            (a, b) for a, b, w in zip(*(leaf[seed] for leaf in found.texts[1:4]), strict=True) for _ in range(int(w))
        ]
        close = [(p, q, normals[p[0]] @ normals[q[0]] <= 0.5) for p in inputs for q in inputs]
        share = (sum(far for _, _, far in close)) / (len(inputs) ** 2 - len(inputs))
        assert run["different"].values[seed] == pytest.approx(share)
        own = [far for p, q, far in close if p[0] != q[0] and p[1] != q[1]]
        assert run["different_own"].values[seed] == pytest.approx(np.mean(own))
    # Small duals: a unit of shortfall costs more than it saves.
    assert float(run["apart"].max()) < 1e-6


@pytest.mark.slow
def test_texts_without_the_limit_of_several_tokens_are_marked_and_hold_a_number():
    # In two dimensions words that follow one word cannot be kept level, or only by W = 0, which has no direction.
    record = drawn_record(steps=100, seeds=4, d=2)
    run = measure(record)
    assert not_a_number({"run": run}) == ""
    assert run["feasible"].values.tolist() == [True, False, False, False]
    assert not run["has_mixed"].values.any()
    np.testing.assert_array_equal(run["mixed"][1:], 0.0)
    assert np.all(run["mixed"][0] > 0)
    # What stands there is not read.
    changed = run.assign(mixed=run["mixed"] + 0.5)
    xarray.testing.assert_identical(estimate(run, KEY), estimate(changed, KEY))
    assert estimate(run, KEY).attrs["without_mixed"] == 3


def test_means_are_over_all_texts_and_five_of_them():
    run = measured()["m=10 n=5 d=100"]
    summary = estimate(run, KEY)
    np.testing.assert_allclose(summary["soft"], 1 - run["soft"].mean("seed"))
    np.testing.assert_allclose(summary["five"], 1 - run["soft"][:5].mean("seed"))
    np.testing.assert_allclose(np.log(summary["mixed_1"]), np.log(run["mixed"].values[12:]).mean(axis=0))
    assert float(summary["feasible_0"]) == 0.5
    falls = np.log(run["soft"][:12, -1].values / run["soft"][:12, 6].values).mean()
    assert np.log(float(summary["falls_0"])) == pytest.approx(falls)
    none = estimate(run.assign(feasible=run["feasible"] | True), KEY)
    assert "soft_1" not in none
    # Estimates over other texts have the random keys that they have if there are both kinds.
    assert float(none["closer_low"]) == float(summary["closer_low"])
