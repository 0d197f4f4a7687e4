"""Estimates of plain descent along its steps, by kind of text, and of where descent from any start has ended."""

from __future__ import annotations

import jax
import numpy as np
import xarray
from jaxtyping import Float, PRNGKeyArray

from jaxattn.experiments.language.arrival import outcomes
from jaxattn.experiments.language.subsets import by_kind
from jaxattn.statistics import bootstrap, variables
from jaxattn.study.estimates import Estimator, estimated, exact, mean, share

# 1 - cos cannot be distinguished from 0 below the first; solutions within the second are the same.
_LEAST, _SAME = 1e-14, 1e-6


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate growth and direction along the steps from W = 0, or where descent from other starts has ended.

    Returns:
        From W = 0, over the snapshots: `time`, step size times steps; `within`, the step size in units of 1 / L;
        `rises`, the number of increases of the recorded risk among `compared` pairs of recorded steps; `{kind}_texts`,
        the number of texts. For a kind with texts: `slope`, that of the norm of W over that of W_mm in the logarithm of
        the steps; the errors `off` and `off_soft`, their exponents in ||W||, and the other estimates, all with the kind
        as a prefix; `unchosen`, the number of texts in which a selectable next word is not selected; and `astray`, the
        number that keep other words than those of least risk.

        From other starts: the numbers of texts that have `arrived`, have `left` prefixes unserved, are `moving`,
        `unexplained` or `opposed`, as defined in `arrival.outcomes`; the means of `off` over the snapshots and of
        `off_kept`; and the largest `within`.
    """
    return (_ends if "weights.radius" in run.attrs else _courses)(run, key)


def _courses(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    step_size, changes = run.attrs["optimizer.step_size"], np.diff(run["loss"].values, axis=1)
    courses = estimated(
        run,
        key,
        time=exact(step_size * run["snapshot"].astype(float)),
        within=exact(step_size * run["bound"].max()),
        rises=exact(int((changes > 1e-12).sum())),
        compared=exact(changes.size),
    )
    return courses.assign(by_kind(run, key, _of_kind).data_vars)


def _of_kind(texts: xarray.Dataset) -> dict[str, Estimator]:
    steps, growth = texts["snapshot"].values, texts["growth"].values
    decade = steps * 10 >= steps[-1]
    all_chosen = texts["chosen"] > texts["choosable"] - 1e-9
    # Of each seed's own line through the last decade.
    estimates = {"slope": mean(_slope(np.log(steps[decade]), growth[:, decade]))}
    for name in ("off", "off_soft"):
        off = texts[name].clip(min=_LEAST)
        exponent = _slope(np.log(growth[:, decade]), np.log(off.values[:, decade]))
        estimates |= {f"{name}_exponent": mean(exponent), name: mean(off)}
    return estimates | {
        "apart": mean(texts["apart"]),
        "differ": share(texts["apart"] > _SAME),
        "least": share(texts["least"]),
        "chosen": mean(texts["chosen"]),
        "all_chosen": share(all_chosen),
        "unchosen": exact((~all_chosen).sum()),
        "astray": exact((~texts["least"]).sum()),
    }


def _slope(x: Float[np.ndarray, "..."], y: Float[np.ndarray, "seeds steps"]) -> xarray.DataArray:
    """Return the slope of the least squares line of every seed; 0 where x does not change."""
    x = x - x.mean(axis=-1, keepdims=True)
    square = np.sum(x * x, axis=-1)
    moves = square > 1e-20
    slope = np.where(moves, np.sum(x * y, axis=-1) / np.where(moves, square, 1.0), 0.0)
    return xarray.DataArray(slope, dims="seed")


def _ends(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    estimates = {
        "off": (("snapshot",), bootstrap(run["off"].values, key)),
        "off_kept": ((), bootstrap(run["off_kept"].values, jax.random.fold_in(key, 1))),
    }
    numbers = {name: int(hits.sum()) for name, hits in outcomes(run)._asdict().items()} | {
        "texts": run.sizes["seed"],
        "within": float(run["within"].max()),
    }
    return xarray.Dataset(variables(estimates) | numbers, {"snapshot": run["snapshot"].values}, run.attrs)
