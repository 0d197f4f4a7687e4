"""The experiments on sequences: what is measured of a record with a mask, the verdicts, and the figure."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, descent, heads, initial, losses, metrics, records, svm, tokens
from jaxattn.experiments.sequences.positions import claims, examples, figure
from jaxattn.experiments.sequences.positions.measure import FALLING, LONG, PATH, measure
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
    assert found.attrs["run"] == LONG
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
    _, one = record
    published = one.assign_attrs(config=json.dumps({"optimizer": {"floor": 2.0**-52, "penalty": 2.0**-52}}))
    found = measure(published, solver=gives_up)
    assert found.attrs["run"] == "W"
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
    assert (found.attrs["run"], found.attrs["attention"]) == (run, "causal")
    assert set(found["off"].dims) == {"seed", "norm", "radius"}


def summarized(attention: str = "causal", **changed):
    """The estimates of the example with these numbers, and the judgements on it by the claims' names."""
    return judged_of(attention, examples.runs(attention=attention, **changed))


def judged_of(attention: str, datasets):
    summaries = claims.summarize(datasets, KEY)
    return summaries, {one.id: one.judge(summaries) for one in claims.CLAIMS if one.experiment == attention}


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
    found = summarized(**(changed | path))[1]
    assert list(found) == ["causal:selection", "causal:W", "causal:KQ", "causal:path"]
    assert [judgement.verdict for judgement in found.values()] == verdicts
    for judgement in found.values():
        assert set(judgement.expected) <= set(judgement.measured) == set(judgement.interval)
        assert all({**COUNTS, **counts, "kept": 12} == COUNTS for counts in judgement.counts.values())


@pytest.mark.parametrize(
    ("missing", "opened"),
    [("W", ["selection", "W"]), ("KQ", ["selection", "KQ"]), (LONG, ["W"]), (FALLING, ["KQ"]), (PATH, ["path"])],
)
def test_a_claim_on_a_run_that_is_missing_is_not_decided(missing, opened):
    datasets = {run: one for run, one in examples.runs(attention="sequence").items() if run != missing}
    _, found = judged_of("sequence", datasets)
    assert len(found) == 4
    for name, judgement in found.items():
        assert (judgement.verdict is Verdict.OPEN) == (name.partition(":")[2] in opened)
        assert bool(judgement.undecided) == (judgement.verdict is Verdict.OPEN)


def test_the_claims_say_what_was_measured():
    selection, W, KQ, path = summarized()[1].values()
    assert path.measured["frobenius at R = 1000"] == pytest.approx(0.9995)
    assert selection.measured["W, share of positions with a choice that select their optimal token"] == pytest.approx(
        0.8
    )
    assert "9 of 12 problems (3 certified infeasible)" in selection.note
    assert W.measured["frobenius at step 2000"] == pytest.approx(0.991)
    assert W.measured["frobenius, along the exact gradient direction at step 2000"] == pytest.approx(0.9985)
    assert "nuclear, with decreasing steps at step 2000" in KQ.expected
    assert KQ.measured["nuclear at step 2000"] == pytest.approx(0.995)
    assert "the correlation with the nuclear solution is 0.9980, the margin ratio is 0.9980" in KQ.note
    assert "grows like k^1." in KQ.note
    assert "The published run ends at a correlation of 0.9950, but its norm goes like k^" in KQ.note
    assert "but its norm goes like k^-0.25: it no longer grows" in summarized(growth=-0.25)[1]["causal:KQ"].note
    assert "Correction" not in summarized(growth=1.0)[1]["causal:KQ"].note


def test_without_a_kept_seed_it_says_so():
    empty = examples.run("W", 0.9, 0.9).isel(seed=slice(0)).assign_attrs(kept=0, infeasible=12)
    with pytest.raises(ValueError, match=r"^sequences: expected a kept seed in each run, found counts .*12"):
        claims.summarize({**examples.runs(), "W": empty}, KEY)


def test_the_figure_draws_both_norms_and_the_distance_of_each_run():
    drawn = figure.draw(summarized()[0])
    saturation, W, KQ, distance, path = drawn.axes
    for axes, count in ((saturation, 2), (W, 2), (KQ, 2), (distance, 4), (path, 2)):
        assert len(instances.drawn_lines(axes)) == count
    np.testing.assert_allclose([points[1, -1] for points in instances.drawn_lines(W)], [0.009, 0.1], rtol=1e-9)
    np.testing.assert_allclose([points[1, -1] for points in instances.drawn_lines(KQ)], [0.1, 0.005], rtol=1e-9)
    ends = [points[1, -1] for points in instances.drawn_lines(distance)]
    np.testing.assert_allclose(ends, [0.009, 0.005, 0.0015, 0.002], rtol=1e-9)
    ends = [points[1, -1] for points in instances.drawn_lines(path)]
    np.testing.assert_allclose(ends, [0.0005, 0.1], rtol=1e-9)
    text = drawn.get_supxlabel()
    assert "5 runs x 12 seeds, all kept." in text
    assert "separable in 9 of 12 problems" in text
    assert "Position 0 sees one token" in text


def test_the_figure_draws_what_is_there():
    datasets = {run: one for run, one in examples.runs().items() if run != PATH}
    drawn = figure.draw(claims.summarize(datasets, KEY))
    *_, distance = drawn.axes
    assert len(drawn.axes) == 4
    assert len(instances.drawn_lines(distance)) == 4
