"""Synthetic solutions of rank n with rows in the span of the queries, and what lies beyond."""

import jax
import numpy as np
import pytest
import xarray

from jaxattn.experiments.max_margin.low_rank_lemma import EXPERIMENT, summarize
from jaxattn.svm import Status

n, NORMS = 3, ("frobenius", "nuclear")
VERDICTS = {}


def measured(**changes):
    """24 problems solved by this package, and three by an external solver."""
    return {"n=3 T=8": run(24, d=6, **changes), "n=3 T=8 by CLARABEL": run(3, d=5, solver="CLARABEL")}


def run(seeds, d, solver="", beyond=0.0, outside=0.0, unsolved=0):
    """Solutions with one more singular value, relative to the largest, and a row at an angle of this sine."""
    rng = np.random.default_rng(d)
    P, Q = (np.linalg.qr(rng.normal(size=(seeds, 1, 1, d, d)))[0].repeat(2, axis=2) for _ in range(2))
    values = np.zeros(d)
    values[:n], values[n] = 4.0, 4.0 * beyond
    Z = np.swapaxes(Q[:, :, 0, :, :n], -1, -2) * np.array([1.0, 3.0, 2.0])[:, None]
    Q[..., 0] = np.sqrt(1 - outside**2) * Q[..., 0] + outside * Q[..., d - 1]
    W = np.einsum("sdnak,k,sdnbk->sdnab", P, values, Q)
    status = np.full((seeds, 1, 2), Status.OPTIMAL)
    status[:unsolved, :, 1] = Status.NOT_CONVERGED
    axes = ("seed", "d", "norm")
    return xarray.Dataset(
        {
            "status": (axes, status),
            "gap": (axes, np.full(status.shape, -2e-16)),
            "W_svm": ((*axes, "feature", "query_feature"), W),
            "singular_values": ((*axes, "direction"), np.linalg.svd(W, compute_uv=False)),
            "Z": (("seed", "d", "input", "query_feature"), Z),
        },
        {"seed": np.arange(seeds), "d": [d], "norm": np.array(NORMS, object)},
        {"solver": solver, "n": n, "attempted": seeds, "kept": seeds - unsolved, "unsolved": unsolved},
    )


def judged(runs):
    summaries = summarize(runs, jax.random.key(0))
    return summaries, [claim.judge(summaries) for claim in EXPERIMENT.claims]


@pytest.mark.parametrize("change", ["beyond", "outside"])
def test_what_lies_beyond_rank_n_and_outside_the_span_is_measured_and_refutes(change):
    summaries, found = judged(measured(**{change: 1e-3}))
    assert [str(one.verdict) for one in found] == ["does not hold"] * 2
    # A value beyond the rank has a row outside the span.
    size = summaries["n=3 T=8"][change].values
    np.testing.assert_allclose(size, 1e-3 / (1 if change == "beyond" else np.sqrt(3)), rtol=1e-6)
