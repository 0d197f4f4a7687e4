"""The second stage: every number is that of a direct call, and every seed that is left out is counted."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxattn import attention, data, initial, metrics, svm, tokens
from jaxattn.study.measuring.comparison import NORMS, compare
from jaxattn.study.settings.schedule import Evenly
from jaxattn.svm import ActiveSet, Status
from tests.instances import T, assert_close, d, gives_up, n
from tests.recorded import problem_of, recorded

SEEDS = 5
LAWS = {"W": initial.free, "KQ": initial.factored}


@pytest.fixture(scope="module", params=["W", pytest.param("KQ", marks=pytest.mark.slow)])
def record(request, tmp_path_factory):
    law, path = functools.partial(data.sphere, n=n, T=T, d=d), tmp_path_factory.mktemp("runs")
    return recorded(path, law, LAWS[request.param], seeds=SEEDS, steps=12, snapshots=Evenly(5))


@pytest.fixture(scope="module")
def compared(record):
    return compare(record)


def of_seed(record: xarray.Dataset, seed: int, suffix: str = "") -> attention.Weights:
    names = ("W",) if "W" in record else ("K", "Q")
    leaves = [jnp.asarray(record[name + suffix].values[seed]) for name in names]
    return leaves[0] if len(leaves) == 1 else attention.Factored(*leaves)


def diverged(record: xarray.Dataset, seed: int) -> xarray.Dataset:
    """The record with one entry of the seed's last weights, of Q if there are two, made NaN."""
    changed = record.copy(deep=True)
    changed["W" if "W" in record else "Q"].values[seed, 1, 2] = np.nan
    return changed


def infeasible(record: xarray.Dataset, seed: int) -> xarray.Dataset:
    """The record with a copy of the token that input 1 of the seed selects in the place of another."""
    changed = record.copy(deep=True)
    alpha = int(tokens.selected(of_seed(record, seed), problem_of(record, seed))[1])
    changed["X"].values[seed, 1, (alpha + 1) % T] = changed["X"].values[seed, 1, alpha]
    return changed


def gives_up_on_nuclear(constraints: svm.Constraints, norm: svm.Norm) -> svm.Candidate:
    return (ActiveSet() if norm is svm.frobenius else gives_up)(constraints, norm)


def assert_counts(found: xarray.Dataset, **expected: int) -> None:
    reasons = {reason: found.attrs[reason] for reason in ("kept", "diverged", "infeasible", "unsolved")}
    assert reasons == dict.fromkeys(reasons, 0) | expected
    assert found.attrs["attempted"] == SEEDS == sum(reasons.values())
    assert found.sizes["seed"] == found.attrs["kept"]
    assert found["attempt"].values.tolist() == list(range(SEEDS))


def test_every_number_is_that_of_a_direct_call_for_the_seed_alone(record, compared):
    assert_counts(compared, kept=SEEDS)
    assert compared.attrs["run"] == ("W" if "W" in record else "KQ")
    assert compared["norm"].values.tolist() == ["frobenius", "nuclear"]
    assert compared["snapshot"].values.tolist() == [5, 10]
    for seed in range(SEEDS):
        one, here = problem_of(record, seed), compared.sel(seed=seed)
        alpha = tokens.selected(of_seed(record, seed), one)
        np.testing.assert_array_equal(here["selected"], alpha)
        assert_close((here["X"].values, here["probability"].values), (one.X, record["probability"].values[seed]))
        snapshots = [np.asarray(W) for W in attention.matrix(of_seed(record, seed, "_snapshots"))]
        assert_close(here["path"].values, np.einsum("kde,ie->kid", snapshots, one.Z))
        for norm in NORMS:
            solution, under = svm.solve(svm.token_constraints(one, alpha), norm), here.sel(norm=norm.name)
            assert_close(under["W_svm"].values, solution.W, rtol=1e-6)
            assert_close(under["ray"].values, np.einsum("de,ie->id", under["W_svm"], one.Z))
            expected = [metrics.correlation(jnp.asarray(W), jnp.asarray(under["W_svm"].values)) for W in snapshots]
            assert_close(under["correlation"].values, np.array(expected))
            rows = svm.token_constraints(one, alpha)
            ratios = [metrics.margin_ratio(jnp.asarray(W), rows, norm, solution) for W in snapshots]
            assert_close(under["margin_ratio"].values, np.array(ratios), rtol=1e-6)
            assert under["rank"] == metrics.rank(solution.W)
            evidence = compared.sel(attempt=seed, norm=norm.name)
            assert evidence["status"] == solution.status == Status.OPTIMAL
            assert evidence["unique"] == solution.unique == svm.Unique.YES
            np.testing.assert_allclose([evidence["primal"], evidence["dual"]], solution.primal, rtol=1e-7)


@pytest.mark.parametrize(("spoilt", "reason"), [(diverged, "diverged"), (infeasible, "infeasible")])
def test_a_seed_that_is_left_out_is_counted_and_changes_no_other(record, compared, spoilt, reason):
    found = compare(spoilt(record, 1))
    assert_counts(found, kept=SEEDS - 1, **{reason: 1})
    others = [0, 2, 3, 4]
    assert found["seed"].values.tolist() == others
    assert (found["status"].values[others] == Status.OPTIMAL).all()
    expected = compared.sel(seed=others)
    for name in ("W_svm", "ray", "path", "selected", "correlation", "margin_ratio", "rank", "probability", "X"):
        assert_close(found[name].values, expected[name].values)
    if reason == "infeasible":
        assert (found["status"].values[1] == Status.INFEASIBLE).all()


def test_a_solver_that_gives_up_leaves_every_seed_unsolved_and_the_seed_axis_empty(record):
    found = compare(record, solver=gives_up)
    assert_counts(found, unsolved=SEEDS)
    assert (found["status"] == Status.NOT_CONVERGED).all()
    assert found["correlation"].shape == found["margin_ratio"].shape == (0, 2, 2)
    assert found["rank"].shape == (0, 2)
    assert found["path"].shape == (0, 2, n, d)
    assert not any(np.isnan(found[name]).any() for name in ("primal", "dual", "gap", "violation"))


def test_a_seed_is_counted_under_one_reason_only(record):
    spoilt = infeasible(diverged(record, 0), 2)
    assert_counts(compare(spoilt, solver=gives_up_on_nuclear), diverged=1, infeasible=1, unsolved=3)
    assert_counts(compare(spoilt, norms=[svm.frobenius]), diverged=1, infeasible=1, kept=3)
    assert_counts(compare(diverged(infeasible(record, 2), 2), norms=[svm.frobenius]), diverged=1, kept=4)
