"""Hand-built runs from drawn starts, added to those of `examples`, for which the verdicts of the claims are known."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray

from jaxattn.experiments.language.lm_theorems.examples import EDGE, NEAR, STEPS, runs
from jaxattn.study.claims.claim import Datasets, Verdict

TEXTS = 15


def ended(
    delta: float = 0.0,
    loss: str = "logistic",
    left: int = 0,
    behind: float = 1.3,
    moving: int = 0,
    far: float = 0.001,
    rule: str = "exact direction",
    texts: int = TEXTS,
) -> xarray.Dataset:
    """Return runs from drawn starts.

    Args:
        delta: of the scores.
        loss: by name.
        left: number of texts with an unserved prefix.
        behind: how far it is behind.
        moving: number that serve all prefixes but are not near the solution yet.
        far: from the solution of what a run keeps.
        rule: of descent.
        texts: number of texts.
    """
    noise = 1 + np.random.default_rng(1).normal(0, 0.02, (texts, 1))
    place = np.arange(texts)
    end = np.where(place < left, 0.3, np.where(place < left + moving, 0.1, far))
    off = noise * np.geomspace(0.8, end, len(STEPS), axis=1)
    variables = {
        "off": (("seed", "snapshot"), off),
        "off_kept": (("seed",), noise[:, 0] * far),
        "unserved": (("seed",), (place < left).astype(int)),
        "behind": (("seed",), np.where(place < left, behind, 0.0)),
        "start": (("seed",), np.full(texts, 2.0)),
        "growth": (("seed", "snapshot"), np.full((texts, len(STEPS)), 100.0)),
        "within": (("seed",), np.full(texts, 0.1)),
    }
    counts = {"attempted": 32, "kept": texts, "diverged": 0, "infeasible": 32 - texts, "unsolved": 0}
    told = {"text": "texts, d = 10", "d": 10, "delta": delta, "loss": loss, "rule": rule, "radius": 10.0}
    name = {"run": f"texts, d = 10, delta {delta:g}, {loss}, {rule}, from ||W|| = 10"}
    return xarray.Dataset(variables, {"seed": np.arange(texts), "snapshot": STEPS}, counts | told | name)


def with_ends(
    *ends: xarray.Dataset, changed: Mapping[tuple[float, float], Mapping[str, object]] | None = None
) -> Datasets:
    """Return the runs of `examples` together with these."""
    return {**runs(changed), **{one.attrs["run"]: one for one in ends}}


def of_equal() -> dict[Verdict, Datasets]:
    """All converge; some leave a prefix unserved; one hardly behind is unserved; or some are still moving."""
    return {
        Verdict.HOLDS: with_ends(ended()),
        Verdict.CORRECTED: with_ends(ended(left=4)),
        Verdict.FAILS: with_ends(ended(left=4, behind=0.5), changed={(0.0, 50.0): {"off": NEAR}}),
        Verdict.OPEN: with_ends(ended(moving=3)),
    }


def of_close() -> dict[Verdict, Datasets]:
    """All converge; some leave a prefix unserved; such runs are near no solution; or a path is undecided."""
    return {
        Verdict.HOLDS: with_ends(ended(), ended(0.01)),
        Verdict.CORRECTED: with_ends(ended(left=4), ended(0.01)),
        Verdict.FAILS: with_ends(ended(left=4), ended(0.01, left=2, behind=0.5)),
        Verdict.OPEN: with_ends(ended(), ended(0.01), changed={(0.5, 50.0): {"off": EDGE}}),
    }


def of_cross_entropy() -> dict[Verdict, Datasets]:
    """All converge; some leave a prefix unserved; or some are still moving."""
    return {
        Verdict.HOLDS: with_ends(ended(), ended(loss="cross_entropy")),
        Verdict.FAILS: with_ends(ended(), ended(loss="cross_entropy", left=2)),
        Verdict.OPEN: with_ends(ended(), ended(loss="cross_entropy", moving=2)),
    }


def of_printed() -> dict[Verdict, Datasets]:
    """Both signs converge; only the reversed one does; neither does; or the printed one may."""
    turned = ended(loss="turned")
    return {
        Verdict.HOLDS: with_ends(ended(loss="printed"), turned),
        Verdict.CORRECTED: with_ends(ended(loss="printed", far=1.7), turned),
        Verdict.FAILS: with_ends(ended(loss="printed", far=1.7), ended(loss="turned", far=0.5)),
        Verdict.OPEN: with_ends(ended(loss="printed", far=0.02), turned),
    }
