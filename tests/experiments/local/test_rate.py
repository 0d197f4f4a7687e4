"""Synthetic measurements of the rate of long runs."""

import numpy as np

from jaxattn.study.settings.schedule import Logarithmically
from tests.experiments.synthetic import synthetic

STEPS = np.array(Logarithmically(8)(200_000))
SEEDS = 20
VERDICTS = {"rate:W": "holds with a correction", "rate:KQ": "holds with a correction"}


def measured():
    """The published runs stall, descent on W along the exact direction falls like k^-2, and decreasing steps go on."""
    fast, stalled, slow = 1e3 * STEPS**-2.0, 5e-3 * STEPS**0.01, 0.1 * STEPS**-0.5
    return {
        "W, as published": run("free", stalled),
        "W, exact direction": run("free", fast),
        "KQ, as published": run("factored", stalled),
        "KQ, exact direction": run("factored", stalled),
        "KQ, step k^-1/2": run("factored", slow),
    }


def run(weights, off):
    """A run at these distances from both solutions, with a spread over seeds."""
    spread = 1 + 0.1 * np.linspace(-1, 1, SEEDS)[:, None, None]
    return synthetic(
        SEEDS,
        {"weights": weights, "steps": int(STEPS[-1])},
        {"norm": ["frobenius", "nuclear"], "snapshot": STEPS},
        off=(("seed", "norm", "snapshot"), spread * np.tile(off, (2, 1))),
    )
