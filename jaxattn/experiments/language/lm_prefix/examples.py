"""Hand-built outcomes of starts for which the verdicts of the claims are known."""

from __future__ import annotations

import numpy as np
import xarray

from jaxattn.study.claims.claim import Datasets, Verdict

STEPS = np.array([1, 10, 100, 1000, 4000])
TEXTS, STARTS = 15, 4


def ended(
    delta: float = 0.0,
    rule: str = "exact direction",
    left: int = 0,
    moving: int = 0,
    behind: float = 1.3,
    far: float = 0.001,
    margin: float = 0.98,
    rises: bool = False,
    rate: float = 1.0,
    selects: float = 1.0,
    within: float = 0.4,
    texts: int = TEXTS,
    scale: float = 1.0,
    steps: np.ndarray = STEPS,
) -> xarray.Dataset:
    """Return the outcomes of starts in one run.

    Args:
        delta: of the scores.
        rule: of descent.
        left: number of starts with an unserved prefix.
        moving: number of starts that serve all prefixes but are not near the solution.
        behind: how far an unserved prefix is behind.
        far: 1 - cos with the solution of what a start keeps.
        margin: the mean margin ratio.
        rises: whether 1 - cos rises at the end.
        rate: slope of the norm of W over that of W_mm in the logarithm of the steps.
        selects: the smallest attention to an optimal token, among served prefixes.
        within: the step size times L.
        texts: number of texts.
        scale: of the start.
        steps: of the snapshots.
    """
    rng = np.random.default_rng(2)
    starts = texts * STARTS
    noise = 1 + rng.normal(0, 0.02, (starts, 1))
    place = np.arange(starts)
    end = np.where(place < left, 0.3, np.where(place < left + moving, 0.1, far))
    off = noise * np.geomspace(0.8, end, len(steps), axis=1)
    if rises:
        off[:, :-1] = off[:, -1:] * np.linspace(0.5, 0.9, len(steps) - 1)
    variables = {
        "off": (("seed", "snapshot"), off),
        "margin": (("seed",), margin + 0.001 * (noise[:, 0] - 1)),
        "attention": (("seed",), np.where(place < left, 1e-9, selects)),
        "off_kept": (("seed",), noise[:, 0] * far),
        "margin_kept": (("seed",), margin + 0.001 * (noise[:, 0] - 1)),
        "unserved": (("seed",), (place < left).astype(int)),
        "behind": (("seed",), np.where(place < left, behind, 0.0)),
        "start": (("seed",), np.full(starts, 2.0)),
        "growth": (("seed", "snapshot"), noise * rate * np.log(steps)),
        "within": (("seed",), np.full(starts, within)),
        "text": (("seed",), place // STARTS),
    }
    counts = {"attempted": 128, "kept": starts, "diverged": 0, "ambiguous": 0, "infeasible": 128 - starts}
    told = {"unsolved": 0, "d": 10, "delta": delta, "rule": rule, "scale": scale, "starts": STARTS}
    name = {"run": f"d = 10, delta {delta:g}, {rule}, from normal W, scale {scale:g}"}
    return xarray.Dataset(variables, {"seed": place, "snapshot": steps}, counts | told | name)


def runs(*changed: xarray.Dataset) -> Datasets:
    """Return a run of each rule and delta in which all starts converge, except for those given."""
    usual = [ended(delta, rule) for delta in (0.0, 0.01) for rule in ("exact direction", "plain")]
    return {one.attrs["run"]: one for one in (*usual, *changed)}


def of_equal() -> dict[Verdict, Datasets]:
    """All converge; some leave a prefix unserved; some come near no solution; or some are still moving."""
    return _of_theorem(ended(moving=3))


def of_close() -> dict[Verdict, Datasets]:
    """As `of_equal`, also with equal scores; or some may need a smaller delta."""
    return _of_theorem(ended(0.01, left=3))


def _of_theorem(undecided: xarray.Dataset) -> dict[Verdict, Datasets]:
    return {
        Verdict.HOLDS: runs(),
        Verdict.CORRECTED: runs(ended(left=4)),
        Verdict.FAILS: runs(ended(left=4, far=0.04)),
        Verdict.OPEN: runs(undecided),
    }


def of_selection() -> dict[Verdict, Datasets]:
    """All select; some leave a prefix unserved; or some do not select yet."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(ended(left=1)),
        Verdict.OPEN: runs(ended(selects=0.99)),
    }
