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
from tests.recorded import recorded

KEY = jax.random.key(0)
OPEN, HOLDS, FAILS = Verdict.OPEN, Verdict.HOLDS, Verdict.FAILS
EIGHT = range(8)
# Eight seeds of mean zero and standard deviation 0.001: the standard error of the mean is 0.00038.
WOBBLE = np.resize([-0.001, 0.001], 8)


def judged(W, KQ, *, tokens=3):
    """The judgements on W and on (K, Q)."""
    summaries = trajectories.summarize({"W": W, "KQ": KQ}, KEY)
    claims = [claim for claim in trajectories.CLAIMS if claim.experiment == f"trajectories-{tokens}"]
    assert [claim.id for claim in claims] == [f"trajectories-{tokens}:W", f"trajectories-{tokens}:KQ"]
    return [claim.judge(summaries) for claim in claims]


@pytest.mark.parametrize("tokens", [3, 5])
@pytest.mark.parametrize(
    ("final", "last", "verdict"),
    [
        (0.995, 2000, HOLDS),
        (0.995, 1000, HOLDS),
        (0.995, 999, OPEN),
        (0.991, 2000, HOLDS),
        (0.99, 2000, OPEN),
        (0.989, 2000, FAILS),
        (0.988, 2000, FAILS),
    ],
)
def test_trajectories_are_judged_by_the_interval_of_the_final_correlation(final, last, verdict, tokens):
    more = {"last": last, "seeds": EIGHT, "tokens": tokens}
    found = judged(
        trajectory("W", final + WOBBLE, 0.5, **more), trajectory("KQ", 0.5, final + WOBBLE, **more), tokens=tokens
    )
    assert [one.verdict for one in found] == [verdict, verdict]
    assert all(("too short" in one.note) == (last < 1000) for one in found)


def test_trajectories_report_both_norms_and_are_held_against_their_own():
    final = np.resize([0.999, 0.6], 8)
    W, KQ = judged(trajectory("W", final, 0.999, seeds=EIGHT), trajectory("KQ", 0.999, final, seeds=EIGHT))
    assert W.measured == pytest.approx(
        {"frobenius at step 2000": 0.7995, "nuclear at step 2000": 0.999, "share of seeds above 0.99": 0.5}
    )
    low, high = W.interval["frobenius at step 2000"]
    assert 0.6 < low < 0.7995 < high < 0.99
    assert [list(one.expected) for one in (W, KQ)] == [["frobenius at step 2000"], ["nuclear at step 2000"]]
    assert [one.counts for one in (W, KQ)] == [{"W": COUNTS}, {"KQ": COUNTS}]
    assert [one.verdict for one in (W, KQ)] == [FAILS, FAILS]


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
    assert all(said in one.note for one in found)
    assert "From step 1000 to 2000 ||W Z||" in found[0].note
    assert "||K Q^T Z||" in found[1].note


def test_few_seeds_decide_nothing():
    few = {"W": trajectory("W", 0.999 + WOBBLE, 0.5, seeds=EIGHT)}
    few |= {"KQ": trajectory("KQ", 0.5, 0.999 + WOBBLE, seeds=EIGHT)}
    few = {run: one.isel(seed=[0]).assign_attrs(kept=1) for run, one in few.items()}
    assert [one.verdict for one in judged(*few.values())] == [OPEN, OPEN]


def test_the_trajectories_drawn_are_of_the_first_seed_kept_in_both_runs():
    W, KQ = trajectory("W", 1.0, 1.0, seeds=[0, 3, 5]), trajectory("KQ", 1.0, 1.0, seeds=[1, 3, 4, 5])
    drawn = trajectories.summarize({"W": W, "KQ": KQ}, KEY)
    assert {run: int(one["seed"]) for run, one in drawn.items()} == {"W": 3, "KQ": 3}
    np.testing.assert_array_equal(drawn["W"]["path"], W["path"].values[1])
    page = figure.draw(drawn)
    assert [axes.get_title().partition(",")[0] for axes in page.axes] == ["run of $W$", r"run of $KQ^\top$"]
    assert "Drawn: seed 3" in page.get_supxlabel()
    with pytest.raises(ValueError, match=r"^trajectories: no seed was kept in both runs, counts .*'infeasible': 2"):
        trajectories.summarize({"W": trajectory("W", 1.0, 1.0, seeds=[0, 2]), "KQ": KQ}, KEY)
    with pytest.raises(ValueError, match=r"^trajectories: expected the runs \['KQ', 'W'\], found \['KQ'\]"):
        trajectories.summarize({"KQ": KQ}, KEY)


@pytest.mark.parametrize("run", ["W", "KQ"])
def test_the_examples_look_like_what_is_measured(tmp_path, run):
    weights = {"W": initial.free_zero, "KQ": initial.factored_zero}[run]
    record = recorded(tmp_path, data.three_tokens, weights, seeds=3, steps=40, snapshots=schedule.Evenly(10))
    one, made = measure(record), examples.runs(3, 0.995, 0.995)[run]
    assert not_a_number({run: one}) == ""
    assert one.attrs["kept"] == 3
    assert {name: made[name].dims for name in made.variables} == {name: one[name].dims for name in made.variables}
    assert all(made[name].dtype.kind == one[name].dtype.kind for name in made.variables)
    assert dict.fromkeys(made.attrs) == dict.fromkeys(one.attrs)
    assert growth(lengths(one), KEY)["until"] == 40
