"""The lemma: what is measured of matrices built by hand, verdicts both ways, and what the figure draws."""

import jax
import numpy as np
import pytest
import xarray

from jaxattn.experiments.max_margin.low_rank_lemma import claims as low_rank
from jaxattn.experiments.max_margin.low_rank_lemma import figure
from jaxattn.study.claims import Verdict
from jaxattn.svm import Status
from tests.instances import drawn_lines

KEY = jax.random.key(0)
n, NORMS = 2, ["frobenius", "nuclear"]


def separated(solver="", seeds=24, d=5, beyond=0.0, outside=0.0, unsolved=0):
    """Solutions of rank n with rows in the span of the queries, but for two relative parts.

    `beyond` is a further singular value, whose row is within the span only if `outside` is 0.
    """
    rng = np.random.default_rng(d)
    Q = np.linalg.qr(rng.normal(size=(seeds, 1, 2, d, d)))[0]
    P = np.linalg.qr(rng.normal(size=(seeds, 1, 2, d, d)))[0]
    values = np.zeros(d)
    values[:n], values[n] = 4.0, 4.0 * beyond
    Z = np.swapaxes(Q[:, :, 0, :, :n], -1, -2) * np.array([1.0, 3.0])[:, None]
    Q[:, :, 1] = Q[:, :, 0]
    if outside:
        # The first row direction leaves the span by this angle.
        Q[..., 0] = np.sqrt(1 - outside**2) * Q[..., 0] + outside * Q[..., d - 1]
    W = np.einsum("sdnak,k,sdnbk->sdnab", P, values, Q)
    status = np.full((seeds, 1, 2), Status.OPTIMAL)
    status[:unsolved, :, 1] = Status.NOT_CONVERGED
    variables = {
        "status": (("seed", "d", "norm"), status),
        "gap": (("seed", "d", "norm"), np.full(status.shape, -2e-16)),
        "W_svm": (("seed", "d", "norm", "feature", "query_feature"), W),
        "singular_values": (("seed", "d", "norm", "direction"), np.linalg.svd(W, compute_uv=False)),
        "Z": (("seed", "d", "input", "query_feature"), Z),
    }
    attrs = {"run": f"n={n} T=3" + (f" by {solver}" if solver else ""), "solver": solver, "n": n, "T": 3}
    attrs |= {"attempted": seeds, "kept": seeds - unsolved, "infeasible": 0, "unsolved": unsolved}
    return xarray.Dataset(variables, {"seed": np.arange(seeds), "d": [d], "norm": NORMS}, attrs)


def summarized(own=None, witness=None):
    runs = [separated(**(own or {})), separated(**({"solver": "CLARABEL", "d": 4, "seeds": 3} | (witness or {})))]
    return low_rank.summarize({one.attrs["run"]: one for one in runs}, KEY)


@pytest.mark.parametrize(
    ("own", "witness", "verdict"),
    [
        ({}, {}, Verdict.HOLDS),
        ({"beyond": 1e-10}, {}, Verdict.FAILS),
        ({"outside": 1e-10}, {}, Verdict.FAILS),
        ({}, {"beyond": 1e-8, "outside": 1e-8}, Verdict.HOLDS),
        ({}, {"beyond": 1e-4}, Verdict.FAILS),
        ({}, {"outside": 1e-4}, Verdict.FAILS),
        ({}, {"unsolved": 3}, Verdict.OPEN),
        ({"seeds": 19}, {}, Verdict.OPEN),
        ({"unsolved": 5}, {}, Verdict.OPEN),
    ],
)
def test_the_lemma_holds_only_at_rounding_level_and_with_a_witness(own, witness, verdict):
    claims = summarized(own, witness)[1]
    assert [claim.id for claim in claims] == ["low-rank-lemma:frobenius", "low-rank-lemma:nuclear"]
    assert [claim.verdict for claim in claims] == [verdict, verdict]


def test_what_lies_beyond_rank_n_and_outside_the_span_is_measured():
    summaries, (frobenius, nuclear) = summarized({"beyond": 1e-3, "outside": 0.6}, {"unsolved": 1})
    own = summaries["n=2 T=3"]
    np.testing.assert_allclose(own["beyond"], 1e-3, rtol=1e-10)
    # Of two equal singular values one row leaves the span with 0.6 of its length; the third row is outside.
    np.testing.assert_allclose(own["outside"], np.sqrt((0.36 + 1e-6) / (2 + 1e-6)), rtol=1e-10)
    assert summaries["n=2 T=3 by CLARABEL"]["seed"].values.tolist() == [1, 2]
    assert frobenius.measured["sigma_3/sigma_1, d=5, largest"] == pytest.approx(1e-3)
    assert frobenius.measured["distance to the minimizer over ||W||_F, d=5, at most"] == pytest.approx(2e-8)
    assert "distance to the minimizer over ||W||_F, d=5, at most" not in nuclear.measured
    assert nuclear.measured["||W(I - P_Z)||_F/||W||_F, d=4, largest, by CLARABEL"] < 1e-15
    assert nuclear.counts["n=2 T=3 by CLARABEL"] == {"attempted": 3, "kept": 2, "infeasible": 0, "unsolved": 1}


def test_the_figure_draws_every_kept_problem():
    summaries = summarized({"beyond": 1e-3}, {"unsolved": 1})[0]
    drawn = figure.draw(summaries)
    spectra, outside = drawn.axes
    expected = [
        np.median(one["singular_values"].sel(norm=norm), axis=0) for one in summaries.values() for norm in NORMS
    ]
    for (_, drawn_values), values in zip(drawn_lines(spectra, least=3), expected, strict=True):
        np.testing.assert_allclose(drawn_values, values, rtol=1e-12, atol=1e-15)
    points = [np.asarray(dots.get_offsets())[:, 1] for dots in outside.collections]
    kept = [one["outside"].sel(norm=norm).values for one in summaries.values() for norm in NORMS]
    for found, values in zip(points, kept, strict=True):
        np.testing.assert_allclose(found, np.maximum(values, 1e-18))
    assert "n=2 T=3 by CLARABEL: 2 of 3 problems kept (0 infeasible, 1 unsolved)" in drawn.get_supxlabel()
