"""The theorem's condition: verdicts on datasets built by hand, and what the figure draws."""

import jax
import numpy as np
import pytest
import xarray

from jaxattn.experiments.max_margin.feasibility import claims as feasibility
from jaxattn.experiments.max_margin.feasibility import figure
from jaxattn.study.claims import Verdict
from jaxattn.svm import Status
from tests.instances import drawn_lines

KEY = jax.random.key(0)
DIMENSIONS, SIZES = np.arange(1, 7), ((2, 2), (2, 5), (4, 2), (4, 5))


def measured(n, T, seeds):
    """All feasible from half the theorem's dimension on, below it a quarter of the problems."""
    status = np.full((seeds, len(DIMENSIONS), 1), Status.OPTIMAL)
    too_small = np.asarray([2 * d < max(T - 1, n) for d in DIMENSIONS])
    status[seeds // 4 :, too_small] = Status.INFEASIBLE
    return xarray.Dataset(
        {"status": (("seed", "d", "norm"), status)},
        {"d": DIMENSIONS, "norm": ["frobenius"]},
        {"run": f"n={n} T={T}", "n": n, "T": T},
    )


def summarized(changes=(), seeds=24):
    """Summaries and the claim, with single problems changed: (run, seed, d, status) each."""
    runs = {one.attrs["run"]: one for one in (measured(n, T, seeds) for n, T in SIZES)}
    for run, seed, d, status in changes:
        runs[run]["status"].values[seed, d - 1] = status
    for one in runs.values():
        tally = [int((one["status"] == status).sum()) for status in Status]
        one.attrs |= {"attempted": one["status"].size, "kept": tally[0], "infeasible": tally[1], "unsolved": tally[2]}
    summaries, (claim,) = feasibility.summarize(runs, KEY)
    assert claim.id == "feasibility:theorem"
    return summaries, claim


@pytest.mark.parametrize(
    ("changes", "seeds", "verdict"),
    [
        ([], 24, Verdict.HOLDS),
        ([("n=4 T=5", 3, 4, Status.INFEASIBLE)], 24, Verdict.FAILS),
        ([("n=4 T=5", 3, 3, Status.INFEASIBLE)], 24, Verdict.HOLDS),
        ([("n=2 T=5", 3, 4, Status.INFEASIBLE)], 24, Verdict.FAILS),
        ([("n=2 T=5", 3, 4, Status.NOT_CONVERGED)], 24, Verdict.OPEN),
        ([("n=2 T=5", 3, 3, Status.NOT_CONVERGED)], 24, Verdict.HOLDS),
        ([], 19, Verdict.OPEN),
        ([("n=2 T=2", 0, 6, Status.INFEASIBLE)], 19, Verdict.FAILS),
    ],
)
def test_the_theorem_holds_only_if_every_problem_it_covers_is_certified_feasible(changes, seeds, verdict):
    assert summarized(changes, seeds)[1].verdict is verdict


def test_shares_are_counted_with_their_intervals():
    summaries, claim = summarized([("n=4 T=5", 0, 1, Status.NOT_CONVERGED)])
    summary = summaries["random tokens"]
    assert summary["feasible"].sel(run="n=2 T=5").values.tolist() == [0.25, 1, 1, 1, 1, 1]
    assert summary["feasible"].sel(run="n=4 T=5").values.tolist() == [5 / 24, 1, 1, 1, 1, 1]
    assert summary["undecided"].sel(run="n=4 T=5").values.tolist() == [1, 0, 0, 0, 0, 0]
    assert summary.attrs == {"attempted": 576, "kept": 521, "infeasible": 54, "unsolved": 1}
    assert claim.expected == {f"n={n} T={T}, share at d >= {max(T - 1, n)}": 1.0 for n, T in SIZES}
    assert claim.measured["n=4 T=5, share at d >= 4"] == 1
    assert claim.measured["n=4 T=5, smallest d from which all are feasible"] == 2
    low, high = claim.interval["n=4 T=5, share at d >= 4"]  # Of 3 dimensions and 24 seeds.
    assert 0.94 < low < 0.96 < high == 1
    assert claim.counts["n=2 T=2"] == {"attempted": 144, "kept": 144, "infeasible": 0, "unsolved": 0}


def test_the_figure_draws_the_shares_and_where_the_theorem_holds():
    summaries = summarized([("n=4 T=5", 0, 1, Status.NOT_CONVERGED)])[0]
    drawn = figure.draw(summaries)
    assert [panel.get_title() for panel in drawn.axes] == ["(a) $T = 2$ tokens", "(b) $T = 5$ tokens"]
    for panel, runs in zip(drawn.axes, (("n=2 T=2", "n=4 T=2"), ("n=2 T=5", "n=4 T=5")), strict=True):
        curves = [y for _, y in drawn_lines(panel, least=len(DIMENSIONS))]
        np.testing.assert_array_equal(curves, summaries["random tokens"]["feasible"].sel(run=list(runs)))
    bars = [x[0] for x, _ in drawn_lines(drawn.axes[1]) if len(x) == 2]
    assert bars == [4, 4]
    assert "random tokens: 521 of 576 problems kept (54 infeasible, 1 unsolved)" in drawn.get_supxlabel()
    assert "unsolved ones (1) count as not feasible" in drawn.get_supxlabel().replace("\n", " ")
