"""Synthetic measurements of wider heads, and the best head of each decoder."""

import jax
import numpy as np

from jaxattn.experiments.beyond import wide_heads
from tests.experiments.beyond import test_hierarchy

VERDICTS = {"wide-heads:hope": "does not hold"}


def measured():
    """Heads obey where only K and Q are trained, and end at .2 elsewhere."""
    alone = {wide_heads.ALONE: test_hierarchy.run(obeys=True, soft=False)}
    return alone | {name: test_hierarchy.run(obeys=False, soft=True) for name in wide_heads.EVERYTHING}


def test_the_best_head_in_both_norms_counts():
    run = measured()["Adam"]
    run["ratio"][0, -1, 1, -1] = 0.9
    found = wide_heads.estimate_run(run, jax.random.key(0))
    others = run["ratio"].isel(snapshot=-1).max(("head", "norm"))[1:]
    np.testing.assert_allclose(found["top"], (0.9 + float(others.sum())) / run.sizes["seed"], rtol=1e-12)
