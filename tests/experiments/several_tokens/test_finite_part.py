"""Ratios inside the selected sets: on runs whose attention is the best one, and the verdicts on them."""

import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from matplotlib.patches import Rectangle

from jaxattn import svm
from jaxattn.experiments.several_tokens.evidence import WITHOUT
from jaxattn.experiments.several_tokens.finite_part import examples, figure
from jaxattn.experiments.several_tokens.finite_part.claims import CLAIMS, summarize
from jaxattn.experiments.several_tokens.finite_part.measure import measure
from jaxattn.study.claims import EXCLUDED, Verdict
from tests.experiments.several_tokens.runs import KEY, SEEDS, resting
from tests.instances import drawn_lines


@pytest.fixture(scope="module")
def at_the_best():
    return measure(resting())


@pytest.mark.slow
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
    off = measure(resting(off=0.4))
    difference = np.asarray(off["descended"] - off["predicted"])
    np.testing.assert_allclose(difference, -0.4, atol=1e-12)  # Of the others beside the first.
    assert (np.asarray(off["foretold"]) > np.asarray(off["fitted"]) + 1e-6).any()
    moving = measure(resting(drifting=0.3))
    assert (moving["drift"] > 0.01).all()


def quadratic_and_relu(**changes) -> dict[str, xarray.Dataset]:
    both = (measure(resting(head, **changes)) for head in ("quadratic", "mlp"))
    return {one.attrs["run"]: one for one in both}


@pytest.fixture(scope="module")
def summarized():
    return summarize(quadratic_and_relu(), KEY)


def judged(summaries):
    """What is judged of the quadratic head and of the ReLUs."""
    return [claim.judge(summaries) for claim in CLAIMS]


def test_the_verdict_is_that_of_the_line_and_of_what_is_determined(summarized):
    quadratic, relu = judged(summarized)
    assert quadratic.verdict is Verdict.HOLDS
    assert quadratic.measured["quadratic, slope"] == pytest.approx(1, abs=1e-9)
    assert quadratic.measured["quadratic, intercept"] == pytest.approx(0, abs=1e-9)
    assert quadratic.measured["quadratic, rms"] == pytest.approx(0, abs=1e-9)
    # Under the ReLUs few minima are at one point, and the line alone does not make the claim hold.
    assert relu.measured["ReLU, determined"] < 0.5
    assert relu.verdict is Verdict.FAILS
    assert "many distributions are equally good" in relu.note
    assert "many distributions are equally good" not in quadratic.note
    runs = ("lambda = 0.2", "lambda = 0.2" + WITHOUT)
    assert [quadratic.counts[run]["attempted"] for run in runs] == [SEEDS, SEEDS]
    assert set(quadratic.counts) == set(runs)
    assert summarized["quadratic"].attrs["kept"] == quadratic.counts["lambda = 0.2"]["kept"]
    assert set(summarized) == {"quadratic", "ReLU", "quadratic" + WITHOUT, "ReLU" + WITHOUT}


def test_ratios_beside_the_line_fail():
    quadratic, _ = judged(summarize(quadratic_and_relu(off=0.4), KEY))
    assert quadratic.verdict is Verdict.FAILS
    assert abs(quadratic.measured["quadratic, intercept"]) > 0.05


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"away": (0.04, 1e-3)}, Verdict.HOLDS),
        ({"away": (0.06, 1e-3)}, Verdict.FAILS),
        ({"away": (-0.04, 1e-3)}, Verdict.HOLDS),
        ({"away": (-0.06, 1e-3)}, Verdict.FAILS),
        ({"away": (0.05, 0.05)}, Verdict.OPEN),
        ({"determined": 0.65}, Verdict.HOLDS),
        ({"determined": 0.35}, Verdict.FAILS),
        # Ratios on the line that still move are not those descent tends to.
        ({"drift": 5e-3}, Verdict.HOLDS),
        ({"drift": 0.01}, Verdict.OPEN),
        ({"drift": 0.1}, Verdict.FAILS),
    ],
)
def test_a_ratio_has_to_settle_to_be_determined_and_to_be_the_predicted_one(changes, verdict):
    runs = {
        "lambda = 0.2": examples.run("lambda = 0.2", "quadratic", **changes),
        "d = 4": examples.run("d = 4", "ReLU"),
    }
    assert [one.verdict for one in judged(summarize(runs, KEY))] == [verdict, Verdict.HOLDS]


