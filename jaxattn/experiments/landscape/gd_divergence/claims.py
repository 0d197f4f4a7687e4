"""Plain gradient descent where the scores of non-optimal tokens are equal: growth and direction (2308.16898)."""

from __future__ import annotations

import json
from collections.abc import Mapping

import jax
import numpy as np
import xarray
from jaxtyping import Array, Float, PRNGKeyArray

from jaxattn import losses, metrics, svm, tokens
from jaxattn.descent import smoothness
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.study.claims import Claim, Verdict, concluded, counts_of, read, too_few
from jaxattn.study.measuring.optimum import optimum
from jaxattn.study.statistics import bootstrap, proportion, variables

_SOURCE = "arXiv 2308.16898, theorem on the global convergence of gradient descent"
# The logarithm is read from the last decade of a run that has taken at least so many steps.
_LONG = 30_000
# Products with the second derivative, until the longest is found.
_TURNS = 30


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run with the Frobenius solutions of its optimal tokens, and measure how the risk bends along it.

    Args:
        record: of a `Training` of W by plain descent, as `recording.run` writes it.
        solver: of the max-margin problems.

    Returns:
        For every kept seed `off`, 1 - correlation, and `growth`, `||W||_F / ||W_mm||_F`, at the snapshots; `bound`,
        the smoothness constant L; `bend`, the largest second derivative found at each snapshot; whether the `optimal`
        tokens are selected in the end; the recorded risk. The attribute `run` names the step size.
    """
    found = optimum(record, solver)
    W, final = found.of(record["W_snapshots"]), found.of(record["W"])
    step_size = float(json.loads(record.attrs["config"])["optimizer"]["step_size"])
    off, growth, bend, bound, selected = batch.over_seeds(_along, W, final, found.W, found.problems)
    along = ("seed", "snapshot")
    return xarray.Dataset(
        {
            "off": (along, off),
            "growth": (along, growth),
            "bend": (along, bend),
            "bound": (("seed",), bound),
            "optimal": (("seed",), (selected == found.alpha).all(axis=1)),
            "loss": (("seed", "step"), found.of(record["loss"])),
        },
        {"seed": found.of(record["seed"]), "snapshot": record["snapshot"].values, "step": record["step"].values},
        {**found.counts, "run": f"step {step_size:g}", "step_size": step_size},
    )


def _along(
    W: Float[Array, "snapshot d d"], final: Float[Array, "d d"], W_mm: Float[Array, "d d"], problem: Problem
) -> tuple[Array, ...]:
    """Return what `measure` does of one seed: off, growth, bend, bound, and the tokens selected in the end."""
    off = 1 - jax.vmap(metrics.correlation, in_axes=(0, None))(W, W_mm)
    growth = jax.vmap(metrics.norm)(W) / metrics.norm(W_mm)
    return off, growth, *_smoothness(W, problem), tokens.selected(final, problem)


def _smoothness(
    W: Float[Array, "snapshot d d"], problem: Problem
) -> tuple[Float[Array, " snapshot"], Float[Array, ""]]:
    """Return the largest second derivative of the risk in any direction at each W, from below, and the bound of all."""
    slope = jax.grad(losses.risk)

    def of_one(W: Array) -> Array:
        def product(U: Array) -> Array:
            return jax.jvp(lambda V: slope(V, problem), (W,), (U / metrics.norm(U),))[1]

        return metrics.norm(jax.lax.fori_loop(0, _TURNS, lambda _, U: product(U), slope(W, problem)))

    return jax.vmap(of_one)(W), smoothness.bound(problem)


def summarize(
    datasets: Mapping[str, xarray.Dataset], key: PRNGKeyArray
) -> tuple[dict[str, xarray.Dataset], list[Claim]]:
    """Estimate growth and direction along the time, and judge the theorem.

    Args:
        datasets: of `measure`, of runs with different steps.
        key: of the bootstrap.

    Returns:
        For each run a dataset over the snapshots; the claims.

    Raises:
        ValueError: a run of which no seed was kept.
    """
    if not all(one.sizes["seed"] for one in datasets.values()):
        raise ValueError(f"gd-divergence: expected a kept seed in each run, found counts {counts_of(datasets)}")
    keys = jax.random.split(key, len(datasets))
    summaries = {run: _estimated(one, k) for (run, one), k in zip(datasets.items(), keys, strict=True)}
    return summaries, [_norm_claim(summaries), _direction_claim(summaries), _step_claim(summaries)]


def _estimated(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    steps, growth, off = (one[name].values for name in ("snapshot", "growth", "off"))
    keys = jax.random.split(key, 4)
    log_off = bootstrap(np.log10(off), keys[1])
    geometric = log_off._replace(**{part: 10 ** getattr(log_off, part) for part in ("mean", "low", "high")})
    late = steps * 10 >= steps[-1]
    estimates = {
        "growth": (("snapshot",), bootstrap(growth, keys[0])),
        "off": (("snapshot",), geometric),
        # Of every seed's own line through the last decade.
        "slope": ((), bootstrap(_slope(np.log(steps[late]), growth[:, late]), keys[2])),
        "exponent": ((), bootstrap(_slope(np.log(growth[:, late]), np.log(off[:, late])), keys[3])),
        "optimal": ((), proportion(one["optimal"].values)),
    }
    arrays = variables(estimates)
    bound = one["bound"].values
    arrays |= {
        "time": (("snapshot",), one.attrs["step_size"] * steps),
        "within": ((), one.attrs["step_size"] * bound.max()),
        "tightest": ((), (one["bend"].values.max(axis=1) / bound).max()),
        "sharpest": ((), one["bend"].values.max()),
        "rises": ((), int((np.diff(one["loss"].values, axis=1) > 1e-12).sum())),
    }
    return xarray.Dataset(arrays, {"snapshot": steps}, one.attrs)


def _slope(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the slope of the least squares line of every row; 0 where x stands still."""
    x = x - x.mean(axis=-1, keepdims=True)
    square = np.sum(x * x, axis=-1)
    moves = square > 1e-20
    return np.where(moves, np.sum(x * y, axis=-1) / np.where(moves, square, 1.0), 0.0)


