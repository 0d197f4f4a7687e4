"""Descent on texts against soft margin and the limit of several tokens: measured, judged, drawn."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxattn import descent, language, losses, svm
from jaxattn.experiments.language import text_solutions
from jaxattn.experiments.language.lm_cosine import claims as lm_cosine
from jaxattn.experiments.language.lm_cosine import figure
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import texts
from jaxattn.study.settings.schedule import Logarithmically
from tests.experiments.language.text_records import drawn_record
from tests.instances import drawn_lines

KEY = jax.random.key(0)
STEPS = np.array([1, 3, 10, 30, 100, 300, 1000, 3000, 10_000])


@pytest.fixture(scope="module")
def record():
    """Some trained texts, with and without conflicts."""
    return drawn_record(steps=300, seeds=6)


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
    measured = lm_cosine.measure(record)
    assert measured.attrs["run"] == "m=4 n=4 d=7"
    found = text_solutions.solutions(record)
    for seed in range(6):
        E, pairs = found.texts.E[seed], record["pairs_snapshots"].values[seed, -1]
        W = E.T @ pairs.T @ E
        soft = found.soft.W[seed]
        cosine = np.sum(W * soft) / np.linalg.norm(W) / np.linalg.norm(soft)
        assert measured["soft"].values[seed, -1] == pytest.approx(1 - cosine, abs=1e-12)
        limit = np.asarray(svm.with_finite_part(*map(jnp.asarray, (W, found.finite.W[seed], found.sets.W[seed]))))
        cosine = np.sum(W * limit) / np.linalg.norm(W) / np.linalg.norm(limit)
        assert measured["mixed"].values[seed, -1] == pytest.approx(1 - cosine, abs=1e-12)
    # Small duals: a unit of shortfall costs more than it saves.
    assert float(measured["apart"].max()) < 1e-6


def made(soft_0=1e-4, soft_1=0.05, mixed=0.01, steps=STEPS, seeds=24, m=10, fall=1.0):
    """A measurement whose first half of the texts has no conflict; 1 - correlation falls from 0.3 to its end."""
    rng = np.random.default_rng(m)
    feasible = np.arange(seeds) < seeds // 2
    noise = np.exp(0.01 * rng.normal(size=(seeds, 1)))
    along = np.linspace(0, 1, len(steps))[None, :] ** fall

    def path(end):
        return 0.3 * (np.asarray(end) / 0.3) ** along * noise

    soft = np.where(feasible[:, None], path(soft_0), path(soft_1))
    one = xarray.Dataset(
        {
            "feasible": (("seed",), feasible),
            "has_mixed": (("seed",), ~feasible),
            "soft": (("seed", "snapshot"), soft),
            "mixed": (("seed", "snapshot"), path(mixed)),
            "apart": (("seed",), np.zeros(seeds)),
        },
        {"seed": np.arange(seeds), "snapshot": steps},
        {"attempted": seeds, "kept": seeds, "diverged": 0, "unsolved": 0, "m": m, "n": 5, "d": 100},
    )
    return one.assign_attrs(run=f"m={m} n=5 d=100")


def summarized(*sizes):
    summaries, claims = lm_cosine.summarize({one.attrs["run"]: one for one in sizes}, KEY)
    return summaries, {claim.id.partition(":")[2]: claim for claim in claims}


@pytest.mark.parametrize(
    ("changes", "soft", "mixed"),
    [
        ({}, Verdict.CORRECTED, Verdict.HOLDS),
        ({"soft_1": 1e-4, "mixed": 1e-5}, Verdict.HOLDS, Verdict.HOLDS),
        ({"soft_0": 0.05}, Verdict.FAILS, Verdict.HOLDS),
        ({"soft_0": 0.3, "soft_1": 0.3}, Verdict.FAILS, Verdict.HOLDS),
        ({"mixed": 0.06}, Verdict.CORRECTED, Verdict.FAILS),
        ({"mixed": 0.01, "fall": 0.0}, Verdict.FAILS, Verdict.FAILS),
        ({"steps": STEPS[:-3]}, Verdict.OPEN, Verdict.OPEN),
        ({"seeds": 6}, Verdict.OPEN, Verdict.OPEN),
    ],
)
def test_the_verdicts_follow_the_measurement(changes, soft, mixed):
    _, claims = summarized(made(**changes), made(m=20, **changes))
    assert (claims["soft"].verdict, claims["mixed"].verdict) == (soft, mixed)


def test_means_are_over_all_texts_and_five_of_them_stand_beside():
    one = made()
    summaries, claims = summarized(one)
    (summary,) = summaries.values()
    np.testing.assert_allclose(summary["soft"], 1 - one["soft"].mean("seed"))
    np.testing.assert_allclose(summary["five"], 1 - one["soft"][:5].mean("seed"))
    np.testing.assert_allclose(np.log(summary["mixed_1"]), np.log(one["mixed"].values[12:]).mean(axis=0))
    assert claims["soft"].measured["share of texts with a hard solution, m=10 n=5 d=100"] == 0.5


def test_the_figure_has_a_column_a_size_and_a_curve_a_value():
    others = [made(m=20), made(m=10).assign_attrs(d=10, run="m=10 n=5 d=10")]
    summaries, _ = summarized(made(), *others)
    drawn = figure.draw(summaries)
    assert len(drawn.axes) == 6
    curves = [len(drawn_lines(panel, least=len(STEPS))) for panel in drawn.axes]
    assert curves[:3] == [2, 1, 2]
    assert curves[3:] == [6, 3, 6]
    assert "24 of 24 texts kept" in drawn.get_supxlabel()


def test_a_setting_that_cannot_be_trained_is_named():
    def setting(**changes):
        given = {
            "law": lambda key: language.of_text(np.eye(3), [[0, 1, 2]]),
            "optimizer": descent.normalized_gd(0.1),
            "loss": losses.cross_entropy,
            "seeds": 2,
            "key": 0,
            "steps": 20,
            "snapshots": Logarithmically(1),
        }
        return texts.TextTraining(**given | changes)

    assert setting().coordinates["snapshot"].tolist() == [1, 4, 20]
    with pytest.raises(ValueError, match="seeds: expected at least 1, found 0"):
        setting(seeds=0)
    with pytest.raises(TypeError, match="data: expected a law of texts such as language, found one of dict"):
        setting(law=lambda key: {"E": key})
    with pytest.raises(ValueError, match="snapshots: expected at least one, found none"):
        setting(snapshots=lambda steps: ())
    assert json.dumps(sorted(setting().descent)) == '["loss", "optimizer", "record_every", "snapshots", "steps"]'
