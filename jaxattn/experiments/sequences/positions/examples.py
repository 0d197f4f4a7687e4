"""Hand-built datasets for which the verdicts of the claims on sequences are known."""

from __future__ import annotations

import numpy as np
import xarray

from jaxattn import svm
from jaxattn.experiments.sequences.positions.measure import FALLING, LONG, PATH, PREFIXES
from jaxattn.study.claims.claim import Datasets, Verdict
from jaxattn.study.measuring.growth import AT_REST

SEEDS = 12
STEPS = np.array([200, 1000, 2000])
COUNTS = {"attempted": SEEDS, "kept": SEEDS, "diverged": 0, "infeasible": 0, "unsolved": 0}
# A small spread over seeds.
_WOBBLE = np.resize([-0.001, 0.001], SEEDS)


def run(
    name: str,
    own: float,
    other: float = 0.0,
    probability: float = 0.9999,
    last: int = 2000,
    attention: str = "causal",
    status: svm.Status = svm.Status.OPTIMAL,
    growth: float = 0.0,
    margin: float = 0.998,
) -> xarray.Dataset:
    """Return a run with these correlations at the last step, and a little less before.

    Args:
        name: "W", "KQ", `LONG` or `FALLING`; the run's name is this after the prefix of its attention.
        own: correlation with the solution of its own norm.
        other: with that of the other norm; the run along the exact gradient direction is compared only with its own.
        probability: the largest.
        last: steps.
        attention: "sequence" or "causal".
        status: of the SVM of the last seed.
        growth: the exponent p in ||W Z|| ~ k^p.
        margin: margin ratio, in every norm and at every step.
    """
    norms = ["nuclear", "frobenius"] if name in ("KQ", FALLING) else ["frobenius", "nuclear"]
    if name in (LONG, FALLING):
        norms = norms[:1]
    steps = STEPS[last >= STEPS] if last >= 1000 else np.array([last])
    ends = np.array([own, other][: len(norms)])
    # The spread over seeds is not the same for both solutions.
    wobble = np.stack([np.roll(_WOBBLE, k) for k in range(len(norms))], axis=1)
    correlation = ends[None, :, None] - 0.1 * (steps < last)[None, None, :] + wobble[:, :, None]
    of_attempt = np.full((SEEDS, len(norms)), int(svm.Status.OPTIMAL))
    of_attempt[-1] = status
    variables = {
        "correlation": (("seed", "norm", "snapshot"), correlation),
        "margin_ratio": (("seed", "norm", "snapshot"), margin + 0 * correlation + wobble[:, :, None]),
        "probability": (("seed", "step"), np.full((SEEDS, last), probability) + 1e-5 * _WOBBLE[:, None]),
        "status": (("attempt", "norm"), of_attempt),
        "optimal_share": (("seed",), 0.8 + _WOBBLE),
        # The exponents of the seeds are 0.02 apart.
        "length": (("seed", "snapshot"), 400 * (steps / last) ** (growth + 10 * _WOBBLE)[:, None]),
    }
    coordinates = {
        "norm": np.array(norms, object),
        "snapshot": steps,
        "seed": np.arange(SEEDS),
        "attempt": np.arange(SEEDS),
        "step": np.arange(last),
    }
    attrs = {"run": PREFIXES[attention] + name, "attention": attention, "inputs": 6}
    attrs |= {"optimal_kept": 9, "optimal_infeasible": 3, **COUNTS}
    return xarray.Dataset(variables, coordinates, attrs=attrs).sel(norm=sorted(norms))


