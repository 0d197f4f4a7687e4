"""Several selected tokens under a ReLU head: what is measured of both parts, and the verdicts on the figure."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import svm
from jaxattn.experiments.several_tokens import screening
from jaxattn.experiments.several_tokens.multi_token_mlp import examples, figure
from jaxattn.experiments.several_tokens.multi_token_mlp.claims import CLAIMS, summarize
from jaxattn.experiments.several_tokens.multi_token_mlp.measure import measure
from jaxattn.experiments.several_tokens.multi_token_mlp.published import PUBLISHED
from jaxattn.study.claims import EXCLUDED, Verdict
from tests.instances import drawn_lines

KEY = jax.random.key(0)


def judged(summaries):
    """What is judged of the runs that the published selection keeps, and of all."""
    return [claim.judge(summaries) for claim in CLAIMS]


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
    assert {one.verdict for one in judged(summaries)} == {Verdict.OPEN}
    assert "no run is kept" in {text.get_text() for axes in figure.draw(summaries).axes for text in axes.texts}


def test_the_published_numbers_hold_in_their_order():
    summaries = summarize(examples.runs(seeds=400), KEY)
    selected, every = judged(summaries)
    assert (selected.verdict, every.verdict) == (Verdict.HOLDS, Verdict.HOLDS)
    assert selected.measured == pytest.approx(selected.expected)
    assert set(selected.expected) == {f"d = {d}, {name}" for d in (4, 6) for name in PUBLISHED}
    drawn = figure.draw(summaries)
    final = [y[-1] for _, y in drawn_lines(drawn.axes[0])]
    np.testing.assert_allclose(final, [*(by_d[4] for by_d in PUBLISHED.values()), 0.9])
    marks = [points[1, 0] for points in drawn_lines(drawn.axes[0], least=1) if points.shape[1] == 1]
    assert marks == [by_d[4] for by_d in PUBLISHED.values()]
    assert "d = 4: 400 of 405 runs kept (5 ambiguous)" in drawn.get_supxlabel()


@pytest.mark.parametrize(
    ("changes", "every", "verdicts"),
    [
        ([(4, "W_mm", 0.065)], (0.02, 0.1, 0.15), (Verdict.CORRECTED, Verdict.HOLDS)),
        ([(4, "W_mm", 0.03)], (0.02, 0.1, 0.15), (Verdict.FAILS, Verdict.HOLDS)),
        ([(6, "W_1token", 0.04)], (0.02, 0.1, 0.15), (Verdict.FAILS, Verdict.HOLDS)),
        ([], (0.02, 0.2, 0.15), (Verdict.HOLDS, Verdict.CORRECTED)),
        ([], (0.2, 0.1, 0.15), (Verdict.HOLDS, Verdict.FAILS)),
        ([], (0.15, 0.2, 0.1), (Verdict.HOLDS, Verdict.FAILS)),
        # Descriptions that are equally near are not in the stated order.
        ([(4, "W_mm", 0.034)], (0.02, 0.1, 0.15), (Verdict.FAILS, Verdict.HOLDS)),
    ],
)
def test_another_order_or_other_numbers_change_the_verdict(changes, every, verdicts):
    found = judged(summarize(examples.runs(changes, every, seeds=400), KEY))
    assert tuple(one.verdict for one in found) == verdicts


def test_a_correction_says_which_numbers_it_is_made_from():
    selected, _ = judged(summarize(examples.of_selected()[Verdict.CORRECTED], KEY))
    assert "1 of 6 means differ" in selected.note
    assert "d = 4, W_mm is 0.05, published 0.0705" in selected.note
    _, every = judged(summarize(examples.of_every()[Verdict.CORRECTED], KEY))
    assert "W_1token is nearer than W_mm in 2 of 2 dimensions (d = 4: 0.15" in every.note


def test_a_measurement_too_coarse_to_tell_the_order_decides_nothing():
    runs = examples.runs()
    for one in runs.values():
        # As many runs are nearer to W_1token than to W_mm as the other way round.
        one["off"].values[::2, 1], one["off"].values[::2, 2] = (
            one["off"].values[::2, 2],
            one["off"].values[::2, 1].copy(),
        )
    assert {one.verdict for one in judged(summarize(runs, KEY))} == {Verdict.OPEN}


@pytest.mark.parametrize("few", [{"seeds": 6}, {"last": 900}])
def test_few_runs_or_steps_decide_nothing(few):
    assert {one.verdict for one in judged(summarize(examples.runs(**few), KEY))} == {Verdict.OPEN}


def test_no_run_is_refused():
    with pytest.raises(ValueError, match=r"^multi-token-mlp: expected at least one run"):
        summarize({}, KEY)
