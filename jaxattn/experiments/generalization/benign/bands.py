"""The seeds that the claims on flipped labels are about, and the estimates for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np
import xarray
from jaxtyping import Bool, Float, PRNGKeyArray

from jaxattn.statistics import Estimate, bootstrap, proportion, variables

# Fixed beforehand: the mean attention above which the signal token is selected rather than mixed with others.
SELECTED = 0.5
# The course of training, along the snapshots.
COURSE = ("clean", "flipped", "attends", "test", "finds")
# Bin edges of strengths, and of n times squared ratios, for averages of test accuracy, evenly spaced on log axes; and
# the number of seeds that an average needs to be drawn.
EDGES, FEWEST = np.geomspace(0.0625, 256, 25), 4


class Band(NamedTuple):
    """Seeds of some signals.

    Attributes:
        said: a description.
        holds: from `ratio`, n mu^2 / d, and `strength`, mu (n / d)^(1/4), to whether a seed belongs to the band.
    """

    said: str
    holds: Callable[[Float[np.ndarray, " seeds"], Float[np.ndarray, " seeds"]], Bool[np.ndarray, " seeds"]]


BANDS: Mapping[str, Band] = {
    "low": Band(
        "n mu^2 / d <= 0.5 and mu >= 4 (d / n)^(1/4)", lambda ratio, strength: (ratio <= 0.5) & (strength >= 4)
    ),
    "high": Band("n mu^2 / d >= 4", lambda ratio, strength: (ratio >= 4) & (strength > 0)),
    "weak": Band("mu <= 1.2 (d / n)^(1/4)", lambda ratio, strength: (ratio < 0.5) & (strength <= 1.2)),
}


def summarized(runs: Mapping[str, xarray.Dataset], band: Band, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate the outcomes of the seeds of a band, pooled over runs.

    Returns:
        With intervals: `fit`, the share of flipped labels that are fit at the end; `accuracy`, on new inputs at the
        end; `change`, its change from W = 0 to the end; `stage`, the share of seeds that at some snapshot fit all
        correct labels with their signal tokens selected, and no flipped one; `rise` and `found`, the increase of test
        accuracy and of the attention on the signal tokens of new inputs after all labels are fit, over the seeds that
        fit them. COURSE and `time`, means along the snapshots. Attributes: `seeds`, and `fitting`, the number that fit
        all labels. All numbers are 0 for fewer than two seeds.
    """
    seeds = _together(runs, band)
    steps = next(iter(runs.values()))["snapshot"].values
    keys = jax.random.split(key, 5)
    done = _fitting(seeds)
    kept = done >= 0
    at = np.maximum(done, 0)[:, None]
    later = {
        name: (seeds[name][:, -1:] - np.take_along_axis(seeds[name], at, axis=1))[kept, 0] for name in ("test", "finds")
    }
    stage = (seeds["clean"] > 1 - 1e-9) & (seeds["attends"] >= SELECTED) & (np.abs(seeds["flipped"]) < 1e-9)
    estimates = {
        "fit": _mean(seeds["flipped"][:, -1], keys[0]),
        "accuracy": _mean(seeds["test"][:, -1], keys[1]),
        "change": _mean(seeds["test"][:, -1] - seeds["before"], keys[2]),
        "stage": proportion(np.asarray(stage.any(axis=1))) if len(stage) else _nothing(),
        "rise": _mean(later["test"], keys[3]),
        "found": _mean(later["finds"], keys[4]),
    }
    course = {name: (("snapshot",), _along(seeds[name], steps)) for name in (*COURSE, "time")}
    return xarray.Dataset(
        variables({name: ((), estimate) for name, estimate in estimates.items()}) | course,
        {"snapshot": steps},
        {"seeds": len(stage), "fitting": int(kept.sum())},
    )


def _together(runs: Mapping[str, xarray.Dataset], band: Band) -> dict[str, np.ndarray]:
    parts = [one.isel(seed=band.holds(one["ratio"].values, one["strength"].values)) for one in runs.values()]
    return {name: np.concatenate([one[name].values for one in parts]) for name in (*COURSE, "time", "before")}


def _fitting(seeds: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return for each seed the first snapshot from which all labels are fit, -1 if there is none."""
    fits = (seeds["clean"] > 1 - 1e-9) & (seeds["flipped"] > 1 - 1e-9)
    open_until = np.where(~fits, np.arange(fits.shape[1]), -1).max(axis=1, initial=-1)
    return np.where(open_until == fits.shape[1] - 1, -1, open_until + 1)


def binned(x: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for every bin of EDGES the number of seeds, their mean and its standard error; 0 if there are too few."""
    place = np.digitize(x, EDGES) - 1
    inside = [values[place == k] for k in range(len(EDGES) - 1)]
    enough = [len(one) >= FEWEST for one in inside]
    mean = [one.mean() if is_enough else 0.0 for one, is_enough in zip(inside, enough, strict=True)]
    error = [
        one.std(ddof=1) / len(one) ** 0.5 if is_enough else 0.0 for one, is_enough in zip(inside, enough, strict=True)
    ]
    return np.array([len(one) for one in inside]), np.array(mean), np.array(error)


def _mean(values: Float[np.ndarray, " seeds"], key: PRNGKeyArray) -> Estimate:
    return bootstrap(values, key) if len(values) > 1 else _nothing()


def _along(values: Float[np.ndarray, "seeds snapshots"], steps: np.ndarray) -> Float[np.ndarray, " snapshots"]:
    return values.mean(axis=0) if len(values) else np.zeros(len(steps))


def _nothing() -> Estimate:
    return Estimate(*(np.zeros(()) for _ in Estimate._fields))
