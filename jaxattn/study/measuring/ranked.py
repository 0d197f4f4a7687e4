"""Rank the runs of a record by norms with `bias.rank`, and store the ranking as a dataset."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

import jax
import numpy as np
import xarray
from hydra.utils import instantiate
from jaxtyping import PRNGKeyArray

from jaxattn import attention, bias, descent, models
from jaxattn.norms import Norm
from jaxattn.problem import of_arrays
from jaxattn.statistics import Estimate, variables
from jaxattn.study.settings.parameters import is_parameter, weights_of
from jaxattn.study.settings.training import SERIES

# The axes of a ranking's arrays and estimates in a dataset.
_AXES = {
    "margin_ratio": ("seed", "norm", "snapshot"),
    "cosine": ("seed", "norm", "snapshot"),
    "unique": ("seed", "norm"),
    "probability": ("seed", "snapshot"),
    "size": ("seed", "snapshot"),
    "obeys": ("seed", "norm"),
    "fall": ("seed",),
    "stalled": ("seed",),
    "confusion": ("norm", "rival"),
}
_ESTIMATES = {"ratio": ("norm", "snapshot"), "trend": ("norm",), "limit": ("norm",)}
_PROBLEM = ("X", "Z", "Y", "v")


def ranked(
    record: xarray.Dataset, norms: Sequence[str | Norm] = bias.NORMS, key: PRNGKeyArray | None = None
) -> bias.Ranking:
    """Compare the seeds of a `Training` with the max-margin problems of several norms, as `bias.rank` does.

    The model is that of the record's configuration. Snapshots at which the weights of all seeds are zero, as at step 0
    from W = 0, are excluded because zero has no direction.

    Raises:
        ValueError: a record of something else, or without snapshots that have a direction; and as in `bias.rank`.
    """
    arrays = {str(name): record[name].values for name in record.data_vars}
    if lacking := [name for name in (*_PROBLEM, *SERIES) if name not in arrays]:
        raise ValueError(f"record: expected one of `jaxattn train` on problems, found no {', '.join(lacking)} in it")
    if not any(is_parameter(name) and name.endswith("_snapshots") for name in arrays):
        raise ValueError("record: expected snapshots of the weights, found none; train with snapshots=logarithmically")
    snapshots, steps = weights_of(arrays, "_snapshots"), record["snapshot"].values
    known = _with_direction(snapshots)
    if not known.any():
        raise ValueError(f"record: expected weights with a direction, found zeros at every snapshot {steps.tolist()}")
    run = descent.Run(
        weights=weights_of(arrays),
        snapshots=jax.tree.map(lambda leaf: leaf[:, known], snapshots),
        **{name: cast(Any, arrays[name]) for name in SERIES},
        snapshot_steps=cast(Any, np.tile(steps[known], (record.sizes["seed"], 1))),
    )
    return bias.rank(run, of_arrays(arrays), norms, key, model_of(record))


def alone(record: xarray.Dataset, head: str = "") -> xarray.Dataset:
    """Return a record restricted to the attention head of this number, or to the only head, on the original tokens."""
    names: dict[Any, str] = {
        f"{name}{head}{suffix}": f"{name}{suffix}" for name in "WKQ" for suffix in ("", "_initial", "_snapshots")
    }
    own = {old: new for old, new in names.items() if old in record}
    others = [name for name in record.data_vars if is_parameter(str(name)) and name not in own]
    config = json.loads(record.attrs["config"]) | {"model": {"_target_": "jaxattn.models.TransformedInputs"}}
    return record.drop_vars(others).rename(own).assign_attrs(config=json.dumps(config))


def model_of(record: xarray.Dataset) -> models.Model:
    """Return the model in a record's configuration; the plain model if there is none."""
    config = json.loads(record.attrs.get("config", "{}"))
    return models.of(instantiate(config["model"])) if "model" in config else models.plain


def _with_direction(snapshots: Any) -> np.ndarray:
    """Return for each snapshot whether the attention weights of some seed are not zero."""
    weights: Any = models.parts(snapshots).attention
    several = isinstance(weights, tuple) and not isinstance(weights, attention.Factored)
    return np.any([_is_not_zero(one) for one in (weights if several else (weights,))], axis=0)


def _is_not_zero(weights: Any) -> np.ndarray:
    # A product is zero if one of its factors is.
    parts = weights if isinstance(weights, attention.Factored) else (weights,)
    return np.all([np.any(np.asarray(part) != 0, axis=(0, 2, 3)) for part in parts], axis=0)


def to_dataset(ranking: bias.Ranking) -> xarray.Dataset:
    """Return a ranking as a dataset with the axes seed, norm and snapshot; `of_dataset` is the inverse.

    An estimate's mean has its own name (`ratio`, `trend`, `limit`), and its interval and standard error the suffixes
    `_low`, `_high` and `_error`. If the snapshots give no trend or limit it is missing. The attributes are the counts,
    `decades`, the `verdict` in one line, its parts `verdict_norms` (JSON), `decided` and `reason`, and `exponents`
    (JSON).
    """
    estimates = {
        name: (axes, found) for name, axes in _ESTIMATES.items() if (found := getattr(ranking, name)) is not None
    }
    verdict = ranking.verdict
    return xarray.Dataset(
        {**{name: (axes, getattr(ranking, name)) for name, axes in _AXES.items()}, **variables(estimates)},
        {"seed": ranking.seeds, "norm": np.array(ranking.norms, dtype=object), "snapshot": ranking.steps},
        {
            **ranking.counts,
            "decades": ranking.decades,
            "verdict": str(verdict),
            "verdict_norms": json.dumps(verdict.norms),
            "decided": int(verdict.decided),
            "reason": verdict.reason,
            "exponents": json.dumps([asdict(one) for one in ranking.exponents]),
        },
    )


def exponents_of(dataset: xarray.Dataset) -> tuple[bias.Exponent, ...]:
    """Return the exponents of a ranking that `to_dataset` has stored."""
    return tuple(bias.Exponent(**one) for one in json.loads(dataset.attrs["exponents"]))


def of_dataset(dataset: xarray.Dataset) -> bias.Ranking:
    """Return the ranking that `to_dataset` has stored."""

    def estimate(name: str) -> Estimate:
        names = [name, *(f"{name}_{part}" for part in Estimate._fields[1:])]
        return Estimate(*(dataset[one].values for one in names))

    attrs = dataset.attrs
    found: dict[str, Any] = {name: estimate(name) if name in dataset else None for name in _ESTIMATES}
    return bias.Ranking(
        norms=tuple(str(name) for name in dataset["norm"].values),
        steps=dataset["snapshot"].values,
        seeds=dataset["seed"].values,
        exponents=exponents_of(dataset),
        decades=attrs["decades"],
        counts={name: attrs[name] for name in ("attempted", "kept", "diverged", "infeasible", "unsolved")},
        verdict=bias.Verdict(tuple(json.loads(attrs["verdict_norms"])), bool(attrs["decided"]), attrs["reason"]),
        **{name: dataset[name].values for name in _AXES},
        **found,
    )
