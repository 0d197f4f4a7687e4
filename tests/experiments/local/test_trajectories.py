"""Trajectories in the plane: verdicts on the final direction, what is said of the motion, and what is drawn."""

import jax
import numpy as np
import pytest

from jaxattn import data, initial
from jaxattn.experiments.local.trajectories import claims as trajectories
from jaxattn.experiments.local.trajectories import examples, figure
from jaxattn.experiments.local.trajectories.examples import COUNTS, trajectory
from jaxattn.experiments.local.trajectories.measure import measure
from jaxattn.study.claims import Verdict, not_a_number
from jaxattn.study.measuring.growth import growth, lengths
from jaxattn.study.settings import schedule
from tests.instances import drawn_lines
from tests.recorded import recorded

KEY = jax.random.key(0)
OPEN, HOLDS, FAILS = Verdict.OPEN, Verdict.HOLDS, Verdict.FAILS
EIGHT = range(8)
# As in the configuration of a record.
RULE = {"optimizer": {"floor": 2.2e-16, "penalty": 2.2e-16}}


def judged(W, KQ, W_exact=None, KQ_exact=None, *, tokens=3):
    """The judgements on W and on (K, Q); on the exact direction both are parallel if nothing is said."""
    more = {"seeds": W["seed"].values.tolist(), "tokens": tokens, "last": 10 * int(W["snapshot"][-1])}
    exact = {"W, exact": W_exact, "KQ, exact": KQ_exact}
    exact = {run: trajectory(run, 0.999, 0.999, **more) if one is None else one for run, one in exact.items()}
    summaries = trajectories.summarize({"W": W, "KQ": KQ, **exact}, KEY)
    claims = [claim for claim in trajectories.CLAIMS if claim.experiment == f"trajectories-{tokens}"]
    assert [claim.id for claim in claims] == [f"trajectories-{tokens}:W", f"trajectories-{tokens}:KQ"]
    return [claim.judge(summaries) for claim in claims]


# Of 200 seeds, the correlation at the end: of all near 1; of so many in twenty; of none.
ALL, NEARLY, MOST, HALF, FEW, NONE = (
    np.resize([0.995] * many + [0.6] * (20 - many), 200) for many in (20, 19, 16, 10, 4, 0)
)


@pytest.mark.parametrize("tokens", [3, 5])
@pytest.mark.parametrize(
    ("published", "exact", "verdict"),
    [
        (ALL, ALL, HOLDS),
        (MOST, ALL, HOLDS),
        (ALL, NEARLY, OPEN),
        (HALF, ALL, OPEN),
        (ALL, MOST, Verdict.CORRECTED),
        (FEW, ALL, FAILS),
        (ALL, FEW, FAILS),
        (NONE, NONE, FAILS),
    ],
)
def test_nearly_all_paths_have_to_be_parallel_on_the_exact_direction_and_most_by_the_published_rule(
    published, exact, verdict, tokens
):
    more = {"seeds": range(200), "tokens": tokens}
    W, KQ = trajectory("W", published, 0.5, **more), trajectory("KQ", 0.5, published, **more)
    W_exact = trajectory("W, exact", exact, 0.5, 20_000, **more)
    KQ_exact = trajectory("KQ, exact", 0.5, exact, 20_000, **more)
    found = judged(W, KQ, W_exact, KQ_exact, tokens=tokens)
    assert [one.verdict for one in found] == [verdict, verdict]
    if verdict is Verdict.CORRECTED:
        assert "100% by the published rule (step 2000) and 80% by the exact gradient direction" in found[0].note


@pytest.mark.parametrize(("final", "verdict"), [(0.991, HOLDS), (0.989, FAILS)])
def test_a_path_is_parallel_from_a_correlation_of_099_on(final, verdict):
    assert [one.verdict for one in judged(*examples.runs(3, final, final, final, spread=0).values())] == [verdict] * 2


def test_few_steps_decide_nothing():
    found = judged(*examples.runs(3, 0.995, 0.995, last=999).values())
    assert [one.verdict for one in found] == [OPEN, OPEN]
    assert all("too short" in one.note for one in found)


def test_trajectories_report_both_norms_and_are_held_against_their_own():
    final = np.resize([0.999, 0.6], 8)
    W, KQ = judged(trajectory("W", final, 0.999, seeds=EIGHT), trajectory("KQ", 0.999, final, seeds=EIGHT))
    assert W.measured == pytest.approx(
        {
            "W: frobenius at step 2000": 0.7995,
            "W: nuclear at step 2000": 0.999,
            "W: share of seeds above 0.99": 0.5,
            "W, exact: frobenius at step 20000": 0.999,
            "W, exact: nuclear at step 20000": 0.999,
            "W, exact: share of seeds above 0.99": 1.0,
        }
    )
    low, high = W.interval["W: frobenius at step 2000"]
    assert 0.6 < low < 0.7995 < high < 0.99
    assert [next(iter(one.expected)) for one in (W, KQ)] == ["W: frobenius at step 2000", "KQ: nuclear at step 2000"]
    assert W.counts == {"W": COUNTS, "W, exact": COUNTS}
    assert KQ.counts == {"KQ": COUNTS, "KQ, exact": COUNTS}


