"""Estimates by the strength of the signal: test accuracies in bins, and the outcomes of the seeds of three bands."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import xarray
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from jaxattn.study.claims import Datasets
from jaxattn.study.estimates import Estimator, estimated, exact, mean, share

# Fixed beforehand: the mean attention above which the signal token is selected rather than mixed with others.
_SELECTED = 0.5
# The course of training, along the snapshots.
_COURSE = ("clean", "flipped", "attends", "test", "finds", "time")
# Bin edges of strengths, for averages of test accuracy, evenly spaced on a log axis; and the number of seeds that an
# average needs to be drawn.
_EDGES, FEWEST = np.geomspace(0.0625, 256, 25), 4


class Band(NamedTuple):
    """Seeds of some `ratio`, n mu^2 / d, and `strength`, mu (n / d)^(1/4), with the given or the weaker head."""

    description: str
    holds: Callable[[Float[np.ndarray, " seeds"], Float[np.ndarray, " seeds"]], Bool[np.ndarray, " seeds"]]
    weaker: bool = False


# How the names of the runs end whose head also reads noise.
WEAKER = ", weaker head"
_LOW = Band("n mu^2 / d <= 0.5 and mu >= 4 (d / n)^(1/4)", lambda ratio, strength: (ratio <= 0.5) & (strength >= 4))
BANDS = {
    "low": _LOW,
    "low, weaker head": _LOW._replace(weaker=True),
    "high": Band("n mu^2 / d >= 4", lambda ratio, strength: (ratio >= 4) & (strength > 0)),
    "weak": Band("mu <= 1.2 (d / n)^(1/4)", lambda ratio, strength: (ratio < 0.5) & (strength <= 1.2)),
}


def summarize(runs: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate test accuracies by signal for each run, and the outcomes of the seeds of each band over all runs.

    Returns:
        For each run, by bins of `strength`, (bin,): the number of seeds (`by_strength_seeds`), their mean final test
        accuracy (`by_strength`) and its standard error (`by_strength_error`); 0 for fewer than FEWEST seeds.

        For each of BANDS: `fit`, the share of flipped labels that are fit at the end; `accuracy`, on new inputs at the
        end, and `change`, what it gained since W = 0; `stage`, the share of seeds that at some snapshot fit all correct
        labels with their signal tokens selected, and no flipped one; `rise` and `found`, the increase of test accuracy
        and of the attention on the signal tokens of new inputs after all labels are fit; and means along the snapshots.
        Attributes: `kept` and `fitting`, the numbers of seeds, and of those that fit all labels; and `steps`. All
        numbers are 0 for fewer than two seeds.
    """
    summaries = {name: _by_strength(run) for name, run in runs.items()}
    for k, (name, band) in enumerate(BANDS.items()):
        own = {run: runs[run] for run in runs if run.endswith(WEAKER) == band.weaker}
        if own:
            summaries[name] = _pooled(own, band, jax.random.fold_in(key, k))
    return summaries


def _by_strength(run: xarray.Dataset) -> xarray.Dataset:
    end, bins = run["test"].values[:, -1], np.digitize(run["strength"].values, _EDGES) - 1
    inside = [end[bins == k] for k in range(len(_EDGES) - 1)]
    averages = [(len(v), v.mean(), v.std(ddof=1) / len(v) ** 0.5) if len(v) >= FEWEST else (0, 0, 0) for v in inside]
    names = ("by_strength_seeds", "by_strength", "by_strength_error")
    arrays = {name: ("bin", values) for name, values in zip(names, np.transpose(averages), strict=True)}
    return xarray.Dataset(arrays, {"bin": np.sqrt(_EDGES[:-1] * _EDGES[1:])}, run.attrs)


def _pooled(runs: Datasets, band: Band, key: PRNGKeyArray) -> xarray.Dataset:
    chosen = {name: band.holds(run["ratio"].values, run["strength"].values) for name, run in runs.items()}
    seeds = xarray.concat([run.isel(seed=chosen[name]) for name, run in runs.items()], "seed")
    fitted = _fitted(seeds)
    fitting = seeds[["test", "finds"]].isel(seed=fitted >= 0).drop_vars("snapshot")
    later = fitting.isel(snapshot=-1) - fitting.isel(snapshot=xarray.DataArray(fitted[fitted >= 0], dims="seed"))
    ignores_flipped = np.abs(seeds["flipped"]) < 1e-9
    stage = ((seeds["clean"] > 1 - 1e-9) & (seeds["attends"] >= _SELECTED) & ignores_flipped).any("snapshot")
    end = seeds.isel(snapshot=-1, drop=True)
    summary = estimated(
        seeds,
        key,
        fit=_mean(end["flipped"]),
        accuracy=_mean(end["test"]),
        change=_mean(end["test"] - seeds["before"]),
        stage=share(stage) if len(stage) else exact(0.0),
        rise=_mean(later["test"]),
        found=_mean(later["finds"]),
    )
    course = {name: seeds[name].mean("seed") if len(stage) else 0.0 * seeds["snapshot"] for name in _COURSE}
    attributes = {
        "kept": len(stage),
        "fitting": len(later["test"]),
        "steps": min(run.attrs["steps"] for run in runs.values()),
    }
    return xarray.Dataset({**summary.data_vars, **course}, attrs=attributes)


def _mean(values: xarray.DataArray) -> Estimator:
    return mean(values) if len(values) > 1 else exact(0.0)


def _fitted(seeds: xarray.Dataset) -> Int[np.ndarray, " seeds"]:
    """Return for each seed the first snapshot from which all labels are fit, -1 if there is none."""
    fits = ((seeds["clean"] > 1 - 1e-9) & (seeds["flipped"] > 1 - 1e-9)).values
    last_open = np.where(~fits, np.arange(fits.shape[1]), -1).max(axis=1, initial=-1)
    return np.where(last_open == fits.shape[1] - 1, -1, last_open + 1)
