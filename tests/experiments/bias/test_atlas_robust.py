"""Synthetic measurements of the atlas with changes: what counts as a verdict that changes."""

import jax
import pytest

from jaxattn.experiments.bias.atlas_robust import EXPERIMENT
from tests.experiments.bias import synthetic

KEY = jax.random.key(0)
VERDICTS = {
    "atlas-robust:sizes": "does not hold",
    "atlas-robust:starts": "not decided",
    "atlas-robust:precision": "holds",
}
CHANGED, MOVING = "W, sign descent, constant, (4, 4, 6)", "W, sign descent, constant, start as published"


def measured(changed=0.9):
    """One verdict changes with the size, and one with another start is not decided."""
    runs = {}
    for name in synthetic.run_names("atlas-robust"):
        norm = "max" if "sign" in name else "spectral"
        runs[name] = synthetic.run({norm: changed if name == CHANGED else 0.99})
    return runs | {MOVING: synthetic.run({"max": 0.9}, moving=0.05)}


def test_the_runs_are_those_of_the_claims():
    summaries = EXPERIMENT.estimates(measured(), KEY)
    counts = [claim.judge(summaries).counts for claim in EXPERIMENT.claims]
    assert sum(map(len, counts)) + 5 == len(summaries) == 25
    assert not any(first.keys() & second.keys() for k, first in enumerate(counts) for second in counts[:k])


@pytest.mark.parametrize(
    ("changed", "note", "count"),
    [
        (0.9, f"Changed: {CHANGED}: none of these.", 1),
        (0.98, "All 10 verdicts agree with those of the same rule in the atlas.", 0),
    ],
)
def test_a_decided_verdict_must_not_change(changed, note, count):
    summaries = EXPERIMENT.estimates(measured(changed), KEY)
    judgements = {claim.id: claim.judge(summaries) for claim in EXPERIMENT.claims}
    assert judgements["atlas-robust:sizes"].note == note
    assert EXPERIMENT.draw is not None
    (axes,) = EXPERIMENT.draw(summaries, judgements).axes
    title = f"Verdicts that change with size, start or precision: {count} of 20; not decided: 1"
    assert axes.get_title() == title
    assert sum(text.get_text() == ".900\nmax, none" for text in axes.texts) == (changed == 0.9)
    assert sum(text.get_text() == ".900\nmax, open" for text in axes.texts) == 1
