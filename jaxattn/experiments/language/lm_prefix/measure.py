"""From the record of descent on texts read by a fixed head: where each start has ended."""

from __future__ import annotations

import json

import xarray

from jaxattn import svm
from jaxattn.experiments.language import arrival


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare every start of a run with the hard-margin solution of its text.

    Args:
        record: of a `StartedTraining` from normal weights, on texts that a fixed head reads.
        solver: of the max-margin problems.

    Returns:
        The dataset of `arrival.measure`, and the `text` of every start. The attribute `run` names the dimension, delta,
        the rule of descent and the start; these are also attributes.
    """
    config = json.loads(record.attrs["config"])
    delta, step = float(config["data"]["head"]["delta"]), float(config["optimizer"]["step_size"])
    scale, starts = float(config["weights"]["scale"]), int(config["weights"]["starts"])
    d = record.sizes["feature"]
    one = arrival.measure(record, delta, step, solver)
    # Without a floor, a normalized step follows the exact gradient direction.
    rule = "exact direction" if "floor" in config["optimizer"] else "plain"
    start = f"normal W, scale {scale:g}" if scale else "W = 0"
    told = {"d": d, "delta": delta, "rule": rule, "scale": scale, "starts": starts}
    one["text"] = (("seed",), one["seed"].values // starts)
    return one.assign_attrs(run=f"d = {d}, delta {delta:g}, {rule}, from {start}", **told)
