"""Runs built by hand, in the form that `ratios.measure` returns, for the examples of claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import xarray

from jaxattn.experiments.bias.judging import Predicted
from jaxattn.experiments.bias.ratios import NORMS
from jaxattn.study.claims.claim import Datasets, Verdict
from jaxattn.study.settings.schedule import Logarithmically

SEEDS, STEPS = 40, np.array(Logarithmically(8)(20_000))
# For a norm that is not obeyed.
_FAR = 0.6


def run(
    name: str,
    ratios: Mapping[str, float],
    described: Mapping[str, str],
    moving: float = 0.0,
    probability: float = 0.9999,
    norms: Sequence[str] = NORMS,
) -> xarray.Dataset:
    """Return a run with these final mean margin ratios.

    Args:
        name: of the run.
        ratios: for some norms; 0.6 for the others.
        described: its `weights`, `rule`, `step` and `variant`.
        moving: by how much the ratios change per decade of steps.
        probability: of the selected tokens at the end.
        norms: that it is compared with.
    """
    ends = np.array([ratios.get(norm, _FAR) for norm in norms])
    # The seeds differ by a fraction of 1 - ratio.
    of_seeds = 1 - (1 - ends) * (1 + 0.1 * np.resize([-1.0, 1.0, -0.5, 0.5], SEEDS))[:, None]
    along = of_seeds[:, :, None] + moving * np.log10(STEPS / STEPS[-1])
    counts = {"attempted": SEEDS, "kept": SEEDS, "diverged": 0, "infeasible": 0, "unsolved": 0}
    return xarray.Dataset(
        {
            "margin_ratio": (("seed", "norm", "snapshot"), along),
            "probability": (("seed", "snapshot"), np.full((SEEDS, len(STEPS)), probability)),
        },
        {"seed": np.arange(SEEDS), "norm": np.array(norms, object), "snapshot": STEPS},
        {**counts, "run": name, **described},
    )


def of_prediction(prediction: Predicted, run: Callable[..., xarray.Dataset]) -> dict[Verdict, Datasets]:
    """Return a run that obeys the predicted norm, or none; one that stays elsewhere; and one that still moves.

    Args:
        prediction: its norm may be empty, for none.
        run: makes a run from the prediction, mean margin ratios of some norms, and changes of `run` above.
    """
    refuting = {prediction.norm: 0.9} if prediction.norm else {NORMS[0]: 0.99}
    return {
        Verdict.HOLDS: {prediction.name: run(prediction, {prediction.norm: 0.99})},
        Verdict.FAILS: {prediction.name: run(prediction, refuting)},
        Verdict.OPEN: {prediction.name: run(prediction, {}, moving=0.05)},
    }
