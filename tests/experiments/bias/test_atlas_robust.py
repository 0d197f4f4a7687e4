"""Synthetic measurements of the atlas with changes: what counts as a verdict that changes."""

import jax
import pytest

from jaxattn.experiments.bias.atlas_robust import EXPERIMENT
from tests.experiments.bias import synthetic

pytestmark = pytest.mark.usefixtures("drawn_once")
VERDICTS = {"atlas-robust:sizes": "does not hold", "atlas-robust:starts": "not decided"}
CHANGED, MOVING = "W, sign descent, constant, (4, 4, 6)", "W, sign descent, constant, start as published"


def measured(changed=0.9):
    """One verdict changes with the size, and one with another start is not decided."""
    runs = {}
    for name in synthetic.run_names("atlas-robust"):
        norm = "max" if "sign" in name else "spectral"
        runs[name] = synthetic.run({norm: changed if name == CHANGED else 0.99})
    return runs | {MOVING: synthetic.run({"max": 0.9}, moving=0.05)}


def test_the_runs_are_those_of_the_claims():
    summaries = EXPERIMENT.estimates(measured(), jax.random.key(0))
    counts = [claim.judge(summaries).counts for claim in EXPERIMENT.claims]
    assert sum(map(len, counts)) + 5 == len(summaries) == 25
    assert not any(first.keys() & second.keys() for k, first in enumerate(counts) for second in counts[:k])
