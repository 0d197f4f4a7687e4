"""Whether the gradient can point away from the SVM solution of the optimal tokens, or vanish (2308.16898)."""

from __future__ import annotations

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.study.claims import Datasets, Judgement, Kind, Setting, Source, claim, counts_of
from jaxattn.study.claims.criteria import Number, above, below
from jaxattn.study.estimates import estimated, mean, number, share

_PAPER, _LOCATOR = "arXiv 2308.16898", "lemma on stationary points under equal scores"
# The lemma is sampled as stated; what holds without its assumption is our question.
_EXACT, _OURS = (Source(_PAPER, _LOCATOR, setting) for setting in (Setting.EXACT, Setting.OURS))
# The fewest weights per problem that can decide. Thresholds for rounding: of a cosine, and of the norm of a vanishing
# gradient; and for the smallest eigenvalue at a local minimum.
_ENOUGH = 1000
_ROUNDING, _VANISHED, _BENT = 1e-9, 1e-12, 1e-6


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Return what was measured, with the mean smallest cosine and the share of problems with a negative one.

    Raises:
        ValueError: norms or eigenvalues at stationary points that are impossible.
    """
    if (run["trap_gradient"] < 0).any() or (run["trap_least"] > run["trap_largest"]).any():
        raise ValueError("trap: expected norms of at least 0 and ordered eigenvalues, found others")
    estimates = estimated(
        run, key, mean_least=mean(run["least"]), mean_negative=mean(run["negative"]), turns_away=share(run["least"] < 0)
    )
    return run.assign(dict(estimates.data_vars))


@claim(
    "no-stationary-point:equal",
    _EXACT,
    "With equal scores of non-optimal tokens, -<grad L(W), W_mm> > 0 for every W, so there is no finite "
    "stationary point.",
)
def _equal(runs: Datasets) -> Judgement:
    equal = runs["equal"]
    least = Number.exact(float(equal["least"].min()))
    over = Number.exact(float((equal["least"] / equal["bound"]).min()))
    return Judgement(
        (
            above("smallest cosine of -grad L and W_mm", least, 0.0),
            above("smallest ratio of the cosine to the proof's bound", over, 1 - _ROUNDING),
        ),
        remark=f"{int(equal.attrs['draws'])} weights per problem, with norms from 0.01 to 100. The proof gives more "
        "than the sign: the cosine is at least 1 / (||W_mm|| max ||z_i|| ||x_opt - x_t||) at every W. The "
        f"smallest one found is {over.mean:.4g} times this bound.",
        numbers={
            "smallest cosine of -grad L and W_mm, mean over problems": number(equal, "mean_least"),
            "share of problems with a negative cosine": number(equal, "turns_away"),
            "smallest cosine overall": least,
            "smallest ratio of the cosine to the proof's bound, over all problems": over,
        },
        expected={"share of problems with a negative cosine": 0.0},
        undecided=_too_few_draws(equal),
    )


@claim("no-stationary-point:needed", _OURS, "Without equal scores, -<grad L(W), W_mm> is negative at some W.")
def _needed(runs: Datasets) -> Judgement:
    free = runs["free"]
    return Judgement(
        [below("smallest cosine of -grad L and W_mm", Number.exact(float(free["least"].min())), -_ROUNDING)],
        remark="Sphere data with scores as drawn. A negative cosine at drawn weights is a proof for its problem; "
        "problems without one may have negative cosines at other weights.",
        numbers={
            "share of problems with a negative cosine": number(free, "turns_away"),
            "share of negative cosines": number(free, "mean_negative"),
            "smallest cosine of -grad L and W_mm, mean over problems": number(free, "mean_least"),
        },
        undecided=_too_few_draws(free),
    )


@claim(
    "no-stationary-point:finite",
    _OURS,
    "Without equal scores the risk can have a finite stationary point, even a local minimum that traps descent.",
)
def _finite(runs: Datasets) -> Judgement:
    """One instance proves it; with equal scores the same instance must have no such point."""
    free, equal = runs["free"], runs["equal"]
    points, of_equal = (Number.exact(run.sizes["point"]) for run in (free, equal))
    lowest = free.isel(point=int(np.argmax(free["trap_least"].values)))
    gradient, bend = (Number.exact(float(lowest[f"trap_{name}"])) for name in ("gradient", "least"))
    minimum = [
        above("stationary points on the axis of the instance", points, 1),
        below("stationary points on the axis of the instance with equal scores", of_equal, 0),
        below("norm of the gradient at its local minimum", gradient, _VANISHED),
        above("smallest eigenvalue of the second derivative at its local minimum", bend, _BENT),
    ]
    return Judgement(
        minimum,
        remark="The instance is constructed: its inputs have the same query and opposite labels. See "
        "no-stationary-point:variance for problems that have no such point.",
        numbers={
            **{criterion.quantity: criterion.value for criterion in minimum},
            "norm of W z at its local minimum": Number.exact(abs(float(lowest["trap_place"]))),
        },
        expected={"stationary points on the axis of the instance with equal scores": 0.0},
        # No problem with equal scores is judged.
        counts=counts_of({"free": free}),
    )


# A check: the inner product is a mean of the variances of the scores, each times a positive factor.
@claim(
    "no-stationary-point:variance",
    _OURS,
    "If some u has Y_i u . z_i > 0 for all i, as it does for independent queries (n <= d), then "
    "-<grad L(W), v u^T> > 0 for every W and any scores, so there is no finite stationary point.",
    kind=Kind.CHECK,
)
def _variance(runs: Datasets) -> Judgement:
    free = runs["free"]
    readout = Number.exact(float(free["readout"].min()))
    return Judgement(
        [above("smallest cosine of -grad L and v u^T over drawn problems and weights", readout, 0.0)],
        remark="The inner product is a mean of variances of the scores under the attention, with positive weights. "
        f"Over {free.sizes['seed']} problems and {int(free.attrs['draws'])} weights each.",
        undecided=_too_few_draws(free),
    )


def _too_few_draws(run: xarray.Dataset) -> str:
    draws = run.attrs["draws"]
    few = f"{draws} weights per problem are too few to decide; the published size is 10000."
    return few if draws < _ENOUGH else ""


CLAIMS = (_equal, _needed, _finite, _variance)