def test_a_head_without_a_run_is_named():
    with pytest.raises(ValueError, match=r"^finite-part: expected runs under the heads .* found \['ReLU'\]"):
        summarize({"d = 4": examples.run("d = 4", "ReLU")}, KEY)


def test_changes_and_distances_below_zero_are_refused():
    runs = dict(examples.of_quadratic()[Verdict.HOLDS])
    wrong = {"drift": -runs["d = 4"]["drift"]}
    with pytest.raises(ValueError, match=r"^finite-part: expected drifts and distances of at least 0, found -0.0001"):
        summarize(runs | {"d = 4": runs["d = 4"].assign(wrong)}, KEY)


def gives_up(constraints: svm.Constraints, norm: svm.Norm) -> svm.Candidate:
    del norm
    shape = constraints.differences.shape
    return svm.Candidate(jnp.full((shape[-1], shape[-1]), jnp.nan), jnp.zeros(shape[:-1]), jnp.asarray(0))


def test_runs_without_solutions_are_counted_and_have_no_distances(at_the_best):
    found = measure(resting(), solver=gives_up)
    assert found.sizes["whole"] == 0
    lost = at_the_best.attrs["every_kept"] - found.attrs["every_kept"]
    assert found.attrs["every_unsolved"] == lost > 0
    assert not np.isnan(found["fitted"]).any()


def test_the_figure_draws_every_ratio_and_the_shares(summarized):
    drawn = figure.draw(summarized)
    points = [points for points in drawn_lines(drawn.axes[0]) if points.shape[1] > 2]
    for part, (x, y) in zip(("quadratic" + WITHOUT, "quadratic"), points, strict=True):
        np.testing.assert_array_equal(x, summarized[part]["predicted"])
        np.testing.assert_array_equal(y, summarized[part]["descended"])
    widths = np.array([bar.get_width() for bar in drawn.axes[2].patches if isinstance(bar, Rectangle)]).reshape(4, 3)
    np.testing.assert_allclose(widths.sum(axis=1), 1)
    assert drawn.axes[0].get_xlim() == drawn.axes[1].get_ylim()
    shown = [text.get_text() for text in drawn.axes[0].texts]
    assert shown[0] == f"published selection:\nslope {float(summarized['quadratic']['slope']):.3f}, rms 0.00"
    assert drawn.axes[0].get_title().endswith("ratios are those predicted")
    shares = [float((summarized["ReLU" + suffix]["kind"] == 0).mean()) for suffix in ("", WITHOUT)]
    assert drawn.axes[2].get_title() == "(c) ReLU: claim refuted, {:.0%} and {:.0%} mix the set".format(*shares)


def test_the_figure_says_which_ratios_differ_from_their_predictions():
    made = examples.of_quadratic()
    said = {verdict: figure.draw(summarize(runs, KEY)).axes[0].get_title() for verdict, runs in made.items()}
    assert said[Verdict.HOLDS].endswith("ratios are those predicted")
    assert said[Verdict.FAILS].endswith("ratios differ from predictions with the selection and without selection")
    assert said[Verdict.OPEN].endswith("agreement not decided")


def test_few_steps_decide_nothing():
    short = {run: one.assign_coords(snapshot=one["snapshot"] // 10) for run, one in quadratic_and_relu().items()}
    assert {one.verdict for one in judged(summarize(short, KEY))} == {Verdict.OPEN}
