"""Whether the gradient can point away from the SVM solution of the optimal tokens, or vanish (2308.16898)."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.landscape.no_stationary_point import examples
from jaxattn.statistics import bootstrap, proportion
from jaxattn.study.claims import (
    Claim,
    Criterion,
    Datasets,
    Judgement,
    Number,
    Setting,
    Source,
    above,
    below,
    counts_of,
    number,
    too_few,
)

_PAPER, _LOCATOR = "arXiv 2308.16898", "lemma on stationary points under equal scores"
# The lemma is sampled as stated; what holds without its assumption is our question.
_EXACT, _OURS = (Source(_PAPER, _LOCATOR, setting) for setting in (Setting.EXACT, Setting.OURS))
_NAMES = {0.0: "equal", 1.0: "free"}
# The fewest weights per problem that can decide. Thresholds for rounding: of a cosine, and of the norm of a vanishing
# gradient; and for the smallest eigenvalue at a local minimum.
_ENOUGH = 1000
_ROUNDING, _VANISHED, _BENT = 1e-9, 1e-12, 1e-6


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate how the gradient is aligned with and without equal scores.

    Args:
        datasets: of `measure`, of equal and of free scores.
        key: of the bootstrap.

    Returns:
        "equal" and "free", the numbers of each seed and their means; "trap, equal" and "trap", the landscapes of a
        constructed instance.

    Raises:
        ValueError: scores that are neither equal nor as drawn, or measured numbers that are impossible.
    """
    keys, summaries = jax.random.split(key, len(datasets)), {}
    for one, k in zip(datasets.values(), keys, strict=True):
        if one.attrs["spread"] not in _NAMES:
            raise ValueError(f"no-stationary-point: expected a spread of 0 or 1, found {one.attrs['spread']:g}")
        of_trap = [str(name) for name in one.data_vars if str(name).startswith("trap_")]
        name = _NAMES[one.attrs["spread"]]
        summaries[name] = _estimated(one.drop_vars(of_trap).drop_vars(("first", "second")), k)
        summaries["trap" if name == "free" else "trap, equal"] = _landscape(one[of_trap])
    return summaries


