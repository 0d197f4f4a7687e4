"""From the measured heads: which obey, which do not, which do not tell, and what carries their margins."""

from __future__ import annotations

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.bias import limits
from jaxattn.bias.verdict import CLOSE
from jaxattn.experiments.beyond.hierarchy.claims import ALONE, READOUT
from jaxattn.study.claims import Datasets
from jaxattn.study.estimates import estimated, mean, quantiles, read_at, share

# Rounding of the logarithm of the loss, and the least length and margin whose logarithm is taken.
_ROUNDING, _LEAST = 1e-9, 1e-9


def summarize(runs: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate each run; and `apart`, a trained readout's last ratio minus that of K and Q alone at the same ||W||.

    Seeds are paired: both runs have the same sequences and the same start.
    """
    keys = jax.random.split(key, len(runs) + 1)
    summaries = {name: estimate(run, keys[k]) for k, (name, run) in enumerate(runs.items())}
    if READOUT in runs and ALONE in runs:
        apart = estimated(runs[READOUT], keys[-1], apart=mean(_apart(runs[READOUT], runs[ALONE])))
        summaries[READOUT] = summaries[READOUT].assign(apart)
    return summaries


def _apart(run: xarray.Dataset, alone: xarray.Dataset) -> xarray.DataArray:
    seeds = np.intersect1d(run["seed"].values, alone["seed"].values)
    run, alone = (one.sel(seed=seeds, norm="nuclear", drop=True).isel(head=0, drop=True) for one in (run, alone))
    end = run.isel(snapshot=-1, drop=True)
    same = read_at(end["size"].values[:, None], alone["size"].values, alone["ratio"].values)
    return end["ratio"] - same[:, 0]


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate for each head and norm the share of seeds that obey, and what carries the margin.

    A head obeys a norm if its margin ratio, extrapolated in the norm of W, ends above 0.97 and exceeds those of null
    directions, of the rows' mean and of the head when it first selected its tokens, and if hard attention would not
    raise the loss. It does not obey if its limit, or its last ratio where W does not grow, is below 0.97.
    """
    ratio, size, steps = run["ratio"], run["size"], run["snapshot"].values
    last = ratio.isel(snapshot=-1, drop=True)
    limit = limits.extrapolated(ratio.values.reshape(-1, *ratio.shape[2:]), size.values.reshape(-1, len(steps)), steps)
    assert limit is not None  # Every run has as many snapshots as limits need.
    low, high = (last.copy(data=end.reshape(last.shape)) for end in (limit.low, limit.high))
    grows = last.isel(norm=0, drop=True).copy(data=limit.grows.reshape(ratio.shape[:2]))
    nulls = xarray.concat([run[name] for name in ("cone", "mean", "first")], "null").max("null")
    costs = (run["log_loss_hard"] - run["log_loss"]).isel(snapshot=-1, drop=True)
    ends = run[["size", "margin"]].isel(snapshot=np.flatnonzero(limits.last_decade(steps))[[0, -1]])
    growth = np.log(ends.clip(min=_LEAST)).diff("snapshot").isel(snapshot=0, drop=True)
    # Of the first kept seed, in the nuclear norm, is drawn more.
    one = run[["ratio", "first"]].isel(seed=0, drop=True).sel(norm="nuclear", drop=True)
    drawn = run[["null", "attention", "support", "selected", "tokens"]]
    return estimated(
        run,
        key,
        obeys=share((low > CLOSE) & (last > nulls) & (costs <= _ROUNDING)),
        refuses=share(xarray.where(grows, high, last).transpose(*last.dims) < CLOSE),
        nearer=share(last > run["nearest"]),
        last=mean(last),
        nulls=mean(nulls),
        nearest=mean(run["nearest"]),
        carried=mean((growth["size"] / growth["margin"].clip(min=_LEAST)).clip(0.0, 1.0)),
        softer=share(costs > _ROUNDING),
        costs=quantiles(costs, 10, 50, 90),
        ratio=quantiles(ratio, 10, 50, 90),
        size=quantiles(size, 50),
        part=quantiles(run["share"].isel(snapshot=-1, drop=True), 50),
        asked=quantiles(run["asked"], 50),
        probability=quantiles(run["probability"], 50),
    ).assign(drawn.assign(ratio_of_one=one["ratio"], first_of_one=one["first"]))
