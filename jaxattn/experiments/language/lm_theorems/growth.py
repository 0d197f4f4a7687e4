"""Growth of the norm and direction errors of plain descent on texts, along its steps."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import Bool, Float, PRNGKeyArray

from jaxattn.statistics import Estimate, bootstrap, proportion, variables

# Kinds of texts: some W separates all next words, or none does.
KINDS = ("feasible", "infeasible")
# 1 - cos cannot be distinguished from 0 below the first; solutions within the second are the same.
_LEAST, _SAME = 1e-14, 1e-6


def along(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Return the growth and direction errors of a run along its snapshots, separately for feasible texts and others.

    Args:
        one: of `measure`.
        key: of the bootstrap.

    Returns:
        Over the snapshots `time`, step size times steps; `within`, the step size in units of 1 / L; `rises`, the number
        of increases of the recorded risk among `compared` pairs of recorded steps; `{kind}_texts`, the number of texts.
        For a kind with texts: `growth`, the errors `off` and `off_soft`, their exponents in ||W||, and the other
        estimates, all with the kind as a prefix; `unchosen`, the number of texts in which a selectable next word is not
        selected; and `astray`, the number that keep other words than those of least risk.
    """
    steps, step_size, bound = one["snapshot"].values, one.attrs["step_size"], one["bound"].values
    changes = np.diff(one["loss"].values, axis=1)
    arrays: dict[str, Any] = {
        "time": (("snapshot",), step_size * steps),
        "within": ((), step_size * bound.max()),
        "rises": ((), int((changes > 1e-12).sum())),
        "compared": ((), changes.size),
    }
    for kind, of_kind, k in zip(
        KINDS, (one["feasible"].values, ~one["feasible"].values), jax.random.split(key), strict=True
    ):
        arrays[f"{kind}_texts"] = ((), int(of_kind.sum()))
        if of_kind.any():
            part = one.isel(seed=of_kind)
            arrays |= {f"{kind}_{name}": value for name, value in variables(_estimated(part, k)).items()}
            arrays[f"{kind}_unchosen"] = ((), int((~_all_chosen(part)).sum()))
            arrays[f"{kind}_astray"] = ((), int((~part["least"].values).sum()))
    return xarray.Dataset(arrays, {"snapshot": steps}, one.attrs)


def _estimated(one: xarray.Dataset, key: PRNGKeyArray) -> dict[str, tuple[tuple[str, ...], Estimate]]:
    steps, growth = one["snapshot"].values, one["growth"].values
    late = steps * 10 >= steps[-1]
    keys = iter(jax.random.split(key, 8))
    estimates: dict[str, tuple[tuple[str, ...], Estimate]] = {}
    estimates["growth"] = (("snapshot",), bootstrap(growth, next(keys)))
    # Of each seed's own line through the last decade.
    slope = _slope(np.log(steps[late]), growth[:, late])
    estimates["slope"] = ((), bootstrap(slope, next(keys)))
    for name in ("off", "off_soft"):
        off = np.maximum(one[name].values, _LEAST)
        exponent = _slope(np.log(growth[:, late]), np.log(off[:, late]))
        estimates[f"{name}_exponent"] = ((), bootstrap(exponent, next(keys)))
        estimates[name] = (("snapshot",), bootstrap(off, next(keys)))
    apart = one["apart"].values
    estimates |= {"apart": ((), bootstrap(apart, next(keys))), "differ": ((), proportion(apart > _SAME))}
    estimates["least"] = ((), proportion(one["least"].values))
    estimates["chosen"] = ((), bootstrap(one["chosen"].values, next(keys)))
    estimates["all_chosen"] = ((), proportion(_all_chosen(one)))
    return estimates


def _all_chosen(one: xarray.Dataset) -> Bool[np.ndarray, " texts"]:
    return one["chosen"].values > one["choosable"].values - 1e-9


def _slope(x: Float[np.ndarray, "..."], y: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Return the slope of the least squares line of every row; 0 where x does not change."""
    x = x - x.mean(axis=-1, keepdims=True)
    square = np.sum(x * x, axis=-1)
    moves = square > 1e-20
    return np.where(moves, np.sum(x * y, axis=-1) / np.where(moves, square, 1.0), 0.0)
