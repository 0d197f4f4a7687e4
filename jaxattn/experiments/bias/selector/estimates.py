"""Estimates of what each selector selects, which norm it obeys, and how much nearer it is than other runs."""

from __future__ import annotations

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.bias import ratios
from jaxattn.study.claims import Datasets
from jaxattn.study.estimates import estimated, mean, undefined

# The selectors, and for every changed run the one from the same start without the change.
ENTROPY, GUMBEL = ("entropy 0.01", "entropy 0.1", "entropy 1"), ("Gumbel",)
PLAIN, RANDOM, HEADS = "plain", "random start", "two heads"
ROTARY, ONE_HOT = "rotary", "one-hot positions"
BASES = dict.fromkeys((*ENTROPY, *GUMBEL, ROTARY, ONE_HOT), PLAIN) | {HEADS: RANDOM}
# Positions change the keys, and so the problem. The control of each changes every key alike, but at random.
CONTROLS = {ROTARY: "random rotations", ONE_HOT: "random vectors"}
# The step from which the margin ratios of two runs are compared, snapshot by snapshot (eight per decade).
SINCE = 100
# The accuracy of 1 - ratio, given the certified gaps.
_CERTIFIED = 1e-6


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Estimate what each run selects, and which norm it obeys.

    Returns:
        For each run `ratio`, (norm, snapshot); at the end `probability`, `optimal`, the share of inputs that select
        their optimal token, `joint`, the ratio in the joint problem of several heads, and `lead`, the Frobenius ratio
        minus the largest other one, that of the norm `rival`; `off`, the mean of log10(1 - Frobenius ratio),
        (snapshot,). Against the unchanged run from the same start, paired by seed: `same`, the share of inputs that
        select the same token; `gain`, the mean from step 100 on of its `off` minus that of this run, for two heads over
        the seeds in which all inputs select the same tokens; `beyond`, the same against the control, if there is one.
        Attributes: `compared`, the number of seeds of `gain`; `norms`, which `bias.rank` names, and `reason`, why none.

    Raises:
        ValueError: two runs to compare without a common seed.
    """
    return {name: _estimate(name, runs, jax.random.fold_in(key, k)) for k, name in enumerate(runs)}


def _estimate(name: str, runs: Datasets, key: PRNGKeyArray) -> xarray.Dataset:
    run, last = runs[name], runs[name].isel(snapshot=-1, drop=True)
    ratio = last["margin_ratio"]
    leads = ratio.sel(norm="frobenius", drop=True) - ratio.drop_sel(norm="frobenius")
    rival = str(leads["norm"].values[leads.mean("seed").values.argmin()])
    changed, base = _paired(name, BASES.get(name, name), runs)
    agrees = changed["selected"] == base["selected"]
    alike = agrees.all("input").values if name == HEADS else np.full(changed.sizes["seed"], True)
    parts = {}
    if (control := CONTROLS.get(name, name)) in runs and control != name:
        here, there = _paired(name, control, runs)
        parts["beyond"] = mean(_ahead(here, there))
    if "joint" in run:
        parts["joint"] = mean(last["joint"])
    compared = int(alike.sum())
    estimates = estimated(
        run,
        key,
        ratio=mean(run["margin_ratio"]),
        probability=mean(last["probability"]),
        lead=mean(leads.sel(norm=rival, drop=True)),
        same=mean(agrees.mean("input")),
        off=mean(_off(run)),
        gain=mean(_ahead(changed, base).isel(seed=alike)) if compared > 1 else undefined(),
        optimal=mean(run["optimal"]),
        **parts,
    )
    decision = ratios.estimate(run, key)
    names = " and ".join(map(str, decision["norm"].values[decision["named"].values]))
    return estimates.assign_attrs(norms=names, reason=decision.attrs["reason"], rival=rival, compared=compared)


def _off(run: xarray.Dataset) -> xarray.DataArray:
    """Return log10(1 - ratio) for the Frobenius margin ratio, (seed, snapshot)."""
    missing = 1 - run["margin_ratio"].sel(norm="frobenius", drop=True)
    return missing.copy(data=np.log10(np.maximum(missing.values, _CERTIFIED)))


def _ahead(run: xarray.Dataset, other: xarray.Dataset) -> xarray.DataArray:
    """Return by how many decades of 1 - ratio a run is nearer than another, (seed,), from step 100 on."""
    since = min(SINCE, int(run["snapshot"][-1]))
    return (_off(other) - _off(run)).sel(snapshot=slice(since, None)).mean("snapshot")


def _paired(name: str, other: str, runs: Datasets) -> tuple[xarray.Dataset, xarray.Dataset]:
    """Return a run and another one, itself if there is none, on the seeds that both kept: they draw equal problems."""
    other = other if other in runs else name
    shared = np.intersect1d(runs[name]["seed"].values, runs[other]["seed"].values)
    if not shared.size:
        raise ValueError(f"selector: expected a seed that {name} and {other} both kept, found none")
    return runs[name].sel(seed=shared), runs[other].sel(seed=shared)
