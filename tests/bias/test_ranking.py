"""Rankings of planted runs: each norm's optimum, ties, drifts, runs that decide nothing, and bad input."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, bias, data, descent, heads, plots, svm, tokens
from jaxattn.bias.checkpoints import as_run
from tests import instances

SEEDS = 8
STEPS = np.array([100, 300, 1000])
NORMS = ("frobenius", "nuclear", "max")
OTHERS = ("frobenius", "nuclear", "schatten_1.5", "2,inf", "2,1 of columns", "gamma2", "sign")


@cache
def problems():
    return instances.problems(SEEDS)


@cache
def optima(norm) -> Any:
    return svm.solve_batch(instances.constraints(SEEDS), norm).W


def run_along(W: Any) -> Any:
    """A run whose snapshots are these matrices, (seeds, snapshots, d, d)."""
    return as_run(W, STEPS[: np.shape(W)[1]])


def growing(W) -> Any:
    """Snapshots along a direction."""
    return np.array([10.0, 30.0, 100.0])[None, :, None, None] * W[:, None]


@cache
def along(norm: str) -> Any:
    """A run along the optima of a norm. No neighbours of "2,inf" are solved, as it is of no family."""
    return run_along(growing(optima(norm)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("norm", "norms"),
    [*((norm, NORMS) for norm in NORMS), *((norm, OTHERS) for norm in ("schatten_1.5", "2,inf", "gamma2", "sign"))],
)
def test_the_optimum_of_a_norm_is_that_norms(norm, norms):
    ranking = bias.rank(along(norm), problems(), norms)
    assert ranking.verdict == bias.Verdict((norm,), decided=True)
    assert ranking.margin_ratio.shape == ranking.cosine.shape == (SEEDS, len(norms), 3)
    np.testing.assert_allclose(ranking.margin_ratio[:, norms.index(norm)], 1, atol=1e-6)
    assert ranking.margin_ratio.max() <= 1 + 1e-6
    assert ranking.saturated.all()
    assert ranking.counts == {"attempted": SEEDS, "kept": SEEDS, "diverged": 0, "infeasible": 0, "unsolved": 0}
    np.testing.assert_array_equal(ranking.steps, STEPS)
    assert ranking.trend is not None
    np.testing.assert_array_equal(ranking.trend.mean[norms.index(norm)].round(9), 0)


@pytest.mark.slow
def test_where_several_norms_have_one_optimum_they_are_named_together():
    """With n = 1 and T = 2 the only row is of rank one: so is the optimum of every norm of singular values."""
    keys = jax.random.split(jax.random.key(0), SEEDS)
    tied = jax.vmap(lambda key: data.sphere(key, n=1, T=2, d=3))(keys)
    rows = jax.vmap(lambda one: svm.token_constraints(one, tokens.optimal(one)))(tied)
    ranking = bias.rank(run_along(growing(svm.solve_batch(rows).W)), tied, ("frobenius", "nuclear", "max"))
    assert set(ranking.verdict.norms) == {"frobenius", "nuclear"}


def test_a_drift_away_is_not_decided():
    there, away = optima("frobenius"), optima("nuclear")
    W = np.stack([100 * there, 300 * (0.95 * there + 0.05 * away), 1000 * (0.7 * there + 0.3 * away)], axis=1)
    ranking = bias.rank(run_along(W), problems(), ["frobenius"])
    # The Frobenius norm's interval still lies above the threshold.
    assert ranking.ratio.low[0, -1] > bias.CLOSE
    assert not ranking.verdict.decided
    assert ranking.verdict.reason.startswith("of 8 seeds, ")


def test_a_convex_head_selects_no_single_token_where_the_label_is_minus_one():
    layers = jax.vmap(lambda key: data.mlp(key, n=3, T=4, d=5))(jax.random.split(jax.random.key(2), SEEDS))
    given = {"optimizer": descent.normalized_gd(0.1, 0.0, 0.0), "steps": 1000, "snapshots": (100, 300, 1000)}
    found = {}
    for label in (1.0, -1.0):
        alike = Problem(**layers.arrays | {"Y": jnp.full_like(layers.Y, label)})
        run = descent.train_batch(jnp.zeros((SEEDS, 5, 5)), alike, head=heads.mlp, **given)
        found[label] = bias.rank(run, alike, ["2,inf"])
    assert found[1.0].saturated.mean() > 0.8
    assert not found[-1.0].saturated.any()
    assert found[-1.0].verdict.reason.startswith("not saturated")


def test_solutions_of_another_norm_are_none_of_these_and_a_gradient_that_shrinks_fast_is_said():
    """The smallest margin of a solution is 1: scaled by 30 and 100 at steps 300 and 1000 it grows by .1 a step."""
    ranking = bias.rank(along("2,inf"), problems(), ["2,inf"])
    np.testing.assert_allclose(ranking.fall, 0.1, rtol=1e-6)
    shrinks = f"shrinks by a factor of {np.exp(-0.1):.4g} a step"
    assert shrinks not in ranking.table()
    elsewhere = bias.rank(along("2,inf"), problems(), NORMS[1:])
    assert str(elsewhere.verdict) == "none of these"
    assert shrinks in elsewhere.table()


def test_a_run_that_stalled_is_not_decided():
    """The published rule on (K, Q) ends where penalty and gradient balance: flat, and below every threshold."""
    late = along("2,inf")._replace(stalled=np.full(SEEDS, STEPS[-1]))
    assert bias.rank(late, problems(), ["2,inf"]).verdict.norms == ("2,inf",)
    early = late._replace(stalled=np.array([*[-1] * (SEEDS - 3), 0, 100, 999]))
    found = bias.rank(early, problems(), ["2,inf"]).verdict
    assert found.reason == f"stalled: rounding, floor or penalty outweigh the gradient, in 3 of {SEEDS} seeds"


def test_a_trained_run_is_ranked_and_said():
    rule = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
    start = jnp.zeros((SEEDS, 5, 5))
    run = descent.train_batch(start, problems(), optimizer=rule, steps=2000, snapshots=(200, 600, 2000))
    np.testing.assert_array_equal(run.snapshot_steps, np.tile([200, 600, 2000], (SEEDS, 1)))
    ranking = bias.rank(run, problems(), ("frobenius", "nuclear"))
    assert ranking.verdict.norms == ("frobenius",)
    table = ranking.table().splitlines()
    assert table[0].split()[0] == "norm"
    assert [line.split()[0] for line in table[1:3]] == ["frobenius", "nuclear"]
    assert table[-1] == f"verdict: {ranking.verdict}"
    figure = plots.alignment(ranking)
    # The closest norm first.
    for line, mean in zip(instances.drawn_lines(figure.axes[0], 3), ranking.ratio.mean, strict=True):
        np.testing.assert_array_equal(line[1], mean)


def test_a_snapshot_of_the_start_is_drawn_at_0():
    run = along("2,inf")
    steps = run.snapshot_steps * [0, 1, 1]
    figure = bias.rank(run._replace(snapshot_steps=steps), problems(), ["2,inf"]).plot()
    axes = figure.axes[0]
    np.testing.assert_array_equal(axes.lines[1].get_xdata(), [0, 300, 1000])
    places = axes.transData.transform([(x, 0.9) for x in (0, 300, 1000)])[:, 0]
    assert (np.diff(places) > 10).all()


def test_what_is_left_out_is_counted():
    W = growing(optima("2,inf"))
    W[3] = np.nan
    Z = np.asarray(problems().Z).copy()
    # Equal queries of opposite tokens: nothing separates these.
    X = np.asarray(problems().X).copy()
    Z[5, 1], X[5, 1] = Z[5, 0], -X[5, 0]
    changed = type(problems())(**problems().arrays | {"X": X, "Z": Z})
    ranking = bias.rank(run_along(W), changed, ["2,inf"])
    assert ranking.counts["diverged"] == 1
    assert ranking.counts["kept"] == len(ranking.seeds) == SEEDS - 1 - ranking.counts["infeasible"]
    assert 3 not in ranking.seeds
    assert f"{ranking.counts['kept']} of {SEEDS} seeds kept (1 diverged" in ranking.table()


@pytest.mark.parametrize(
    ("norms", "message"),
    [
        ((), "norms: expected at least one, found an empty list"),
        ("frobenius", "norms: expected a list of norms, found 'frobenius'"),
        (("frobenius", svm.frobenius), "norms: expected different ones, found one twice"),
        (("frobenus",), r"norm: expected one of \[.*'frobenius', .*'sign', 'spectral'\]"),
        ((svm.nuclear_of_rank(2),), r"norms: expected .* without a bound on the rank.*\['nuclear of rank 2'\]"),
    ],
)
def test_norms_that_cannot_be_compared_are_named(norms, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        bias.rank(along("frobenius"), problems(), norms)


WHOLE = r"whole numbers of shape \(8, snapshots\), found"
ONE = "run: expected one of a batch of 8 seeds"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda run: {"snapshots": run.snapshots[:, :0], "snapshot_steps": run.snapshot_steps[:, :0]},
         "run: expected snapshots, found none"),
        (lambda run: {"snapshot_steps": run.snapshot_steps[0]}, rf"run.snapshot_steps: expected {WHOLE} shape \(3,\)"),
        (lambda run: {"snapshot_steps": run.snapshot_steps[:4]}, rf".*expected {WHOLE} shape \(4, 3\) of int64$"),
        (lambda run: {"snapshot_steps": run.snapshot_steps + 0.5}, f".*expected {WHOLE}"),
        (lambda run: {"snapshot_steps": None}, "run.snapshot_steps: .*found None$"),
        (lambda run: {"snapshot_steps": run.snapshot_steps[:, ::-1]},
         r"run.snapshot_steps: expected increasing steps from 0 on, the same for each seed, found \[\[1000, 300"),
        (lambda run: {"snapshot_steps": run.snapshot_steps + np.arange(8)[:, None]}, ".*the same for each seed, found"),
        (lambda run: {"stalled": None},
         r"run.stalled: expected whole numbers of shape \(8,\), -1 for a seed that never stalled, found None$"),
        (lambda run: {"stalled": np.full((8, 1), -1)}, r"run.stalled: .*found shape \(8, 1\)"),
        (lambda run: {"snapshots": run.snapshots[:, :2]},
         r"run.snapshots: expected .* of shapes \[\(8, 3, 5, 5\)\], found \[\(8, 2, 5, 5\)\]"),
        (lambda run: {"snapshots": None}, r"run.snapshots: expected .*found PyTreeDef\(None\)"),
        (lambda run: {"weights": run.weights[:4]}, ONE),
        (lambda run: {"weights": run.weights[0]}, rf"{ONE}.*found weights of \[\(5, 5\)\]"),
        (lambda run: {"weights": None}, rf"{ONE}.*found .*\[\]"),
        (lambda run: {"weights": run.weights.astype(np.longdouble)},
         "run: expected weights in the precision of the problems, float64, found float128"),
    ],
)  # fmt: skip
def test_a_run_that_does_not_fit_is_named(change, message):
    run = along("frobenius")
    with pytest.raises(ValueError, match=f"^{message}"):
        bias.rank(run._replace(**change(run)), problems(), ["frobenius"])


def test_a_snapshot_of_zeros_is_named_before_anything_is_solved(monkeypatch):
    run = along("frobenius")
    monkeypatch.setattr(svm, "solve_batch", None)
    with pytest.raises(ValueError, match=r"^run: expected weights with a direction .*, found zeros at step 100"):
        bias.rank(run._replace(snapshots=run.snapshots * np.array([0, 1, 1])[:, None, None]), problems(), NORMS)


def test_a_lone_problem_is_named():
    with pytest.raises(ValueError, match=r"^problems: expected a batch with one leading axis"):
        bias.rank(along("frobenius"), instances.problem(), NORMS)


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_weights_of_a_lower_precision_are_those_of_the_problems(dtype):
    run = along("2,inf")
    low = run._replace(weights=run.weights.astype(dtype), snapshots=run.snapshots.astype(dtype))
    same = low._replace(weights=low.weights.astype(float), snapshots=low.snapshots.astype(float))
    found, expected = (bias.rank(one, problems(), ["2,inf"]) for one in (low, same))
    np.testing.assert_array_equal(found.margin_ratio, expected.margin_ratio)
    assert found.margin_ratio.dtype == np.float64


def test_one_seed_has_no_interval():
    run = jax.tree.map(lambda leaf: leaf[:1], along("frobenius"))
    ranking = bias.rank(run, jax.tree.map(lambda leaf: leaf[:1], problems()), ["frobenius"])
    assert ranking.trend is not None
    for estimate in (ranking.ratio, ranking.trend):
        np.testing.assert_array_equal(estimate.low, np.full_like(estimate.mean, -np.inf))
        np.testing.assert_array_equal(estimate.high, np.full_like(estimate.mean, np.inf))
    assert ranking.verdict.reason == "expected at least 8 seeds, found 1"
    assert ranking.table().splitlines()[1].split()[:4] == ["frobenius", "1.0000", "no", "interval"]
    figure = ranking.plot()
    assert np.isfinite(figure.axes[0].get_ylim()).all()
    assert figure.get_supxlabel() == "1 of 1 seeds, without an interval"


def test_why_no_seed_is_left_is_said(monkeypatch):
    solve = svm.solve_batch

    def solve_but_nuclear(constraints, norm):
        found = solve(constraints, norm)
        status = np.where(norm == svm.nuclear, svm.Status.NOT_CONVERGED, found.status)
        return found._replace(status=status)

    monkeypatch.setattr(svm, "solve_batch", solve_but_nuclear)
    with pytest.raises(ValueError, match=r"of which 0 diverged and 0 .*; without a certified optimum: 8 nuclear$"):
        bias.rank(along("frobenius"), problems(), ["frobenius", "nuclear"])
