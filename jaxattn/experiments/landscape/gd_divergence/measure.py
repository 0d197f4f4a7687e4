"""From the record of plain descent: growth and direction of W, and the curvature of the risk along the path."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import xarray
from jaxtyping import Array, Float

from jaxattn import losses, metrics, svm, tokens
from jaxattn.descent import smoothness
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.study.measuring.optimum import optimum

# Products with the second derivative in the power iteration.
_TURNS = 30


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run with the Frobenius solutions of its optimal tokens, and measure the curvature of the risk along it.

    Args:
        record: of a `Training` of W by plain descent, as `recording.run` writes it.
        solver: of the max-margin problems.

    Returns:
        For every kept seed `off`, 1 - cos, and `growth`, `||W||_F / ||W_mm||_F`, at the snapshots; `bound`, the
        smoothness constant L; `bend`, the largest second derivative found at each snapshot; whether the `optimal`
        tokens are selected at the end; the recorded risk. The attribute `run` names the step size, and whether the risk
        was recorded at every step; `every` is the number of steps between recorded risks.
    """
    found = optimum(record, solver)
    W, final = found.of(record["W_snapshots"]), found.of(record["W"])
    config = json.loads(record.attrs["config"])
    step_size, every = float(config["optimizer"]["step_size"]), int(config["record_every"])
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
        {**found.counts, "run": named(step_size, every), "step_size": step_size, "every": every},
    )


def named(step_size: float, every: int) -> str:
    """Return the name of a run."""
    return f"step {step_size:g}" + (", every step" if every == 1 else "")


def _along(
    W: Float[Array, "snapshot d d"], final: Float[Array, "d d"], W_mm: Float[Array, "d d"], problem: Problem
) -> tuple[Array, ...]:
    """Return what `measure` needs for one seed: off, growth, bend, bound, and the tokens selected at the end."""
    off = 1 - jax.vmap(metrics.correlation, in_axes=(0, None))(W, W_mm)
    growth = jax.vmap(metrics.norm)(W) / metrics.norm(W_mm)
    return off, growth, *_smoothness(W, problem), tokens.selected(final, problem)


def _smoothness(
    W: Float[Array, "snapshot d d"], problem: Problem
) -> tuple[Float[Array, " snapshot"], Float[Array, ""]]:
    """Return a lower bound of the largest second derivative of the risk at each W, and the upper bound for all W."""
    slope = jax.grad(losses.risk)

    def of_one(W: Array) -> Array:
        def product(U: Array) -> Array:
            length = metrics.norm(U)
            # Where the risk has no curvature, the product is 0 and stays 0.
            return jax.jvp(lambda V: slope(V, problem), (W,), (U / jnp.where(length > 0, length, 1.0),))[1]

        return metrics.norm(jax.lax.fori_loop(0, _TURNS, lambda _, U: product(U), slope(W, problem)))

    return jax.vmap(of_one)(W), smoothness.bound(problem)
