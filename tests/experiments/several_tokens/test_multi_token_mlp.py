"""Several selected tokens under a ReLU head: what is measured of both parts, and the verdicts on the figure."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import svm
from jaxattn.experiments.several_tokens import screening
from jaxattn.experiments.several_tokens.evidence import EXACT
from jaxattn.experiments.several_tokens.multi_token_mlp import examples, figure
from jaxattn.experiments.several_tokens.multi_token_mlp.claims import CLAIMS, summarize
from jaxattn.experiments.several_tokens.multi_token_mlp.measure import measure
from jaxattn.experiments.several_tokens.multi_token_mlp.published import PUBLISHED
from jaxattn.experiments.several_tokens.prediction import predict
from jaxattn.study.claims import EXCLUDED, Verdict
from tests.instances import drawn_lines

KEY = jax.random.key(0)


def judged(summaries, *names: str):
    """What is judged by these claims: of the order, if none is named, with the published selection and without."""
    by_name = {claim.id.partition(":")[2]: claim for claim in CLAIMS}
    return [by_name[name].judge(summaries) for name in names or ("selected", "every")]


@pytest.fixture(scope="module")
def measured(record):
    return measure(record)


def test_every_attempt_is_counted_once_and_the_two_parts_share_their_runs(record, measured):
    runs = screening.runs_of(record)
    for prefix, reason in (
        ("", screening.published(runs, labels=screening.labels_of_one_kind(runs))),
        ("every_", screening.unselected(runs)),
    ):
        reasons = {name: measured.attrs[prefix + name] for name in EXCLUDED if prefix + name in measured.attrs}
        assert measured.attrs[prefix + "attempted"] == 40 == measured.attrs[prefix + "kept"] + sum(reasons.values())
        assert measured.attrs[prefix + "kept"] == int((reason < 0).sum())
        assert all(count == int((reason == EXCLUDED.index(name)).sum()) for name, count in reasons.items())
    assert int(measured["published"].sum()) == measured.attrs["kept"] > 0
    assert int(measured["every"].sum()) == measured.attrs["every_kept"] > measured.attrs["kept"]
    assert measured.attrs["ambiguous"] > 0 < measured.attrs["labels"]


def test_attempts_end_with_the_last_run_that_is_needed(record, measured, monkeypatch):
    kept = measured["seed"].values[measured["published"].values]
    monkeypatch.setattr(screening, "SEEDS", 3)
    few = measure(record)
    assert few.attrs["kept"] == 3
    assert few.attrs["attempted"] == kept[2] + 1 == 3 + sum(few.attrs[reason] for reason in EXCLUDED)
    assert few["seed"].values[few["published"].values].tolist() == kept[:3].tolist()
    assert few.attrs["every_attempted"] == 3
    assert set(few["seed"].values[few["every"].values]) <= {0, 1, 2}


def gives_up(constraints: svm.Constraints, norm: svm.Norm) -> svm.Candidate:
    del norm
    shape = constraints.differences.shape
    return svm.Candidate(jnp.zeros((shape[-1], shape[-1])), jnp.zeros(shape[:-1]), jnp.asarray(0))


def test_runs_that_cannot_be_described_are_counted_as_unsolved(record, measured):
    found = measure(record, solver=gives_up)
    assert found.sizes["seed"] == found.attrs["kept"] == found.attrs["every_kept"] == 0
    assert found.attrs["unsolved"] == measured.attrs["kept"]
    assert found.attrs["every_unsolved"] == measured.attrs["every_kept"]
    summaries = summarize({"d = 4": found}, KEY)
    assert {claim.judge(summaries).verdict for claim in CLAIMS} == {Verdict.OPEN}
    assert "no run is kept" in {text.get_text() for axes in figure.draw(summaries).axes for text in axes.texts}


@pytest.mark.slow
def test_the_published_numbers_hold_in_their_order():
    summaries = summarize(examples.runs(seeds=400), KEY)
    selected, every, numbers = judged(summaries, "selected", "every", "numbers")
    assert {one.verdict for one in (selected, every, numbers)} == {Verdict.HOLDS}
    assert numbers.measured == pytest.approx(numbers.expected)
    assert set(numbers.expected) == {f"d = {d}, {name}" for d in (4, 6) for name in PUBLISHED}
    drawn = figure.draw(summaries)
    final = [y[-1] for _, y in drawn_lines(drawn.axes[0])[:4]]
    np.testing.assert_allclose(final, [*(by_d[4] for by_d in PUBLISHED.values()), 0.9])
    marks = [points[1, 0] for points in drawn_lines(drawn.axes[0], least=1) if points.shape[1] == 1]
    assert marks == [by_d[4] for by_d in PUBLISHED.values()]
    # What the selection keeps stands in a title, and whether the published means are met.
    assert drawn.axes[0].get_title().startswith("$d = 4$, kept:\n400 of 405\n")
    assert [axes.get_title() for axes in drawn.axes[4:6]] == ["3 of 3 agree"] * 2
    assert "2 runs, each 400 of 405 runs kept (excluded: 5 ambiguous)." in drawn.get_supxlabel()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "verdicts"),
    [
        # Of the order with the published selection, of the order without, and of the published means.
        ({"changes": [(4, "W_mm", 0.065)]}, (Verdict.HOLDS, Verdict.HOLDS, Verdict.FAILS)),
        ({"changes": [(4, "W_mm", 0.17)]}, (Verdict.FAILS, Verdict.HOLDS, Verdict.FAILS)),
        ({"changes": [(6, "W_1token", 0.04)]}, (Verdict.FAILS, Verdict.HOLDS, Verdict.FAILS)),
        ({"every": (0.02, 0.2, 0.15)}, (Verdict.HOLDS, Verdict.CORRECTED, Verdict.HOLDS)),
        ({"every": (0.15, 0.2, 0.1)}, (Verdict.HOLDS, Verdict.FAILS, Verdict.HOLDS)),
        # With the finite part of the run W_SVMeq is before W_mm, with the predicted one it is not.
        ({"predicted": 6.0}, (Verdict.FAILS, Verdict.FAILS, Verdict.HOLDS)),
        ({"determined": 2}, (Verdict.OPEN, Verdict.OPEN, Verdict.HOLDS)),
    ],
)
def test_another_order_or_other_numbers_change_the_verdict(changes, verdicts):
    found = judged(summarize(examples.runs(**{"seeds": 400, **changes}), KEY), "selected", "every", "numbers")
    assert tuple(one.verdict for one in found) == verdicts


def test_the_order_is_not_read_from_the_finite_part_that_is_fitted():
    nearer = examples.runs()
    for one in nearer.values():
        one["off"].loc[{"solution": "W_SVMeq"}] = 1e-6
    before, after = (
        [criterion for one in judged(summarize(runs, KEY)) for criterion in one.stated]
        for runs in (examples.runs(), nearer)
    )
    assert [*map(str, before)] == [*map(str, after)]


def test_a_correction_says_which_numbers_it_is_made_from():
    _, every = judged(summarize(examples.of_every()[Verdict.CORRECTED], KEY))
    assert "W_1token is nearer than W_mm in 2 of 2 dimensions (d = 4: 0.15" in every.note
    assert "in the 22 of 82 runs that select several tokens" in every.note


def test_the_prediction_is_that_of_the_runs_that_it_is_held_against(record, measured):
    runs = screening.runs_of(record)
    selected = screening.selected_sets(runs)
    whole = predict(runs.problems, selected, None).whole
    assert measured["whole_seed"].values.tolist() == [s for s in np.flatnonzero(whole) if s in measured["seed"]]
    several = selected[measured["seed"].values].sum(axis=2).max(axis=1) > 1
    np.testing.assert_array_equal(measured["several"], several)
    off = measured["off"].sel(seed=measured["whole_seed"].values, solution="W_SVMeq").isel(snapshot=-1)
    np.testing.assert_allclose(measured["fitted"], off, atol=1e-9)


def test_a_measurement_too_coarse_to_tell_the_order_decides_nothing():
    runs = examples.runs()
    for one in runs.values():
        # As many runs are nearer to W_1token than to W_mm as the other way round.
        one["off"].values[::2, 1], one["off"].values[::2, 2] = (
            one["off"].values[::2, 2],
            one["off"].values[::2, 1].copy(),
        )
    assert {one.verdict for one in judged(summarize(runs, KEY))} == {Verdict.OPEN}


@pytest.mark.parametrize(
    ("changes", "verdicts"),
    [
        ({}, (Verdict.HOLDS, Verdict.HOLDS)),
        ({"growth": 0.06}, (Verdict.HOLDS, Verdict.HOLDS)),
        ({"growth": 0.04}, (Verdict.FAILS, Verdict.HOLDS)),
        # The mean exponent does not tell that three seeds in ten are at rest.
        ({"resting": 0.3}, (Verdict.FAILS, Verdict.HOLDS)),
        ({"power": 1.1}, (Verdict.HOLDS, Verdict.HOLDS)),
        ({"power": 0.9}, (Verdict.HOLDS, Verdict.FAILS)),
        ({"power": -1.0}, (Verdict.HOLDS, Verdict.FAILS)),
    ],
)
def test_the_norm_has_to_grow_and_the_distance_to_fall_faster_than_it_grows(changes, verdicts):
    found = judged(summarize(examples.runs(**changes), KEY), "norm", "direction")
    assert tuple(one.verdict for one in found) == verdicts


@pytest.mark.parametrize("few", [{"seeds": 6, "determined": 3}, {"last": 900}])
def test_few_runs_or_steps_decide_nothing(few):
    summaries = summarize(examples.runs(**few), KEY)
    assert {claim.judge(summaries).verdict for claim in CLAIMS} == {Verdict.OPEN}


def test_norm_and_direction_are_those_of_the_runs_on_the_exact_direction(record):
    runs = dict(examples.runs(growth=0.01, power=0.5))
    published = judged(summarize(runs, KEY), "norm", "direction")
    exact = {run: one for run, one in examples.runs().items() if run.endswith(EXACT)}
    found = judged(summarize(runs | exact, KEY), "norm", "direction")
    assert [one.verdict for one in published] == [Verdict.FAILS] * 2
    assert [one.verdict for one in found] == [Verdict.HOLDS] * 2
    assert list(found[0].counts) == ["d = 4, exact", "d = 6, exact"]
    without = {run: one for run, one in runs.items() if run not in exact}
    assert [one.verdict for one in judged(summarize(without, KEY), "norm", "direction")] == [Verdict.OPEN] * 2
    rule = json.dumps({"optimizer": {"floor": 0.0, "penalty": 0.0}})
    assert measure(record.assign_attrs(config=rule)).attrs["run"] == "d = 4, exact"


def test_no_run_is_refused():
    with pytest.raises(ValueError, match=r"^multi-token-mlp: expected at least one run"):
        summarize({}, KEY)
