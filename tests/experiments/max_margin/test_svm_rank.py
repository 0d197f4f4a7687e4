"""Synthetic ranks of certified and inexact solutions, in both conventions."""

import jax
import numpy as np
import xarray

from jaxattn.experiments.max_margin.svm_rank import summarize, view
from jaxattn.svm import Status

DIMENSIONS, WIDTH, SEEDS = (1, 3, 5, 10, 15, 20), 20, 100
VERDICTS = {"svm-rank:frobenius": "holds with a correction", "svm-rank:numbers": "does not hold"}


def measured():
    """Frobenius ranks are n where d > n, but for one; nuclear ranks are 3 or 4; at d < 10 half is feasible."""
    sizes = ((5, 5), (10, 5), (15, 5), (5, 10), (5, 15))
    certified = {f"n={n} T={T}": run(n, T) for n, T in sizes}
    return certified | {f"n={n} T=5 by SCS": run(n, 5, (n,), 6, "SCS") for n in (10, 15)}


def run(n, T, dimensions=DIMENSIONS, seeds=SEEDS, solver=""):
    """Problems of one size; an inexact solver leaves singular values of 1e-6, and all unsolved."""
    seed, d = np.arange(seeds), np.array(dimensions)
    ranks = np.stack(
        [np.tile(np.minimum(n, d), (seeds, 1)), np.minimum(3 + seed[:, None] % 2, np.minimum(n, d))], axis=2
    )
    if n == T == 5:
        # Without a support vector for some input.
        ranks[: seeds // 4, d == 5, 0] = 4
        ranks[:1, d == 20, 0] = 4
    status = np.full(ranks.shape, Status.NOT_CONVERGED if solver else Status.OPTIMAL)
    values = np.where(np.arange(WIDTH) < ranks[..., None], 2.0, 1e-6 if solver else 1e-12)
    if not solver:
        infeasible = (seed[:, None] >= seeds / 2) & (d < 10)
        status[infeasible] = Status.INFEASIBLE
        values[infeasible] = ranks[infeasible] = 0
    kept, lost = (status == Status.OPTIMAL).all(axis=2), (status == Status.INFEASIBLE).any(axis=2)
    axes = ("seed", "d", "norm")
    return xarray.Dataset(
        {"status": (axes, status), "rank": (axes, ranks), "singular_values": ((*axes, "direction"), values)},
        {"seed": seed, "d": d, "norm": np.array(["frobenius", "nuclear"], object)},
        {"n": n, "T": T, "solver": solver, "attempted": kept.size, "kept": int(kept.sum())}
        | {"infeasible": int(lost.sum()), "unsolved": int((~kept & ~lost).sum())},
    )


def summarized(runs):
    return summarize(runs, jax.random.key(0))


def test_both_conventions_and_the_feasible_share_are_those_of_the_problems():
    summary = summarized({"n=15 T=5": run(15, 5)})["n=15 T=5"].sel(norm="frobenius")
    np.testing.assert_allclose(summary["feasible"], [0.5, 0.5, 0.5, 1, 1, 1])
    np.testing.assert_allclose(summary["rank"], [1, 3, 5, 10, 15, 15])
    np.testing.assert_allclose(summary["published"], [1, 2, 3, 10, 15, 15])
    np.testing.assert_allclose(summary["difference"].isel(d=-1), -11.5)


def test_means_of_too_few_feasible_problems_are_not_estimated():
    summary = summarized({"n=15 T=5": run(15, 5, seeds=14)})["n=15 T=5"]
    assert np.isnan(summary["rank"].sel(d=3)).all()
    assert np.isfinite(summary["published"]).all()


def test_the_curves_are_of_the_problems_that_both_solved():
    runs = {name: one for name, one in measured().items() if name.startswith("n=10 T=5")}
    curves = summarized(runs)["n=10 T=5 by SCS"]
    assert curves["published"].values.tolist() == [3.5, 10.0]
    # At the tolerances 1e-9 and 1e-3.
    inexact = curves["rank"].sel(solver="inexact")
    assert inexact[[4, 28]].values.tolist() == [10.0, 3.5]
    del runs["n=10 T=5"]
    assert "n=10 T=5 by SCS" not in summarized(runs)


def test_the_view_has_the_singular_values_of_both_solvers():
    settings = view(measured())["settings"]
    assert [setting["name"] for setting in settings] == ["n = 10, T = 5, d = 10", "n = 15, T = 5, d = 15"]
    for setting in settings:
        assert np.shape(setting["certified"]) == np.shape(setting["inexact"])
        assert setting["certified"][0][0] == 0.0
        assert np.max(setting["inexact"]) <= 0
