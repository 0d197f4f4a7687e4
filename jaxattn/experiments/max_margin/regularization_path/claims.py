"""Which max-margin solution each regularization path tends to (2308.16898), how closely and how fast."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.max_margin.regularization_path import examples
from jaxattn.statistics import bootstrap, derive_key, proportion, variables
from jaxattn.study.claims import (
    Claim,
    Datasets,
    Judgement,
    Number,
    Setting,
    Source,
    below,
    between,
    counts_of,
    number,
    too_few,
)

OWN = {"W": "frobenius", "KQ": "nuclear"}
# The poster states the theorem for (K, Q) only.
_SOURCES = {
    "W": Source("arXiv 2308.16898", "theorem on the regularization paths", Setting.OURS),
    "KQ": Source("arXiv 2308.16898", "theorem on the regularization paths (poster, theorem I)", Setting.OURS),
}
_LIMITS = {"W": "W_R / R to W_mm / ||W_mm||_F", "KQ": "K Q^T / R to W* / ||W*||_*"}
# The exponent is fitted over the last decade of the radii, which should end here or later.
DECADE, _FAR = 10.0, 300.0
# The exponent of 1 / R with its tolerance, and the threshold for a small distance.
_EXPONENT, _AROUND, _NEAR = -1.0, 0.2, 0.02
# Two paths farther apart than this, in units of R, count as different.
APART = 1e-3


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate distances and their exponents over the kept seeds.

    Args:
        datasets: of the paths "W" and "KQ", as `measure` returns them.
        key: of the bootstrap.

    Returns:
        For each path a dataset over norms and radii: geometric means of `distance` and `off` with interval bounds, the
        `exponent` of the distance, the `ratio` of the distance from its own solution to that from the other at the last
        radius, the shares of seeds with the optimal tokens `selected`, with two paths `apart`, and solved from
        `one_way` only; the number of seeds `elsewhere`, at other tokens at the last radius; and the largest `residual`.

    Raises:
        ValueError: a path of which no seed was kept.
    """
    if not all(one.sizes["seed"] for one in datasets.values()):
        raise ValueError(f"regularization-path: expected a kept seed of each path, found counts {counts_of(datasets)}")
    keys = jax.random.split(key, len(datasets))
    return {run: _summary(one, OWN[run], k) for (run, one), k in zip(datasets.items(), keys, strict=True)}


def _summary(one: xarray.Dataset, own: str, key: PRNGKeyArray) -> xarray.Dataset:
    radii, keys = one["radius"].values, jax.random.split(key, 3)
    late = radii >= radii[-1] / DECADE * (1 - 1e-9)
    x = np.log10(radii[late]) - np.log10(radii[late]).mean()
    logarithms = np.log10(one["distance"].values)
    far = bootstrap(logarithms, keys[0])
    off = bootstrap(np.log10(np.maximum(one["off"].values, np.finfo(float).eps)), keys[1])
    exponent = bootstrap(logarithms[..., late] @ x / (x @ x), keys[2])
    is_own = one["norm"].values == own
    nearer, other = (logarithms[:, place, -1][:, 0] for place in (is_own, ~is_own))
    ratio = bootstrap(nearer - other, derive_key(key))
    estimates = {"distance": (("norm", "radius"), far), "off": (("norm", "radius"), off), "ratio": ((), ratio)}
    arrays = {
        **{
            name + end: (dims, 10**value)
            for name, (dims, estimate) in estimates.items()
            for end, value in (("", estimate.mean), ("_low", estimate.low), ("_high", estimate.high))
        },
        **{f"exponent_{part}": (("norm",), value) for part, value in exponent._asdict().items()},
        "residual": (("radius",), one["residual"].values.max(axis=0)),
        "elsewhere": ((), int((~one["selected"].values[:, -1]).sum())),
    }
    apart = one["apart"].values
    shares = {
        "selected": one["selected"].values,
        "apart": np.isfinite(apart) & (apart > APART),
        "one_way": ~np.isfinite(apart),
    }
    arrays |= variables({name: (("radius",), proportion(hits)) for name, hits in shares.items()})
    attrs = one.attrs | {"points": one["solved"].size, "unsolved_points": int((~one["solved"].values).sum())}
    return xarray.Dataset(arrays, {"norm": one["norm"].values, "radius": radii}, attrs)


def _judge(run: str, summaries: Datasets) -> Judgement:
    """The distance from its own solution must be small, smaller than from the other, and fall like 1 / R."""
    if run not in summaries:
        return Judgement.withheld(f"No regularization path of {run} was measured, only of {list(summaries)}.")
    summary = summaries[run]
    last, end = float(summary["radius"][-1]), summary.isel(radius=-1)
    own = end.sel(norm=OWN[run])
    at, distance = f"at R = {last:g}", f"distance at R = {last:g}, {OWN[run]}"
    exponent = Number(*(float(own[f"exponent_{part}"]) for part in ("mean", "low", "high")))
    both = number(end, "apart")
    numbers = {
        **{f"distance {at}, {norm}": number(end.sel(norm=norm), "distance") for norm in OWN.values()},
        "exponent of the distance": exponent,
        f"1 - cos {at}": number(own, "off"),
        f"share of seeds with the optimal tokens {at}": number(end, "selected"),
        f"share of seeds with two local minima {at}": both,
        f"share of seeds solved from one end only {at}": number(end, "one_way"),
        "largest residual": float(summary["residual"].max()),
    }
    undecided = too_few(int(summary.attrs["kept"]))
    if last < _FAR:
        undecided = f"Radii up to {last:g} are too small to decide; the published ones end at 1000."
    return Judgement(
        numbers=numbers,
        expected={
            distance: 0.0,
            "exponent of the distance": _EXPONENT,
            f"share of seeds with the optimal tokens {at}": 1.0,
        },
        counts=counts_of({run: summary}),
        stated=(
            below(distance, numbers[distance], _NEAR),
            below(
                f"distance from the {OWN[run]} solution over the distance from the other {at}",
                number(end, "ratio"),
                1.0,
            ),
            between("exponent of the distance", exponent, _EXPONENT - _AROUND, _EXPONENT + _AROUND),
            below(
                f"kept seeds that select tokens other than the optimal ones {at}",
                Number.exact(int(end["elsewhere"])),
                0,
            ),
        ),
        undecided=undecided,
        remark="Of the two paths, the one with the lower risk is used; "
        f"{both.mean:.0%} of the seeds have two different local "
        f"minima {at}.",
    )


CLAIMS = tuple(
    Claim(
        f"regularization-path:{run}",
        _SOURCES[run],
        f"As R grows, the minimizers of the risk on balls of radius R converge in direction: {_LIMITS[run]}.",
        partial(_judge, run),
        examples.paths,
    )
    for run in OWN
)
