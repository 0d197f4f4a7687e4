"""Synthetic measurements of factors of few columns, and what is reached from a run's end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxattn import attention, metrics, svm
from jaxattn.experiments.local.factor_width import EXPERIMENT, summarize
from jaxattn.study.claims import Verdict
from tests import instances
from tests.experiments.synthetic import synthetic
from tests.recorded import ended

SEEDS = 40
VERDICTS = {"factor-width:reaches": "does not hold"}


def measured():
    """Below the rank, 4 or 5, descent reaches a stationary point that is not the best one; the end improves with d."""
    runs = {f"m={m}": run(m) for m in (1, 2, 4, 8, 10)}
    return runs | {f"m=d={d}": run(d, d=d, end=0.99 + 1e-4 * d) for d in (6, 12, 24, 48)}


def run(m, excess=0.3, d=10, end=0.997):
    """A run of width m; the bound raises the norm by this share where the rank is above m."""
    rank, spread = 4 + np.arange(SEEDS) % 2, 1e-4 * np.sin(np.arange(SEEDS))
    binds = rank > m
    correlation = np.stack([np.where(binds, value, end) + spread for value in (0.7, 0.8, 0.999)], axis=1)
    return synthetic(
        SEEDS,
        {"width": m, "d": d, "steps": 2000, "attempted": SEEDS + 1, "unsolved": 1},
        {"snapshot": [1000, 2000], "solution": np.array(["nuclear", "bounded", "nearest"], object)},
        rank=rank,
        excess=np.where(binds, excess, 1e-10),
        correlation=(("seed", "solution"), correlation),
        probability=np.repeat((0.9998 + spread)[:, None], 2, axis=1),
    )


def test_seeds_are_told_apart_by_the_rank_of_their_solution():
    summaries = summarize(measured(), jax.random.key(0))
    binds, reaches, _ = (claim.judge(summaries) for claim in EXPERIMENT.claims)
    for m, seeds, side in ((2, 40, "above"), (4, 20, "above"), (4, 20, "up to"), (10, 40, "up to")):
        label = f"m={m}, share where the constraint is active, {seeds} seeds of rank {side} m"
        assert binds.measured[label] == (side == "above")
    np.testing.assert_allclose(reaches.measured["m=4, correlation, nuclear solution"], (0.7 + 0.997) / 2, atol=1e-3)
    assert "farthest at m=1, where the mean correlation is 0.800" in reaches.note
    # An excess below the accuracy of the norms is none.
    within = summarize(measured() | {"m=1": run(1, excess=5e-9)}, jax.random.key(0))
    assert EXPERIMENT.claims[0].judge(within).stated[1].value.mean == SEEDS


def test_the_point_reached_from_the_end_of_descent_is_no_evidence():
    """A run is always near that point: only the best one found can tell."""
    runs = measured()
    for one in runs.values():
        one["correlation"].loc[{"solution": "bounded"}] = one["correlation"].sel(solution="nearest")
        one["correlation"].loc[{"solution": "nearest"}] = 0.5
    assert EXPERIMENT.claims[1].judge(summarize(runs, jax.random.key(0))).verdict is Verdict.HOLDS


@pytest.mark.slow
def test_a_run_along_a_stationary_point_is_held_against_that_one():
    problems = instances.problems(4)
    alpha = np.asarray(jax.random.randint(jax.random.key(2), (4, instances.n), 0, instances.T))
    constraints = jax.vmap(svm.token_constraints)(problems, alpha)
    nuclear, narrow = (svm.solve_batch(constraints, norm) for norm in ("nuclear", svm.nuclear_of_rank(1)))
    assert (nuclear.status == svm.Status.OPTIMAL).all()
    # Near the stationary point of rank 1, but not at it: perturbed factors, many times as long.
    U, s, Vt = np.linalg.svd(narrow.W)
    wobble = 0.01 * np.random.default_rng(0).normal(size=(2, 4, instances.d, 1))
    K, Q = 5 * np.sqrt(s[:, :1])[:, None] * (np.stack([U[:, :, :1], Vt[:, :1].swapaxes(1, 2)]) + wobble)
    record = ended(problems, K=K, Q=Q).assign_coords(snapshot=[2], step=[0, 1])
    for name, leaf in (("K", K), ("Q", Q)):
        record[f"{name}_snapshots"] = (("seed", "snapshot", f"of_{name}", "width"), leaf[:, None])
    found = EXPERIMENT.measure(record.assign(probability=(("seed", "step"), np.ones((4, 2)))))
    assert [found.attrs[name] for name in ("width", "d", "attempted", "kept")] == [1, instances.d, 4, 4]
    rank = np.asarray(jax.vmap(metrics.rank)(jnp.asarray(nuclear.W)))
    np.testing.assert_array_equal(found["rank"], rank)
    assert (rank > 1).any()
    np.testing.assert_allclose(found["excess"], narrow.primal / nuclear.primal - 1, atol=1e-6)
    ends = attention.Factored(jnp.asarray(K), jnp.asarray(Q)).W
    for name, W in (("nuclear", nuclear.W), ("bounded", narrow.W)):
        expected = jax.vmap(metrics.correlation)(ends, jnp.asarray(W))
        np.testing.assert_allclose(found["correlation"].sel(solution=name), expected, atol=1e-6)
    # Descent of the rank-1 problem from there leads back to it.
    np.testing.assert_allclose(found["correlation"][:, 2], found["correlation"][:, 1], atol=1e-5)


def test_a_run_of_a_free_W_is_refused():
    record = xarray.Dataset({"W": (("seed", "feature", "e"), np.zeros((1, 2, 2)))})
    with pytest.raises(TypeError, match="factor-width: expected runs of factors K and Q, found one of a free W"):
        EXPERIMENT.measure(record)