def _estimated(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    keys = jax.random.split(key)
    estimates = {
        "mean_least": bootstrap(one["least"].values, keys[0]),
        "mean_negative": bootstrap(one["negative"].values, keys[1]),
        "turns_away": proportion(one["least"].values < 0),
    }
    parts = {
        name if part == "mean" else f"{name}_{part}": ((), getattr(estimate, part))
        for name, estimate in estimates.items()
        for part in ("mean", "low", "high")
    }
    return one.assign(parts)


def _landscape(one: xarray.Dataset) -> xarray.Dataset:
    """Return the landscape in a measured dataset, with its prefix removed from the names."""
    plain = one.rename({name: str(name).removeprefix("trap_") for name in one.data_vars}).drop_attrs()
    if not np.all(plain["gradient"] >= 0) or not np.all(plain["least"] <= plain["largest"]):
        raise ValueError("trap: expected norms of at least 0 and ordered eigenvalues, found others")
    return plain


def _judge_equal(summaries: Datasets) -> Judgement:
    """No cosine may be negative, or below the bound of the proof."""
    if "equal" not in summaries:
        return Judgement.withheld("No run has equal scores.")
    equal = summaries["equal"]
    least, over = (
        Number.exact(float(smallest.min())) for smallest in (equal["least"], equal["least"] / equal["bound"])
    )
    return _judgement(
        {
            "smallest cosine of -grad L and W_mm, mean over problems": number(equal, "mean_least"),
            "share of problems with a negative cosine": number(equal, "turns_away"),
            "smallest cosine overall": least,
            "smallest ratio of the cosine to the proof's bound, over all problems": over,
        },
        {"share of problems with a negative cosine": 0.0},
        {"equal": equal},
        stated=(
            above("smallest cosine of -grad L and W_mm", least, 0.0),
            above("smallest ratio of the cosine to the proof's bound", over, 1 - _ROUNDING),
        ),
        remark=f"{int(equal.attrs['draws'])} weights per problem, with norms from 0.01 to 100. The proof gives more "
        "than the sign: the cosine is at least 1 / (||W_mm|| max ||z_i|| ||x_opt - x_t||) at every W. The "
        f"smallest one found is {over.mean:.4g} times this bound.",
    )


def _judge_needed(summaries: Datasets) -> Judgement:
    """Some cosine must be negative."""
    if "free" not in summaries:
        return Judgement.withheld("No run has scores as drawn.")
    free = summaries["free"]
    return _judgement(
        {
            "share of problems with a negative cosine": number(free, "turns_away"),
            "share of negative cosines": number(free, "mean_negative"),
            "smallest cosine of -grad L and W_mm, mean over problems": number(free, "mean_least"),
        },
        {},
        {"free": free},
        stated=(below("smallest cosine of -grad L and W_mm", Number.exact(float(free["least"].min())), -_ROUNDING),),
        remark="Sphere data with scores as drawn. A negative cosine at drawn weights is a proof for its problem; "
        "problems without one may have negative cosines at other weights.",
    )


def _judge_finite(summaries: Datasets) -> Judgement:
    """The instance must have a local minimum; as corrected, drawn problems have none."""
    if missing := [name for name in ("free", "trap", "trap, equal") if name not in summaries]:
        return Judgement.withheld(f"No run gives {', '.join(missing)}.")
    free, unequal, equal = (summaries[name] for name in ("free", "trap", "trap, equal"))
    points, of_equal = (Number.exact(one.sizes["point"]) for one in (unequal, equal))
    readout = Number.exact(float(free["readout"].min()))
    numbers = {
        "stationary points on the axis of the instance": points,
        "stationary points on the axis of the instance with equal scores": of_equal,
        "smallest cosine of -grad L and v u^T, free scores": readout,
    }
    found = [
        above("stationary points on the axis of the instance", points, 1),
        below("stationary points on the axis of the instance with equal scores", of_equal, 0),
    ]
    if points.mean:
        lowest = unequal.isel(point=int(np.argmax(unequal["least"].values)))
        length, gradient, bend = (abs(float(lowest["place"])), float(lowest["gradient"]), float(lowest["least"]))
        numbers["norm of W z at its local minimum"] = Number.exact(length)
        numbers["norm of the gradient at its local minimum"] = Number.exact(gradient)
        numbers["smallest eigenvalue of the second derivative at its local minimum"] = Number.exact(bend)
        found += [
            below("norm of the gradient at its local minimum", Number.exact(gradient), _VANISHED),
            above("smallest eigenvalue of the second derivative at its local minimum", Number.exact(bend), _BENT),
        ]
    label = "smallest cosine of -grad L and v u^T over drawn problems and weights"
    return _judgement(
        numbers,
        {"stationary points on the axis of the instance with equal scores": 0.0},
        {"free": free},
        stated=(*found, below(label, readout, 0.0)),
        corrected=(*found, above(label, readout, 0.0)),
        correction="not if some u has Y_i u . z_i > 0 for all i, which exists for independent queries. Then -<grad "
        "L(W), v u^T> > 0 for every W and any scores, since it is a mean of variances: random problems "
        f"with n <= d have no finite stationary point. The smallest cosine found is {readout.mean:.3g}, "
        f"over {free.sizes['seed']} problems and {int(free.attrs['draws'])} weights each.",
        remark="The instance is constructed: its inputs have the same query and opposite labels.",
    )


def _judgement(
    numbers: Mapping[str, Number],
    expected: Mapping[str, float],
    summaries: Datasets,
    stated: tuple[Criterion, ...],
    remark: str,
    corrected: tuple[Criterion, ...] = (),
    correction: str = "",
) -> Judgement:
    """Return the judgement; few problems or few draws decide nothing."""
    (one,) = summaries.values()
    undecided = too_few(int(one.attrs["kept"]))
    if int(one.attrs["draws"]) < _ENOUGH:
        undecided = f"{one.attrs['draws']} weights per problem are too few to decide; the published size is 10000."
    return Judgement(
        numbers=numbers,
        expected=expected,
        counts=counts_of(summaries),
        stated=stated,
        corrected=corrected,
        correction=correction,
        undecided=undecided,
        remark=remark,
    )


CLAIMS = (
    Claim(
        "no-stationary-point:equal",
        _EXACT,
        "With equal scores of non-optimal tokens, -<grad L(W), W_mm> > 0 for every W, so there is no finite "
        "stationary point.",
        _judge_equal,
        examples.of_equal,
    ),
    Claim(
        "no-stationary-point:needed",
        _OURS,
        "Without equal scores, -<grad L(W), W_mm> is negative at some W.",
        _judge_needed,
        examples.of_needed,
    ),
    Claim(
        "no-stationary-point:finite",
        _OURS,
        "Without equal scores the risk can have a finite stationary point, even a local minimum that traps descent.",
        _judge_finite,
        examples.of_finite,
    ),
)
