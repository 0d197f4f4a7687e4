"""Runs built by hand, as `ratios.measure` would return them: what the examples of claims are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import xarray

from jaxattn.experiments.bias.judging import Predicted
from jaxattn.experiments.bias.rules import NORMS
from jaxattn.study.claims.claim import Datasets, Verdict
from jaxattn.study.settings.schedule import Logarithmically

SEEDS, STEPS = 40, np.array(Logarithmically(8)(20_000))
# Of a norm that is not obeyed.
_FAR = 0.6


def run(
    name: str,
    ratios: Mapping[str, float],
    described: Mapping[str, str],
    moving: float = 0.0,
    probability: float = 0.9999,
    norms: Sequence[str] = NORMS,
) -> xarray.Dataset:
    """Return a run with these mean margin ratios at its end.

    Args:
        name: of the run.
        ratios: of some norms; of the others 0.6.
        described: its `weights`, `rule`, `step` and `variant`.
        moving: by how much the ratios change in a decade of steps.
        probability: of the selected tokens at the end.
        norms: that it is held against.
    """
    ends = np.array([ratios.get(norm, _FAR) for norm in norms])
    # The seeds differ by a share of what lacks to 1.
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
    """Return a run in which the predicted norm is obeyed, or none; one that stands still elsewhere; one that moves.

    Args:
        prediction: the norm of which may be empty, for none.
        run: of the prediction, mean margin ratios of some norms, and changes of `run` above.
    """
    refuting = {prediction.norm: 0.9} if prediction.norm else {NORMS[0]: 0.99}
    return {
        Verdict.HOLDS: {prediction.name: run(prediction, {prediction.norm: 0.99})},
        Verdict.FAILS: {prediction.name: run(prediction, refuting)},
        Verdict.OPEN: {prediction.name: run(prediction, {}, moving=0.05)},
    }
