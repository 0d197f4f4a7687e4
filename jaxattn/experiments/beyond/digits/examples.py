"""Hand-built datasets for which the verdicts of the claims on digits are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray

from jaxattn.experiments.beyond.digits.measure import NORMS
from jaxattn.experiments.bias import made
from jaxattn.experiments.bias.judging import Prediction
from jaxattn.study.claims.claim import Datasets, Verdict

_OWN = {"W": "frobenius", "KQ": "nuclear"}
# Approximately the exponents of descent.
_FALLS = {"W": -2.0, "KQ": -0.4}


def run(
    weights: str,
    law: str,
    ratios: Mapping[str, float] | None = None,
    exponent: float | None = None,
    separable: float = 1.0,
    **changes: Any,
) -> xarray.Dataset:
    """Return a run on the tokens of a law.

    Args:
        weights: "W" or "KQ".
        law: "class", "patch" or "sphere".
        ratios: final mean margin ratios; .99 for its own norm if None.
        exponent: the exponent p in 1 - cos ~ k^p; about that of descent if None.
        separable: share of the problems whose optimal tokens can be separated.
        changes: of `made.run`.
    """
    described = {"weights": weights, "tokens": law}
    known = {_OWN[weights]: 0.99} if ratios is None else ratios
    one = made.run(f"{weights}, {law}", known, described, norms=NORMS, **changes)
    seeds, steps = one.sizes["seed"], one["snapshot"].values
    # Each seed has its own exponent, around the given one.
    own = (_FALLS[weights] if exponent is None else exponent) + 0.1 * np.resize([-1.0, 1.0, -0.5, 0.5], seeds)
    off = 1e-3 * (steps / 1000) ** own[:, None, None]
    margin = np.where(np.arange(seeds) < round(separable * seeds), 0.2, 0.0)
    return one.assign(
        off=(("seed", "norm", "snapshot"), np.broadcast_to(off, (seeds, len(NORMS), len(steps)))),
        optimal=(("seed",), np.full(seeds, 0.95)),
        optimal_margin=(("attempt",), np.tile(margin, 3)),
    ).assign_attrs(unknown=0)


def runs(weights: str = "W", law: str = "patch", **changes: Any) -> Datasets:
    """Return all runs of the experiment, one of them with changes."""
    found = {}
    for one in ("W", "KQ"):
        for tokens in ("class", "patch", "sphere"):
            given = changes if (one, tokens) == (weights, law) else {}
            found[f"{one}, {tokens}"] = run(one, tokens, **given)
    return found


def of_prediction(prediction: Prediction) -> dict[Verdict, Datasets]:
    """The predicted norm is obeyed; none is, and nothing moves; or the ratios still move."""

    def of_run(one: Prediction, ratios: Mapping[str, float], **changes: Any) -> xarray.Dataset:
        return run(one.row["weights"], one.row["tokens"], ratios, **changes)

    return made.of_prediction(prediction, of_run)


def of_rate(weights: str) -> dict[Verdict, Datasets]:
    """The exponents are those of the sphere; patches are slower; close to the threshold; for (K, Q) also faster."""
    falls = _FALLS[weights]
    found = {
        Verdict.HOLDS: runs(weights),
        Verdict.FAILS: runs(weights, exponent=falls + 0.4),
        Verdict.OPEN: runs(weights, exponent=falls + 0.2),
    }
    return found | ({Verdict.CORRECTED: runs(weights, exponent=falls - 0.4)} if weights == "KQ" else {})


def of_separable() -> dict[Verdict, Datasets]:
    """All problems are separable; two thirds; or about the share asked for."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(separable=2 / 3),
        Verdict.OPEN: runs(separable=0.95),
    }
