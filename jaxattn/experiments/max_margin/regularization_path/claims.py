"""Where the regularization paths go: what is measured of them, and the verdicts."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.study.claims import Claim, Verdict, counts_of, too_few
from jaxattn.study.statistics import bootstrap, proportion

_SOURCE = "arXiv 2308.16898, theorem on the regularization paths"
_OWN = {"W": "frobenius", "KQ": "nuclear"}
_LIMITS = {"W": "W_R / R to W_mm / ||W_mm||_F", "KQ": "K Q^T / R to W* / ||W*||_*"}
# The exponent is read over the last decade of the radii, which should end here or later.
_DECADE, _FAR = 10.0, 300.0
# A distance that falls like 1 / R, and one that has become small.
_EXPONENT, _AROUND, _NEAR = -1.0, 0.2, 0.02
# Two paths further apart than this, in units of R, are two.
_APART = 1e-3


def summarize(
    measured: Mapping[str, xarray.Dataset], key: PRNGKeyArray
) -> tuple[dict[str, xarray.Dataset], list[Claim]]:
    """Estimate distances and their exponents over the kept seeds, and judge the limits.

    Args:
        measured: of the paths "W" and "KQ", as `regularization.measure` returns them.
        key: of the bootstrap.

    Returns:
        For each path a dataset over norms and radii: geometric means of `distance` and `off` with interval bounds, the
        `exponent` of the distance, the shares of seeds that have the optimal tokens `selected`, whose two paths are
        `apart` and that are solved from `one_way` alone, and the largest `residual`; the claims.

    Raises:
        ValueError: a path of which no seed was kept.
    """
    if not all(one.sizes["seed"] for one in measured.values()):
        raise ValueError(f"regularization-path: expected a kept seed of each path, found counts {counts_of(measured)}")
    keys = jax.random.split(key, len(measured))
    summaries = {run: _summary(one, k) for (run, one), k in zip(measured.items(), keys, strict=True)}
    return summaries, [_claim(run, summary) for run, summary in summaries.items()]


def _summary(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    radii, keys = one["radius"].values, jax.random.split(key, 3)
    late = radii >= radii[-1] / _DECADE * (1 - 1e-9)
    x = np.log10(radii[late]) - np.log10(radii[late]).mean()
    logarithms = np.log10(one["distance"].values)
    far = bootstrap(logarithms, keys[0])
    off = bootstrap(np.log10(np.maximum(one["off"].values, np.finfo(float).eps)), keys[1])
    exponent = bootstrap(logarithms[..., late] @ x / (x @ x), keys[2])
    apart = one["apart"].values
    variables = {
        **{
            name + end: (("norm", "radius"), 10**value)
            for name, estimate in (("distance", far), ("off", off))
            for end, value in (("", estimate.mean), ("_low", estimate.low), ("_high", estimate.high))
        },
        **{f"exponent_{part}": (("norm",), value) for part, value in exponent._asdict().items()},
        "residual": (("radius",), one["residual"].values.max(axis=0)),
    }
    shares = {
        "selected": one["selected"].values,
        "apart": np.isfinite(apart) & (apart > _APART),
        "one_way": ~np.isfinite(apart),
    }
    for name, hits in shares.items():
        share = proportion(hits)
        bounds = (("", share.mean), ("_low", share.low), ("_high", share.high))
        variables |= {name + end: (("radius",), value) for end, value in bounds}
    attrs = one.attrs | {"points": one["solved"].size, "unsolved_points": int((~one["solved"].values).sum())}
    return xarray.Dataset(variables, {"norm": one["norm"].values, "radius": radii}, attrs)


def _claim(run: str, summary: xarray.Dataset) -> Claim:
    last = float(summary["radius"][-1])
    measured, interval = {}, {}

    def add(label: str, of: xarray.Dataset, name: str, low: str, high: str) -> None:
        measured[label], interval[label] = float(of[name]), (float(of[low]), float(of[high]))

    end = summary.isel(radius=-1)
    for norm in _OWN.values():
        add(f"distance at R = {last:g}, {norm}", end.sel(norm=norm), "distance", "distance_low", "distance_high")
    own, other = (summary.sel(norm=_OWN[name]) for name in (run, "KQ" if run == "W" else "W"))
    add("exponent of the distance", own, "exponent_mean", "exponent_low", "exponent_high")
    add(f"1 - correlation at R = {last:g}", own.isel(radius=-1), "off", "off_low", "off_high")
    add(f"share of seeds with the optimal tokens at R = {last:g}", end, "selected", "selected_low", "selected_high")
    add(f"share of seeds with two local minima at R = {last:g}", end, "apart", "apart_low", "apart_high")
    add(f"share of seeds solved from one end alone at R = {last:g}", end, "one_way", "one_way_low", "one_way_high")
    measured["largest residual"] = float(summary["residual"].max())
    falls = abs(measured["exponent of the distance"] - _EXPONENT) < _AROUND
    near = interval[f"distance at R = {last:g}, {_OWN[run]}"][1] < _NEAR
    apart = float(own.isel(radius=-1)["distance_high"]) < float(other.isel(radius=-1)["distance_low"])
    selects = float(end["selected"]) == 1
    undecided = too_few(int(summary.attrs["kept"]))
    if last < _FAR:
        undecided = f"Radii up to {last:g} are too small to decide; the published ones end at 1000."
    note = (
        f"Holds if the mean distance from the {_OWN[run]} solution is below {_NEAR} at the last radius and below that "
        f"from the other, falls there like R^-1 to within {_AROUND} of the exponent, and every kept seed selects the "
        "optimal tokens. The lower of two paths is meant: followed up from the smallest radius alone, many end in a "
        "local minimum at other tokens."
    )
    return Claim(
        id=f"regularization-path:{run}",
        source=_SOURCE,
        statement=f"As R grows, the minimizers of the risk on balls of radius R tend in direction: {_LIMITS[run]}.",
        expected={
            f"distance at R = {last:g}, {_OWN[run]}": 0.0,
            "exponent of the distance": _EXPONENT,
            f"share of seeds with the optimal tokens at R = {last:g}": 1.0,
        },
        measured=measured,
        interval=interval,
        counts=counts_of({run: summary}),
        verdict=Verdict.OPEN if undecided else Verdict.HOLDS if falls and near and apart and selects else Verdict.FAILS,
        note=undecided or note,
    )
