"""Ranks in both conventions, the verdicts on datasets built by hand, and what the figure draws."""

import jax
import numpy as np
import pytest
import xarray

from jaxattn.experiments.max_margin.svm_rank import figure
from jaxattn.experiments.max_margin.svm_rank import measure as svm_rank
from jaxattn.study.claims import Verdict
from jaxattn.svm import Status
from tests.instances import drawn_lines

KEY = jax.random.key(0)
SEEDS, DIMENSIONS, WIDTH = 24, (1, 3, 10, 15, 20), 20
SIZES = ((5, 5), (10, 5), (15, 5), (5, 10))
NORMS = ["frobenius", "nuclear"]
OPEN, HOLDS, CORRECTED, FAILS = Verdict.OPEN, Verdict.HOLDS, Verdict.CORRECTED, Verdict.FAILS
ALL = [HOLDS, CORRECTED, FAILS]


def separated(n, T, nuclear, *, noise=1e-12, feasible=0.5, d=DIMENSIONS, seeds=SEEDS, solver="", frobenius=0):
    """A dataset whose Frobenius ranks are min(n, d), from d = 10 less `frobenius`, and whose nuclear ranks are given.

    Singular values are 2 and, beyond the rank, `noise`; at d < 10 only a share of the problems is feasible.
    """
    ranks = np.zeros((seeds, len(d), 2), int)
    for k, dimension in enumerate(d):
        wobble = np.arange(seeds) % 2
        ranks[:, k, 0] = min(n, dimension) - (frobenius if dimension >= 10 else 0)
        # Half of the seeds one more than the other half: a mean of nuclear + 1/2.
        ranks[:, k, 1] = np.minimum(nuclear + wobble, min(n, dimension))
    values = np.where(np.arange(WIDTH) < ranks[..., None], 2.0, noise)
    status = np.full(ranks.shape, Status.NOT_CONVERGED if solver else Status.OPTIMAL)
    if not solver:
        infeasible = (np.arange(seeds) >= feasible * seeds)[:, None] & (np.array(d) < 10)
        status[infeasible] = Status.INFEASIBLE
        values[infeasible] = ranks[infeasible] = 0
    optimal, lost = (status == Status.OPTIMAL).all(axis=2), (status == Status.INFEASIBLE).any(axis=2)
    counts = {"attempted": optimal.size, "kept": int(optimal.sum()), "infeasible": int(lost.sum())}
    axes = ("seed", "d", "norm")
    return xarray.Dataset(
        {"status": (axes, status), "rank": (axes, ranks), "singular_values": ((*axes, "direction"), values)},
        {"seed": np.arange(seeds), "d": list(d), "norm": np.array(NORMS, dtype=object)},
        {"run": f"n={n} T={T}" + (f" by {solver}" if solver else ""), "n": n, "T": T, "solver": solver}
        | counts
        | {"unsolved": int((~optimal & ~lost).sum())},
    )


def datasets(nuclear=4, **changed):
    runs = [separated(n, T, nuclear, **changed) for n, T in SIZES]
    runs.append(separated(10, 5, nuclear, noise=1e-6, d=(10,), seeds=6, solver="SCS"))
    return {one.attrs["run"]: one for one in runs}


def verdicts(found):
    claims = svm_rank.summarize(found, KEY)[1]
    assert [claim.id for claim in claims] == [f"svm-rank:{name}" for name in ("frobenius", "nuclear", "small-d")]
    return [claim.verdict for claim in claims]


def test_both_conventions_and_the_feasible_share_are_those_of_the_problems():
    summary = svm_rank.summarize(datasets(), KEY)[0]["certified"]
    one = summary.sel(run="n=15 T=5", norm="nuclear")
    assert one["feasible"].values.tolist() == [0.5, 0.5, 1, 1, 1]
    assert one["rank"].values.tolist() == [1, 3, 4.5, 4.5, 4.5]
    assert one["published"].values.tolist() == [1, 2, 4.5, 4.5, 4.5]
    assert (one["rank_low"] < 4.5).values[2:].all()
    assert summary["kept"].sel(run="n=15 T=5").values.tolist() == [12, 12, 24, 24, 24]
    assert summary.attrs == {"attempted": 480, "kept": 384, "infeasible": 96, "unsolved": 0}


def test_the_published_count_is_absolute_and_the_certified_one_is_relative():
    # Noise of 1e-6 beside singular values of 2: below 1e-6 relative, above 1e-7 absolute.
    summary = svm_rank.summarize(datasets(noise=1e-6), KEY)[0]["certified"]
    at = summary.sel(run="n=10 T=5", d=10, norm="nuclear")
    assert (float(at["rank"]), float(at["published"])) == (4.5, WIDTH)
    assert float(at["spread"]) == pytest.approx(WIDTH - 4.5)


def test_means_of_too_few_feasible_problems_are_not_estimated():
    summary = svm_rank.summarize(datasets(feasible=0.25), KEY)[0]["certified"]
    assert np.isnan(summary["rank"].sel(d=[1, 3])).all()
    assert np.isfinite(summary["published"]).all()