def _norm_claim(summaries: Mapping[str, xarray.Dataset]) -> Claim:
    furthest = max(summaries.values(), key=lambda one: one.attrs["step_size"])
    holds = float(furthest["slope_low"]) > 0.9 and float(furthest["slope_high"]) < 1.1
    return _claim(
        "norm",
        "The norm of W grows without end, like the logarithm of the number of steps.",
        {f"growth of ||W|| / ||W_mm|| by log k, {run}": 1.0 for run in summaries},
        {f"growth of ||W|| / ||W_mm|| by log k, {run}": read(one, "slope") for run, one in summaries.items()},
        summaries,
        Verdict.HOLDS if holds else Verdict.FAILS,
        "Slopes over the last decade of steps. Where the gradient falls like exp(-||W|| / ||W_mm||), ||W|| grows like "
        "||W_mm|| log k; holds if the slope of the run of largest step, the furthest, is within 0.9..1.1. The run "
        "within 1 / L has not got so far; at equal times both are on one curve.",
    )


def _direction_claim(summaries: Mapping[str, xarray.Dataset]) -> Claim:
    measured = {}
    for run, one in summaries.items():
        last = one.isel(snapshot=-1)
        measured[f"1 - correlation at step {int(last['snapshot'])}, {run}"] = read(last, "off")
        measured[f"exponent of 1 - correlation in ||W||, {run}"] = read(one, "exponent")
        measured[f"share that selects the optimal tokens, {run}"] = read(one, "optimal")
    falls = all(float(one["exponent_high"]) < -1 for one in summaries.values())
    furthest = max(summaries.values(), key=lambda one: one.attrs["step_size"])
    optimal = float(furthest["optimal"]) == 1
    return _claim(
        "direction",
        "The direction of W tends to that of the Frobenius solution that selects the optimal tokens.",
        {name: 1.0 if name.startswith("share") else 0.0 for name in measured if not name.startswith("exponent")},
        measured,
        summaries,
        Verdict.HOLDS if falls and optimal else Verdict.FAILS,
        "Holds if 1 - correlation falls faster than 1 / ||W|| over the last decade of both runs, and every seed of the "
        "one that gets furthest selects its optimal tokens; within 1 / L some are still on their way. The norm being a "
        "logarithm of the steps, the direction is reached very slowly: a limit, not a rate to wait for. Not every "
        "start leads there: global-convergence counts the others over more seeds.",
    )


def _step_claim(summaries: Mapping[str, xarray.Dataset]) -> Claim:
    first = min(summaries.values(), key=lambda one: one.attrs["step_size"])
    tightest = max(float(one["tightest"]) for one in summaries.values())
    measured = {
        "largest step size times L, smallest step": float(first["within"]),
        "largest second derivative found, over L": tightest,
        "largest second derivative found": max(float(one["sharpest"]) for one in summaries.values()),
        **{f"rises of the recorded risk, {run}": float(one["rises"]) for run, one in summaries.items()},
    }
    holds = measured["largest step size times L, smallest step"] <= 1 and tightest <= 1 and not int(first["rises"])
    return _claim(
        "step",
        "The gradient is Lipschitz with the paper's constant L, so a step of at most 1 / L never raises the risk.",
        {f"rises of the recorded risk, {first.attrs['run']}": 0.0},
        {name: (value, value, value) for name, value in measured.items()},
        summaries,
        Verdict.HOLDS if holds else Verdict.FAILS,
        f"L is {1 / tightest:.0f} times the largest second derivative found along the runs, or more: far larger steps "
        "descend as well.",
    )


def _claim(
    name: str,
    statement: str,
    expected: Mapping[str, float],
    measured: Mapping[str, tuple[float, float, float]],
    summaries: Mapping[str, xarray.Dataset],
    verdict: Verdict,
    note: str,
) -> Claim:
    """Return a claim; not decided if a run kept too few seeds or was too short."""
    undecided = too_few(min(int(one.attrs["kept"]) for one in summaries.values()))
    if min(int(one["snapshot"][-1]) for one in summaries.values()) < _LONG:
        undecided = f"Runs of less than {_LONG} steps are too short to tell a logarithm; the published size is 100000."
    return concluded(
        f"gd-divergence:{name}",
        _SOURCE,
        statement,
        expected,
        measured,
        counts_of(summaries),
        verdict,
        undecided,
        note,
    )
