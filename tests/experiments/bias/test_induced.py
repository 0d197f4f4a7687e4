"""Synthetic measurements of steepest descent on (K, Q), and what a trained record gives."""

from jaxattn.bias.limits import window
from jaxattn.experiments.bias.induced import NORMS
from tests.experiments.bias import synthetic

INDUCED = {"Frobenius": "nuclear", "spectral": "spectral", "longest row": "gamma2", "largest entry": "sign"}
VERDICTS = {"atlas-induced:gd-10": "does not hold", "atlas-induced:sign-10": "not decided"}


def measured():
    """The induced norms are obeyed, but that of sign descent at small width is still being approached."""
    return {
        **{f"{rule}, m = {m}": run({norm: 0.99}) for rule, norm in INDUCED.items() for m in (10, 40)},
        "largest entry, m = 10": run({"sign": 0.9}, moving=0.2),
        "Frobenius, m = 10": run({"nuclear": 0.9}),
    }


def run(ratios, moving=0.0):
    return synthetic.run(ratios, NORMS, moving, synthetic.STEPS[window(synthetic.STEPS)])