def test_an_unsolved_problem_is_in_neither_mean():
    found = datasets()
    one = found["n=5 T=5"]
    one["status"].values[:12, 2, 1] = Status.NOT_CONVERGED
    one["rank"].values[:12, 2, 1] = one["singular_values"].values[:12, 2, 1] = 99
    at = svm_rank.summarize(found, KEY)[0]["certified"].sel(run="n=5 T=5", d=10, norm="nuclear")
    assert (float(at["rank"]), float(at["published"]), int(at["kept"])) == (4.5, 4.5, 12)
    assert float(at["feasible"]) == 1  # The Frobenius solution proves that.


def test_ranks_as_measured_hold_with_their_correction():
    frobenius, nuclear, small = svm_rank.summarize(datasets(), KEY)[1]
    assert [frobenius.verdict, nuclear.verdict, small.verdict] == ALL
    assert "more strongly than published" in nuclear.note
    assert nuclear.expected == {"n=10 T=5 d=10": 9.1, "n=15 T=5 d=15": 13.9, "n=15 T=5 d=20": 14.9}
    assert nuclear.measured["n=15 T=5 d=20"] == 4.5
    # Of the six shared problems, at singular values of 1e-6 the published count is of all there are.
    assert nuclear.measured["n=10 T=5 d=10 by SCS, counted as published"] == 10
    assert small.measured["n=15 T=5 d=3, counted as published"] == 2
    assert small.measured["n=15 T=5 d=3, feasible problems"] == 3
    assert nuclear.counts["n=10 T=5 by SCS"] == {"attempted": 6, "kept": 0, "infeasible": 0, "unsolved": 6}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"nuclear": 20}, [HOLDS, FAILS, FAILS]),
        ({"frobenius": 2, "nuclear": 2}, [FAILS, CORRECTED, FAILS]),
        ({"frobenius": -1}, [FAILS, CORRECTED, FAILS]),
        ({"noise": 1e-6}, [HOLDS, OPEN, FAILS]),
        ({"feasible": 1.0}, [HOLDS, CORRECTED, HOLDS]),
        ({"seeds": 19}, [OPEN, OPEN, OPEN]),
        ({"d": (1, 3, 10, 15)}, [OPEN, OPEN, OPEN]),
    ],
)
def test_each_claim_can_fail(changed, expected):
    assert verdicts(datasets(**changed)) == expected


def test_nuclear_ranks_as_published_would_hold():
    seeds = 100
    found = datasets(seeds=seeds)
    for n, d, mean in ((10, 10, 9.1), (15, 15, 13.9), (15, 20, 14.9)):
        k = DIMENSIONS.index(d)
        ranks = np.full(seeds, int(mean)) + (np.arange(seeds) < round((mean % 1) * seeds))
        found[f"n={n} T=5"]["rank"].values[:, k, 1] = ranks
        found[f"n={n} T=5"]["singular_values"].values[:, k, 1] = 2.0 * (np.arange(WIDTH) < ranks[:, None])
    assert verdicts(found)[1] is HOLDS


def test_the_curves_are_of_the_problems_that_both_solved():
    found = datasets()
    found["n=10 T=5"]["status"].values[0, 2] = Status.NOT_CONVERGED
    found["n=10 T=5"]["singular_values"].values[0, 2] = 1.0
    curves = svm_rank.summarize(found, KEY)[0]["SCS"]
    certified, inexact = (curves.sel(solver=name)["rank"].values[0] for name in ("certified", "SCS"))
    tolerance = curves["tolerance"].values
    np.testing.assert_allclose(certified, 4.6)  # Seeds 1 to 5: ranks 5, 4, 5, 4, 5.
    np.testing.assert_allclose(inexact, np.where(tolerance < 5e-7, 10, 4.6))
    np.testing.assert_allclose(curves["published"].values[0], [4.6, 10])
    np.testing.assert_allclose(curves["threshold"], 5e-8)


def test_the_figure_draws_the_means_and_counts_what_is_left_out():
    summaries = svm_rank.summarize(datasets(), KEY)[0]
    drawn = figure.draw(summaries)
    panels = drawn.axes
    assert [panel.get_title()[:3] for panel in panels] == ["(a)", "(b)", "(c)", "(d)", "(e)", "(f)"]
    certified = summaries["certified"]
    for panel, name, sizes in ((0, "published", SIZES[:3]), (3, "rank", SIZES[:3]), (4, "rank", (SIZES[0], SIZES[3]))):
        curves = drawn_lines(panels[panel], least=len(DIMENSIONS))
        expected = [
            np.array([certified["d"], certified[name].sel(run=f"n={n} T={T}", norm=norm)])
            for n, T in sizes
            for norm in NORMS
        ]
        np.testing.assert_array_equal(curves, expected)
    np.testing.assert_array_equal([y for _, y in drawn_lines(panels[2])], certified["feasible"].values)
    np.testing.assert_array_equal([y for _, y in drawn_lines(panels[5])[:2]], summaries["SCS"]["rank"].values[0])
    text = drawn.get_supxlabel()
    assert "certified: 384 of 480 problems kept (96 infeasible, 0 unsolved)" in text
    assert "SCS: 0 of 6 problems kept (0 infeasible, 6 unsolved)" in text
