"""Synthetic measurements of Muon with several Newton-Schulz iterations, and updates read from a planted record."""

import numpy as np

from jaxattn.experiments.bias import newton_schulz
from tests.experiments.bias import synthetic

VERDICTS = {"newton-schulz:weights": "holds", "newton-schulz:updates": "does not hold"}
_USUAL, _CONVERGENT = (f"usual coefficients, {k} iterations" for k in (5, 12)), "convergent coefficients, 24 iterations"


def measured():
    """The usual coefficients leave singular values apart, and W off; the convergent ones only the former."""
    return {name: run(0.85, 0.6) for name in _USUAL} | {_CONVERGENT: run(0.995, 0.8)}


def run(ratio, evenness):
    made = synthetic.run({"spectral": ratio}, newton_schulz.bias.NORMS)
    spread = evenness + 0.0001 * synthetic.SPREAD
    return made.assign(evenness=(("seed", "snapshot"), np.tile(spread[:, None], len(synthetic.STEPS))))
