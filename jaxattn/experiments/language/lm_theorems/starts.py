"""Where descent from any start ends on separable texts: descriptions of the runs, and estimates."""

from __future__ import annotations

import json
from typing import Any

import jax
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn import svm
from jaxattn.experiments.language import arrival
from jaxattn.experiments.language.arrival import late, outcomes
from jaxattn.statistics import bootstrap, variables


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Measure for every separable text where descent from its start has ended.

    Args:
        record: of a `StartedTraining`.
        solver: of the max-margin problems.

    Returns:
        The dataset of `arrival.measure`; the attributes identify the run.
    """
    config = json.loads(record.attrs["config"])
    delta, step_size = float(config["data"].get("delta", 0.0)), float(config["optimizer"]["step_size"])
    one = arrival.measure(record, delta, step_size, solver)
    return one.assign_attrs(**_described(config, record.sizes["feature"], delta, step_size))


def _described(config: dict[str, Any], d: int, delta: float, step_size: float) -> dict[str, Any]:
    """Return the description of a run, and its name."""
    law, loss = (config[name]["_target_"].rpartition(".")[2] for name in ("data", "loss"))
    # Without a floor, a normalized step follows the exact gradient direction.
    rule = "exact direction" if "floor" in config["optimizer"] else f"plain, step {step_size:g}"
    radius = float(config["weights"]["radius"])
    start = "W = 0" if not radius else f"||W|| = {radius:g}"
    if "word" in config["weights"]:
        start += ", W z along e_b"
    text = "two inputs" if law == "crossed" else f"texts, d = {d}"
    name = f"{text}, delta {delta:g}, {loss}, {rule}, from {start}"
    return {"run": name, "text": text, "d": d, "delta": delta, "loss": loss, "rule": rule, "radius": radius}


def ends(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Return where the runs of one kind have ended, and their direction errors.

    Args:
        one: of `measure`.
        key: of the bootstrap.

    Returns:
        Numbers of texts: `arrived`, with all prefixes served and W near W_mm; `left`, with unserved prefixes: W is near
        the solution of what it keeps, and the next word of every other prefix is behind by more than the margin along
        it; `moving`, all others; `unexplained`, with prefixes that are unserved although less behind. The means of
        `off` over the snapshots and of `off_kept`; the largest `within`, the mean `start`; `drift`, the change of the
        mean of `off` over the last two decades of steps.

    Raises:
        ValueError: impossible direction errors.
    """
    found = outcomes(one)
    estimates = {
        "off": (("snapshot",), bootstrap(one["off"].values, key)),
        "off_kept": ((), bootstrap(one["off_kept"].values, jax.random.fold_in(key, 1))),
    }
    counts = {
        "texts": one.sizes["seed"],
        **{name: int(hits.sum()) for name, hits in found._asdict().items()},
    }
    sizes = {"within": float(one["within"].max()), "start": float(one["start"].mean())}
    sizes["drift"] = float(late(one).mean())
    numbers = {name: ((), value) for name, value in (counts | sizes).items()}
    return xarray.Dataset(variables(estimates) | numbers, {"snapshot": one["snapshot"].values}, one.attrs)
