"""Synthetic measurements of feasibility, and what they decide."""

import jax
import numpy as np
import pytest
import xarray

from jaxattn.experiments.max_margin.feasibility import EXPERIMENT, estimate
from jaxattn.svm import Status

DIMENSIONS, SEEDS = np.arange(1, 7), 24
VERDICTS = {}


def measured():
    """All problems are feasible from half the theorem's dimension, and a quarter of them below it."""
    return {f"n={n} T={T}": run(n, T) for n, T in ((2, 2), (2, 5), (4, 2), (4, 5))}


def run(n, T, changed=None):
    """Problems of one size; `changed` is the status of the last one at d = 4."""
    status = np.full((SEEDS, DIMENSIONS.size, 1), Status.OPTIMAL)
    status[SEEDS // 4 :, max(T - 1, n) > 2 * DIMENSIONS] = Status.INFEASIBLE
    if changed is not None:
        status[-1, 3] = changed
    # The zero matrix, which stands in for a missing solution, violates every constraint by 1.
    violation = np.where(status == Status.OPTIMAL, 1e-16, 1.0)
    kept, infeasible = (int((status == each).sum()) for each in (Status.OPTIMAL, Status.INFEASIBLE))
    axes = ("seed", "d", "norm")
    return xarray.Dataset(
        {"status": (axes, status), "violation": (axes, violation)},
        {"d": DIMENSIONS, "norm": np.array(["frobenius"], object)},
        {"n": n, "T": T, "attempted": status.size, "kept": kept, "infeasible": infeasible}
        | {"unsolved": status.size - kept - infeasible},
    )


def judged(runs):
    return EXPERIMENT.claims[0].judge(EXPERIMENT.estimates(runs, jax.random.key(0)))


@pytest.mark.parametrize(
    ("status", "verdict", "most"),
    [(Status.INFEASIBLE, "does not hold", 335), (Status.NOT_CONVERGED, "not decided", 336)],
)
def test_one_problem_refutes_the_theorem_or_leaves_it_open(status, verdict, most):
    found = judged(measured() | {"n=4 T=5": run(4, 5, status)})
    assert str(found.verdict) == verdict
    # Of 24 in each of the dimensions 2 to 6, and in three more sizes 4 to 6.
    assert found.stated[0].value[1:] == pytest.approx((335 / 336, most / 336))


def test_shares_and_dimensions_are_counted():
    summary = estimate(measured()["n=4 T=5"], jax.random.key(0))
    np.testing.assert_allclose(summary["feasible"], [0.25, 1, 1, 1, 1, 1])
    assert (float(summary["promised"]), float(summary["always"]), summary.attrs["enough"]) == (1.0, 2.0, 4)
    low = judged({"n=4 T=5": run(4, 5).isel(d=slice(3))})
    assert low.note.startswith("No problem was drawn at d >= max(T - 1, n)")
