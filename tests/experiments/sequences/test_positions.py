"""The experiment on sequences: what is measured of a record with a mask, the verdicts, and the figure."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, descent, heads, initial, losses, metrics, records, svm, tokens
from jaxattn.experiments.sequences.positions import claims, examples, figure
from jaxattn.experiments.sequences.positions.measure import FALLING, LONG, OWN, PATH, PREFIXES, measure, of_attention
from jaxattn.problem import of_arrays
from jaxattn.regularization import FROBENIUS, NUCLEAR
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import paths, recording, schedule, training
from tests import instances
from tests.recorded import recorded

KEY = jax.random.key(0)
COUNTS = examples.COUNTS


@pytest.fixture(scope="module", params=[pytest.param("sequence", marks=pytest.mark.slow), "causal"])
def record(request, tmp_path_factory):
    law = functools.partial(getattr(data, request.param), n=2, T=3, d=4)
    rule, config = descent.normalized_gd(0.1, floor=0.0, penalty=0.0), {"optimizer": {"floor": 0.0, "penalty": 0.0}}
    size = {"seeds": 4, "steps": 40, "snapshots": schedule.Evenly(20)}
    path = tmp_path_factory.mktemp(request.param)
    return request.param, recorded(path, law, optimizer=rule, config=config, **size)


@pytest.mark.slow
def test_a_record_holds_what_every_position_sees_and_is_compared_under_it(record):
    name, one = record
    assert ("present" in one) == (name == "causal")
    found = measure(one)
    assert found.attrs["run"] == PREFIXES[name] + LONG
    assert (found.attrs["attention"], found.attrs["inputs"]) == (name, 6)
    assert found.attrs["optimal_kept"] + found.attrs["optimal_infeasible"] == found.attrs["attempted"] == 4
    assert found["norm"].values.tolist() == ["frobenius"]
    assert found.sizes["seed"] >= 3
    for seed in found["seed"].values:
        problem = of_arrays({name: one[name].values[seed] for name in one.data_vars})
        W = jnp.asarray(one["W"].values[seed])
        alpha = np.asarray(tokens.selected(W, problem))
        seen = np.ones((6, 3), bool) if problem.present is None else np.asarray(problem.present)
        if name == "causal":
            np.testing.assert_array_equal(seen, np.tile(np.tri(3, dtype=bool), (2, 1)))
        assert seen[np.arange(6), alpha].all()
        right = (alpha == np.asarray(tokens.optimal(problem)))[seen.sum(axis=1) > 1]
        np.testing.assert_allclose(found["optimal_share"].sel(seed=seed), right.mean())
        solution = svm.solve(svm.token_constraints(problem, alpha))
        length = np.linalg.norm(np.asarray(W) @ np.asarray(problem.Z).T)
        np.testing.assert_allclose(found["length"].sel(seed=seed)[-1], length, rtol=1e-12)
        expected = metrics.correlation(W, solution.W)
        np.testing.assert_allclose(found["correlation"].sel(seed=seed)[0, -1], expected, rtol=1e-9)


def gives_up(constraints: svm.Constraints, norm: svm.Norm) -> svm.Candidate:
    del norm
    shape = constraints.differences.shape
    return svm.Candidate(jnp.zeros((shape[-1], shape[-1])), jnp.zeros(shape[:-1]), jnp.asarray(0))


@pytest.mark.slow
def test_a_published_run_is_held_against_both_norms(record):
    name, one = record
    published = one.assign_attrs(config=json.dumps({"optimizer": {"floor": 2.0**-52, "penalty": 2.0**-52}}))
    found = measure(published, solver=gives_up)
    assert found.attrs["run"] == PREFIXES[name] + "W"
    assert found.attrs["unsolved"] + found.attrs["infeasible"] == found.attrs["attempted"] == 4
    assert found["norm"].values.tolist() == ["frobenius", "nuclear"]


def test_a_record_that_holds_logits_alone_refuses_a_mask():
    law = functools.partial(data.causal, n=2, T=3, d=4)
    rest = losses.logistic, heads.linear, 4, 1, 40, schedule.Evenly(20)
    setting = training.Screening(law, initial.free, descent.normalized_gd(0.1), *rest)
    with pytest.raises(ValueError, match=r"^data: expected inputs that see all their tokens, found a law with a mask"):
        recording.shapes(setting)


@pytest.mark.slow
@pytest.mark.parametrize(("ball", "run"), [(FROBENIUS, PATH), (NUCLEAR, "KQ, regularization path")])
def test_a_record_of_paths_is_told_by_its_radii(ball, run, tmp_path):
    law = functools.partial(data.causal, n=2, T=3, d=4)
    rest = losses.logistic, heads.linear, 2, 1, paths.Radii(1.0, 1000.0, 5)
    recording.run(paths.Regularization(law, ball, *rest), tmp_path / "record.zarr", {})
    found = measure(records.load(tmp_path / "record.zarr"))
    assert (found.attrs["run"], found.attrs["attention"]) == (f"causal {run}", "causal")
    assert set(found["off"].dims) == {"seed", "norm", "radius"}


def both(**changed):
    """The examples of both attentions, those of causal attention with these numbers."""
    return {**examples.runs(attention="sequence"), **examples.runs(attention="causal", **changed)}


def judged(datasets):
    """The estimates, and the judgements by the names of the claims."""
    summaries = claims.summarize(datasets, KEY)
    return summaries, {one.id.partition(":")[2]: one.judge(summaries) for one in claims.CLAIMS}


HELD = [Verdict.HOLDS, Verdict.HOLDS, Verdict.CORRECTED, Verdict.HOLDS]


@pytest.mark.parametrize(
    ("changed", "verdicts"),
    [
        ({}, HELD),
        # A run of 2000 steps may end short of 0.99 for W, as long as the right norm is ahead and the long run arrives.
        ({"W": (0.97, 0.9)}, HELD),
        ({"W": (0.97, 0.98)}, [HELD[0], Verdict.FAILS, *HELD[2:]]),
        ({"W": (0.97, 0.97)}, [HELD[0], Verdict.OPEN, *HELD[2:]]),
        ({"exact": 0.98}, [HELD[0], Verdict.FAILS, *HELD[2:]]),
        ({"exact": 0.99}, [HELD[0], Verdict.OPEN, *HELD[2:]]),
        ({"KQ": (0.98, 0.9)}, [*HELD[:2], Verdict.CORRECTED, HELD[3]]),
        ({"KQ": (0.99, 0.9)}, [*HELD[:2], Verdict.CORRECTED, HELD[3]]),
        # The correction asks of a step that falls for direction, margin and growth.
        ({"falling": 0.98}, [*HELD[:2], Verdict.FAILS, HELD[3]]),
        ({"falling": 0.99}, [*HELD[:2], Verdict.FAILS, HELD[3]]),
        ({"margin": 0.98}, [*HELD[:2], Verdict.FAILS, HELD[3]]),
        ({"growth": 1.0, "margin": 0.98}, [*HELD[:2], Verdict.HOLDS, HELD[3]]),
        ({"KQ": (0.995, 0.996)}, [*HELD[:2], Verdict.CORRECTED, HELD[3]]),
        # (K, Q) still grows, or may, or has come to rest.
        ({"growth": 1.0}, [*HELD[:2], Verdict.HOLDS, HELD[3]]),
        ({"growth": 0.14}, [*HELD[:2], Verdict.HOLDS, HELD[3]]),
        ({"growth": 0.06}, [*HELD[:2], Verdict.HOLDS, HELD[3]]),
        ({"growth": 0.05}, [*HELD[:2], Verdict.OPEN, HELD[3]]),
        ({"growth": 0.04}, HELD),
        ({"growth": -0.5}, HELD),
        ({"growth": 1.0, "KQ": (0.98, 0.9)}, [*HELD[:2], Verdict.CORRECTED, HELD[3]]),
        ({"growth": 1.0, "KQ": (0.99, 0.9)}, [*HELD[:2], Verdict.OPEN, HELD[3]]),
        ({"growth": 1.0, "KQ": (0.995, 0.996)}, [*HELD[:2], Verdict.CORRECTED, HELD[3]]),
        ({"probability": 0.99}, [Verdict.FAILS, *HELD[1:]]),
        ({"status": svm.Status.INFEASIBLE}, [Verdict.FAILS, *HELD[1:]]),
        ({"status": svm.Status.NOT_CONVERGED}, [Verdict.OPEN, *HELD[1:]]),
        ({"last": 800, "W": (0.5, 0.9)}, [*[Verdict.OPEN] * 3, HELD[3]]),
        ({"followed": {"own": 0.98}}, [*HELD[:3], Verdict.FAILS]),
        ({"followed": {"own": 0.99}}, [*HELD[:3], Verdict.OPEN]),
        ({"followed": {"own": 0.995, "other": 0.996}}, [*HELD[:3], Verdict.FAILS]),
        ({"followed": {"selected": 0.9}}, [*HELD[:3], Verdict.FAILS]),
        ({"followed": {"last": 100.0}}, [*HELD[:3], Verdict.OPEN]),
        ({"followed": {"kept": 7}}, [*HELD[:3], Verdict.OPEN]),
    ],
)
def test_the_verdict_follows_from_the_numbers(changed, verdicts):
    path = {"followed": examples.path(**changed["followed"])} if "followed" in changed else {}
    found = judged(both(**(changed | path)))[1]
    assert list(found) == [prefix + name for prefix in ("", "causal-") for name in ("selection", "W", "KQ", "path")]
    # What is found with one attention changes no verdict on the other.
    assert [judgement.verdict for judgement in found.values()] == [*HELD, *verdicts]
    for name, judgement in found.items():
        assert all(run.startswith("causal ") == name.startswith("causal-") for run in judgement.counts)
        assert set(judgement.expected) <= set(judgement.measured) == set(judgement.interval)
        assert all({**COUNTS, **counts, "kept": 12} == COUNTS for counts in judgement.counts.values())


@pytest.mark.parametrize(
    ("missing", "opened"),
    [("W", ["selection", "W"]), ("KQ", ["selection", "KQ"]), (LONG, ["W"]), (FALLING, ["KQ"]), (PATH, ["path"])],
)
def test_a_claim_on_a_run_that_is_missing_is_not_decided(missing, opened):
    _, found = judged({run: one for run, one in both().items() if run != f"causal {missing}"})
    assert len(found) == 8
    for name, judgement in found.items():
        assert (judgement.verdict is Verdict.OPEN) == (name in [f"causal-{one}" for one in opened])
        assert bool(judgement.undecided) == (judgement.verdict is Verdict.OPEN)


def test_a_judgement_that_is_withheld_names_the_runs_it_needs():
    _, found = judged({run: one for run, one in both().items() if run != "causal W"})
    assert found["causal-selection"].undecided == ("Expected the runs ['causal W', 'causal KQ'], found ['causal KQ'].")


def test_the_statements_say_which_attention_they_are_about():
    for claim in claims.CLAIMS:
        causal = claim.id.startswith("sequence:causal-")
        assert claim.statement.startswith(
            "With causal attention, " if causal else "With attention to the whole sequence, "
        )
        assert {one.attrs["attention"] for one in claim.examples()[Verdict.HOLDS].values()} == {
            "causal" if causal else "sequence"
        }


def test_the_claims_say_what_was_measured():
    selection, W, KQ, path = (judged(both())[1][f"causal-{name}"] for name in ("selection", "W", "KQ", "path"))
    assert path.measured["frobenius at R = 1000"] == pytest.approx(0.9995)
    assert selection.measured["W, share of positions with a choice that select their optimal token"] == pytest.approx(
        0.8
    )
    assert "9 of 12 problems (3 certified infeasible)" in selection.note
    assert list(selection.counts) == ["causal W", "causal KQ"]
    assert W.measured["frobenius at step 2000"] == pytest.approx(0.991)
    assert W.measured["frobenius, along the exact gradient direction at step 2000"] == pytest.approx(0.9985)
    assert "nuclear, with decreasing steps at step 2000" in KQ.expected
    assert KQ.measured["nuclear at step 2000"] == pytest.approx(0.995)
    assert "the correlation with the nuclear solution is 0.9980, the margin ratio is 0.9980" in KQ.note
    assert "grows like k^1." in KQ.note
    assert "The published run ends at a correlation of 0.9950, but its norm goes like k^" in KQ.note
    assert "but its norm goes like k^-0.25: it no longer grows" in judged(both(growth=-0.25))[1]["causal-KQ"].note
    assert "Correction" not in judged(both(growth=1.0))[1]["causal-KQ"].note


def test_without_a_kept_seed_it_says_so():
    empty = examples.run("W", 0.9, 0.9).isel(seed=slice(0)).assign_attrs(kept=0, infeasible=12)
    with pytest.raises(ValueError, match=r"^sequences: expected a kept seed in each run, found counts .*12"):
        claims.summarize({**both(), "causal W": empty}, KEY)


def ends(axes):
    """The last heights of the curves that a panel shows, in the order of their drawing."""
    return [points[1, -1] for points in instances.drawn_lines(axes)]


def test_the_figure_draws_a_row_for_each_attention():
    changed = {"W": (0.97, 0.98), "KQ": (0.96, 0.9), "exact": 0.99, "falling": 0.97}
    drawn = figure.draw(judged(both(**changed, followed=examples.path(0.98, 0.99)))[0])
    expected = [
        [0.0015, 0.009, 0.1],
        [0.002, 0.1, 0.005],
        [0.0005, 0.1],
        [0.01, 0.03, 0.02],
        [0.03, 0.1, 0.04],
        [0.02, 0.01],
    ]
    for axes, of_panel in zip(drawn.axes, expected, strict=True):
        np.testing.assert_allclose(ends(axes), of_panel, rtol=1e-9)
    assert [axes.get_title() for axes in drawn.axes] == [
        "(a) sequence, $W$:\nFrobenius SVM is nearest",
        "(b) sequence, $(K, Q)$:\nnuclear SVM is nearest",
        "(c) sequence, path of $W$:\nFrobenius SVM is nearest",
        "(d) causal, $W$:\nnuclear SVM is nearest",
        "(e) causal, $(K, Q)$:\nnuclear SVM is nearest",
        "(f) causal, path of $W$:\nnuclear SVM is nearest",
    ]
    for above, below in zip(drawn.axes[:3], drawn.axes[3:], strict=True):
        assert (above.get_xlim(), above.get_ylim()) == (below.get_xlim(), below.get_ylim())
    text = drawn.get_supxlabel()
    assert "10 runs x 12 seeds, all kept." in text
    assert "the optimal tokens, which one SVM separates in 9 of 12 problems (sequence) and 9 of 12 problems" in text
    (key,) = drawn.legends
    assert [one.get_text() for one in key.get_texts()][2:] == ["Frobenius, exact direction", "nuclear, falling steps"]


def test_the_figure_says_which_runs_are_missing():
    gone = {PATH, LONG, "causal W", "causal KQ", f"causal {FALLING}"}
    drawn = figure.draw(claims.summarize({run: one for run, one in both().items() if run not in gone}, KEY))
    assert [len(ends(axes)) for axes in drawn.axes] == [2, 3, 0, 1, 0, 2]
    assert [axes.get_title().partition("\n")[2] for axes in drawn.axes] == [
        "Frobenius SVM is nearest\n(exact direction not run)",
        "nuclear SVM is nearest",
        "not run",
        "run with exact direction only",
        "not run",
        "Frobenius SVM is nearest",
    ]
    assert "9 of 12 problems (sequence)." in drawn.get_supxlabel()


@pytest.mark.parametrize("attention", PREFIXES)
def test_the_figure_draws_the_runs_with_one_attention_alone(attention):
    summaries = claims.summarize(examples.runs(attention=attention), KEY)
    assert of_attention(summaries, attention).keys() == {*OWN, LONG, FALLING, PATH}
    counts = [len(ends(axes)) for axes in figure.draw(summaries).axes]
    assert counts == ([3, 3, 2, 0, 0, 0] if attention == "sequence" else [0, 0, 0, 3, 3, 2])
