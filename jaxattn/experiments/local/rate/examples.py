"""Hand-built datasets for which the verdicts of the claims on the rate are known."""

from __future__ import annotations

from numpy.typing import ArrayLike

from jaxattn.descent import PUBLISHED_EPSILON
from jaxattn.experiments.local.made import STEPS, long_run, named
from jaxattn.study.claims.claim import Datasets, Verdict

# Distances from the solution, 1 - cos, at STEPS: like k^-2 and small at the end; at the threshold of k^-2; stalled;
# growing; still falling; and at the threshold of still falling.
_FAST, _EDGE, _STANDS, _LEAVES = 1e3 * STEPS**-2.0, 1e2 * STEPS**-1.8, 5e-3, 1e-6 * STEPS**0.9
_GOES_ON, _SLOW = 0.1 * STEPS**-0.5, 0.1 * STEPS**-0.12


def runs(
    W: ArrayLike, W_exact: ArrayLike, KQ: ArrayLike, KQ_exact: ArrayLike, KQ_falling: ArrayLike = _GOES_ON
) -> Datasets:
    """Return the five runs of the experiment with these distances."""
    return named(
        [
            long_run(W, "W", penalty=PUBLISHED_EPSILON),
            long_run(W_exact, "W"),
            long_run(KQ, "KQ", penalty=PUBLISHED_EPSILON),
            long_run(KQ_exact, "KQ", "exact_normalized_gd"),
            long_run(KQ_falling, "KQ", "exact_normalized_gd", step="falling", step_size=1.0),
        ]
    )


def of_W() -> dict[Verdict, Datasets]:
    """Both forms are fast; only the exact one; neither; or the exponent is close to the threshold."""
    return {
        Verdict.HOLDS: runs(_FAST, _FAST, _STANDS, _STANDS),
        Verdict.CORRECTED: runs(_STANDS, _FAST, _STANDS, _STANDS),
        Verdict.FAILS: runs(_STANDS, _LEAVES, _STANDS, _STANDS),
        Verdict.OPEN: runs(_EDGE, _EDGE, _STANDS, _STANDS),
    }


def of_KQ() -> dict[Verdict, Datasets]:
    """The published form keeps falling; the one with decreasing steps; neither; or the published one is undecided."""
    return {
        Verdict.HOLDS: runs(_STANDS, _FAST, _GOES_ON, _STANDS),
        Verdict.CORRECTED: runs(_STANDS, _FAST, _STANDS, _STANDS),
        Verdict.FAILS: runs(_STANDS, _FAST, _STANDS, _STANDS, _STANDS),
        Verdict.OPEN: runs(_STANDS, _FAST, _SLOW, _STANDS),
    }