@pytest.mark.parametrize(
    ("power", "said"),
    [
        (1.0, "grows like k^1: the paths still move outwards"),
        (0.06, "grows like k^0.06: the paths still move outwards"),
        (0.05, "it is not clear whether the paths still move outwards"),
        (0.04, "grows like k^0.04: the paths no longer grow"),
        (0.0, "the paths no longer grow"),
        (-0.5, "grows like k^-0.5: the paths no longer grow"),
    ],
)
def test_the_motion_is_said_and_changes_no_verdict_on_the_direction(power, said):
    found = judged(*examples.runs(3, 0.995, 0.995, growth=power).values())
    assert [one.verdict for one in found] == [HOLDS, HOLDS]
    assert all(one.note.count(said) == 2 for one in found)
    assert "By the published rule, from step 1000 to 2000, ||W Z||" in found[0].note
    assert "By the exact gradient direction, from step 10000 to 20000, ||K Q^T Z||" in found[1].note


def test_few_seeds_decide_nothing():
    few = [one.isel(seed=[0]).assign_attrs(kept=1) for one in examples.runs(3, 0.999, 0.999).values()]
    assert [one.verdict for one in judged(*few)] == [OPEN, OPEN]


def test_the_trajectories_drawn_are_of_the_median_seed_kept_in_all_runs():
    W = trajectory("W", [0.9, 0.99, 0.999, 0.5, 0.7], 1.0, seeds=[0, 3, 5, 6, 7])
    others = {
        run: trajectory(run, 1.0, [0.2, 0.1, 0.3, 0.4, 0.5, 0.6], seeds=[1, 3, 4, 5, 6, 7])
        for run in ("KQ", "W, exact", "KQ, exact")
    }
    drawn = trajectories.summarize({"W": W, **others}, KEY)
    # Of the seeds 3, 5, 6, 7, at 0.99, 0.999, 0.5 and 0.7, the lower one of the two in the middle.
    assert {run: int(one["seed"]) for run, one in drawn.items()} == dict.fromkeys(drawn, 7)
    np.testing.assert_array_equal(drawn["W"]["path"], W["path"].values[4])
    assert drawn["KQ"].attrs["place"] == 5 / 6
    page = figure.draw(drawn)
    # The drawn seed is nearer to the other solution in both runs, and the titles say so.
    assert ["in this seed" in axes.get_title() for axes in page.axes] == [True, True, False, False]
    assert ["training $W$" in axes.get_title() for axes in page.axes] == [True, False, False, False]
    assert "seed 7, the median in final cos" in page.get_supxlabel()
    assert "83% of the seeds end below it in $KQ" in page.get_supxlabel()
    tied = {run: trajectory(run, 1.0, 1.0, seeds=[5, 2, 9]) for run in drawn}
    assert int(trajectories.summarize(tied, KEY)["W"]["seed"]) == 5
    apart = {run: trajectory(run, 1.0, 1.0, seeds=[0, 2] if run == "W" else [1, 3]) for run in drawn}
    with pytest.raises(ValueError, match=r"^trajectories: no seed was kept in all runs, counts .*'infeasible': 2"):
        trajectories.summarize(apart, KEY)
    with pytest.raises(ValueError, match=r"^trajectories: expected the runs \['KQ', 'KQ, exact', .* found \['KQ'\]"):
        trajectories.summarize({"KQ": W}, KEY)


def test_the_figure_draws_the_drawn_path_its_marks_and_the_quantiles_of_both_rules():
    drawn = trajectories.summarize(examples.runs(3, 0.995, 0.995), KEY)
    page = figure.draw(drawn)
    for axes in page.axes[:2]:
        assert {"500", "1,000", "2,000"} >= {one.get_text() for one in axes.texts} - {""} >= {"2,000"}
        assert "in this seed" not in axes.get_title()
    steps = drawn["W"]["snapshot"].values
    for axes, run in zip(page.axes[2:], ("W", "KQ"), strict=True):
        published, exact, own, other = (one for one in drawn_lines(axes) if one.shape[1] == len(steps))
        off = 1 - drawn[run]["correlation"].transpose("norm", "snapshot").values
        np.testing.assert_allclose([own[1], other[1]], off if run == "W" else off[::-1])
        np.testing.assert_array_equal(published, [steps, drawn[run]["off_50"]])
        np.testing.assert_array_equal(exact, [10 * steps, drawn[f"{run}, exact"]["off_50"]])


@pytest.mark.slow
@pytest.mark.parametrize("run", ["W", "KQ"])
def test_the_examples_look_like_what_is_measured(tmp_path, run):
    weights = {"W": initial.free_zero, "KQ": initial.factored_zero}[run]
    record = recorded(
        tmp_path, data.three_tokens, weights, seeds=3, steps=40, snapshots=schedule.Evenly(10), config=RULE
    )
    one, made = measure(record), examples.runs(3, 0.995, 0.995)[run]
    assert one.attrs["run"] == run
    assert not_a_number({run: one}) == ""
    assert one.attrs["kept"] == 3
    assert {name: made[name].dims for name in made.variables} == {name: one[name].dims for name in made.variables}
    assert all(made[name].dtype.kind == one[name].dtype.kind for name in made.variables)
    assert set(made.attrs) <= set(one.attrs)
    assert growth(lengths(one), KEY)["until"] == 40
