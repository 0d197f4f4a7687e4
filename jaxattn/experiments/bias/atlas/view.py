"""The margin ratios of every run along its steps, for the picture on the site."""

from __future__ import annotations

from typing import Any

from jaxattn.experiments.bias.atlas.predictions import PREDICTIONS
from jaxattn.experiments.bias.rules import RULES, STEPS
from jaxattn.study.claims import Datasets
from jaxattn.study.style.view import rounded

__all__ = ["view"]

_STEPS = {"constant": "constant step", "falling": "step k^-1/2"}
_RULES = {name: said.replace("$", "") for name, said in RULES.items()}


def view(datasets: Datasets) -> dict[str, Any]:
    """Return the mean margin ratios over the seeds, step by step.

    Args:
        datasets: of `measure`.

    Returns:
        The `norms`, and `rows`, for each run its `weights`, the rule and schedule that its `name` says, the norm that
        is `predicted`, the number of `seeds`, the `steps`, and the mean `ratio`, (norm, step).
    """
    runs = {(one.attrs["weights"], one.attrs["rule"], one.attrs["step"]): one for one in datasets.values()}
    predicted = {(one.weights, one.rule, one.step): one.norm for one in PREDICTIONS}
    rows = []
    for key in ((weights, rule, step) for rule in RULES for step in STEPS for weights in ("W", "KQ")):
        if key not in runs:
            continue
        one = runs[key]
        rows.append(
            {
                "weights": key[0],
                "name": f"{_RULES[key[1]]}, {_STEPS[key[2]]}",
                "predicted": predicted.get(key, ""),
                "seeds": one.sizes["seed"],
                "steps": one["snapshot"].values.tolist(),
                "ratio": rounded(one["margin_ratio"].mean("seed").values),
            }
        )
    return {"norms": [str(norm) for norm in next(iter(datasets.values()))["norm"].values], "rows": rows}