def path(
    own: float = 0.9995,
    other: float = 0.9,
    selected: float = 1.0,
    last: float = 1000.0,
    kept: int = SEEDS,
    attention: str = "causal",
) -> xarray.Dataset:
    """Return paths with these correlations at the last radius, and a little less before.

    Args:
        own: correlation with the Frobenius solution.
        other: with the nuclear one.
        selected: share of the paths that select all optimal tokens at the last radius.
        last: that radius.
        kept: number of kept seeds.
        attention: "sequence" or "causal".
    """
    correlation = np.array([own, other])[None, :, None] - np.array([0.1, 0.0]) + 0.3 * _WOBBLE[:, None, None]
    all_selected = np.stack([np.zeros(SEEDS), np.arange(SEEDS) < selected * SEEDS], axis=1).astype(bool)
    variables = {"off": (("seed", "norm", "radius"), 1 - correlation), "selected": (("seed", "radius"), all_selected)}
    norms = np.array(["frobenius", "nuclear"], object)
    coordinates = {"norm": norms, "radius": [last / 10, last], "seed": np.arange(SEEDS)}
    counts = {name: number for name, number in COUNTS.items() if name != "diverged"}
    attrs = {"run": PREFIXES[attention] + PATH, "attention": attention, **counts, "kept": kept}
    return xarray.Dataset(variables, coordinates, attrs)


def runs(
    W: tuple[float, float] = (0.991, 0.9),
    KQ: tuple[float, float] = (0.995, 0.9),
    exact: float = 0.9985,
    growth: float = 0.0,
    probability: float = 0.9999,
    last: int = 2000,
    status: svm.Status = svm.Status.OPTIMAL,
    followed: xarray.Dataset | None = None,
    attention: str = "causal",
    falling: float = 0.998,
    margin: float = 0.998,
) -> Datasets:
    """Return the five runs of the experiment with one attention.

    Args:
        W: correlations of the published run with the solution of its own norm, and of the other.
        KQ: the same.
        exact: of W along the exact gradient direction.
        growth: the exponent p in ||K Q^T Z|| ~ k^p.
        probability: the largest, of W.
        last: steps of every run.
        status: of the SVM of the last seed of W.
        followed: the path; that of `path` by default.
        attention: "sequence" or "causal".
        falling: correlation of (K, Q) with decreasing steps, whose norm grows.
        margin: its margin ratio.
    """
    datasets = (
        run("W", *W, probability, last, attention, status),
        run("KQ", *KQ, last=last, attention=attention, growth=growth),
        run(LONG, exact, last=last, attention=attention),
        run(FALLING, falling, last=last, attention=attention, growth=1.0, margin=margin),
        path(attention=attention) if followed is None else followed,
    )
    return {one.attrs["run"]: one for one in datasets}


def of_selection(attention: str) -> dict[Verdict, Datasets]:
    """Tokens are selected and separated; they are not selected; or an SVM of them is not solved."""
    return {
        Verdict.HOLDS: runs(attention=attention),
        Verdict.FAILS: runs(attention=attention, probability=0.99),
        Verdict.OPEN: runs(attention=attention, status=svm.Status.NOT_CONVERGED),
    }


def of_W(attention: str) -> dict[Verdict, Datasets]:
    """The run along the exact direction comes close; it does not; or it is close to the threshold."""
    return {
        Verdict.HOLDS: runs(attention=attention),
        Verdict.FAILS: runs(attention=attention, exact=0.98),
        Verdict.OPEN: runs(attention=attention, exact=0.99),
    }


def of_KQ(attention: str) -> dict[Verdict, Datasets]:
    """Near its solution, weights growing; not growing; not near even with decreasing steps; or undecided."""
    return {
        Verdict.HOLDS: runs(attention=attention, growth=1.0),
        Verdict.CORRECTED: runs(attention=attention, growth=0.0),
        Verdict.FAILS: runs(attention=attention, falling=0.98),
        Verdict.OPEN: runs(attention=attention, growth=AT_REST),
    }


def of_path(attention: str) -> dict[Verdict, Datasets]:
    """The path comes close to its solution; it does not; or it ends at too small a radius."""
    ends = {Verdict.HOLDS: path(attention=attention), Verdict.FAILS: path(0.98, attention=attention)}
    ends[Verdict.OPEN] = path(last=100.0, attention=attention)
    return {verdict: runs(attention=attention, followed=one) for verdict, one in ends.items()}
