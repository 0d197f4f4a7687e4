"""Margins along descent on texts: synthetic ones, those of a record, and how they are counted."""

import jax
import numpy as np
import pytest

from jaxattn import language
from jaxattn.experiments.language.lm_margins import EXPERIMENT, SOLVED, measure, summarize
from jaxattn.study.settings import texts
from tests.experiments.language.text_records import drawn_record
from tests.experiments.synthetic import synthetic

STEPS = np.array([1, 100, 10_000])
SEEDS = 24
VERDICTS = {"lm-margins:positive": "holds with a correction"}


def measured():
    """Two prefixes of three words; in the second half of the texts words 1 and 2 both follow word 0."""
    feasible = (np.arange(SEEDS) < SEEDS // 2)[:, None, None]
    others = np.broadcast_to([[True, False, True], [True, True, False]], (SEEDS, 2, 3))
    follows = np.broadcast_to([[False, False, True], [False, True, False]], (SEEDS, 2, 3)) & ~feasible
    end = np.where(follows, 0.0, 50.0)[:, None] * np.linspace(0, 1, len(STEPS))[:, None, None]
    rng = np.random.default_rng(0)
    margins = np.where(others[:, None], end + 0.1 * rng.normal(size=end.shape), 0.0)
    largest = np.where(feasible.ravel(), 0.4, 0.0)
    least = largest[:, None] - np.linspace(0.2, 0.005, len(STEPS)) - 1e-4 * rng.uniform(size=(SEEDS, 1))
    words = "seed", "prefix", "word"
    run = synthetic(
        SEEDS,
        {"steps": int(STEPS[-1])},
        {"shown": STEPS, "snapshot": STEPS},
        margins=(("seed", "shown", "prefix", "word"), margins),
        others=(words, others),
        follows=(words, follows),
        weight=(("seed", "prefix"), np.broadcast_to([2.0, 1.0], (SEEDS, 2))),
        feasible=feasible.ravel(),
        least=least,
        largest=largest,
    )
    return {"texts": run}


@pytest.mark.slow
def test_margins_are_those_of_the_matrices():
    record = drawn_record(steps=300, seeds=6)
    run = measure(record)
    assert run["shown"].values.tolist() == [1, 10, 96, 300]
    compact = language.compact(texts.choices_of({str(name): record[name].values for name in record.data_vars}))
    step = record["snapshot"].values.tolist().index(96)
    for seed in range(6):
        E, pairs = compact.E[seed], record["pairs_snapshots"].values[seed, step]
        S = E @ (E.T @ pairs.T @ E).T @ E.T
        for i, (last, following, weight) in enumerate(
            zip(compact.last[seed], compact.next[seed], compact.weight[seed], strict=True)
        ):
            others = run["others"].values[seed, i]
            assert others.sum() == (4 if weight else 0)
            found = run["margins"].values[seed, 2, i][others]
            if weight:
                assert run["least"].values[seed, step] <= found.min() / np.linalg.norm(E.T @ pairs.T @ E) + 1e-12
            np.testing.assert_allclose(found, (S[last, following] - S[last])[others], atol=1e-12)
            # Two words that follow one word are told from one another in both directions.
            nexts = {int(b) for a, b, w in zip(*(leaf[seed] for leaf in compact[1:4]), strict=True) if w and a == last}
            expected = {b for b in nexts if b != following} if weight else set()
            assert set(np.flatnonzero(run["follows"].values[seed, i])) == expected
    assert 0 < int(run["feasible"].sum()) < 6
    assert np.all(run["least"] <= run["largest"] + 1e-9)
    np.testing.assert_array_equal(run["largest"] > 0, run["feasible"])


def test_a_margin_counts_as_often_as_its_prefix_stands_in_the_text():
    runs = measured()
    # In the text with a conflict the margin of the prefix of weight 2 ends negative, that of weight 1 positive.
    runs["texts"] = runs["texts"].isel(seed=[0, -1]).copy(deep=True)
    runs["texts"]["margins"].values[1, -1, [0, 1], [2, 1]] = -1.0, 1.0
    summary = summarize(runs, jax.random.key(0))["texts"]
    np.testing.assert_array_equal(summary["count"].sum("bin"), np.tile([6, 3, 3], (3, 1)))
    assert float(summary["not_positive"][-1, 2]) == pytest.approx(2 / 3)
    assert float(summary["positive conflict: words that also follow"][-1]) == 0.5
    assert summary["texts"].values.tolist() == [1, 1, 1]


def test_a_margin_that_falls_does_not_increase_throughout():
    run = measured()["texts"].copy(deep=True)
    run["least"].values[:, 1] -= 0.3
    summary = summarize({"texts": run}, jax.random.key(0))
    np.testing.assert_allclose(summary["texts"][f"short {SOLVED[0]}"][-1], 0.005 / 0.4, atol=1e-3)
    verdicts = {claim.id: claim.judge(summary).verdict for claim in EXPERIMENT.claims}
    # Short of 0 where words conflict, the margin is maximal on the other texts only.
    run["least"].values[SEEDS // 2 :] -= 0.05
    conflict = summarize({"texts": run}, jax.random.key(0))
    assert EXPERIMENT.claims[1].judge(conflict).verdict == "holds with a correction"
    assert verdicts["lm-margins:maximal"] == "holds"
    assert verdicts["lm-margins:throughout"] == "does not hold"
