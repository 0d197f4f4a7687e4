"""The regularization path of (K, Q) below the rank of the nuclear solution, compared with descent (2308.16898)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.study.claims import LEAST_SEEDS, Datasets, Judgement, Setting, Source, claim, too_few
from jaxattn.study.claims.criteria import Number, above, below, between
from jaxattn.study.estimates import estimated, exact, geometric_mean, mean, number, power_law, share

_PATH = Source("arXiv 2308.16898", "theorem on the regularization paths (poster, theorem I)", Setting.OURS)
_DESCENT = Source("jaxattn", "whether descent on (K, Q) follows the regularization path", Setting.OURS)
_RUNS = ("m=1", "m=2")
# The exponent is fitted over the last decade of the radii, which should end here or later.
_DECADE, _FAR = 10.0, 3000.0
# Fixed beforehand, for the path: its distance from the best solution falls like 1 / R and is small.
_EXPONENT, _AROUND, _NEAR = -1.0, 0.2, 0.02
# For descent: correlation with the path's last point, and the ratio of its margin to the path's.
_REACHED, _MARGIN = 0.95, 0.9


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate where the paths and descent end, over the kept seeds whose nuclear solution has a rank above m.

    Returns:
        Over the radii: geometric means of the `distance` from the best solution, means of the `share` of its margin and
        of the `agreeing` starts, the mean of `minimum`, and the largest `residual`; the `exponent` of the distance; for
        descent the `margin`, `correlation` and `reached`, the share of seeds at the `optimal` tokens, and the margin of
        these seeds, `margin_there`; the number of seeds `elsewhere` at the last radius. For every seed `bound`, `end`
        (whether descent ends at the optimal tokens), `each_margin` and `each_reached`. Attributes in addition: the
        number of seeds, `above`; of those among them whose path is `missed`; and of those where descent ends at the
        optimal tokens, `there`.

    Raises:
        ValueError: no kept seed has a rank above m.
    """
    m = run.attrs["weights.m"]
    run = run.isel(seed=run["rank"].values > m)
    if not run.sizes["seed"]:
        raise ValueError(f"narrow-path: expected a kept seed of rank above m = {m}, found none")
    there, late = run["optimal"].values, float(run["radius"][-1]) / _DECADE * (1 - 1e-9)
    estimates = estimated(
        run,
        key,
        distance=geometric_mean(run["distance"]),
        share=mean(run["share"]),
        agreeing=mean(run["agreeing"]),
        exponent=power_law(run["distance"], since=late, along="radius"),
        margin=mean(run["margin"]),
        correlation=mean(run["correlation"]),
        reached=mean(run["reached"]),
        # With no such seed the rule says that there are too few, so the value here does not matter.
        margin_there=mean(run["margin"].isel(seed=there if there.any() else slice(1))),
        optimal=share(run["optimal"]),
        residual=exact(run["residual"].max("seed")),
        minimum=exact(run["minimum"].mean("seed")),
        elsewhere=exact((run["share"].isel(radius=-1, drop=True) <= 0).sum("seed")),
    )
    of_seed = {"bound": "bound", "each_margin": "margin", "each_reached": "reached", "end": "optimal"}
    return estimates.assign({name: run[measured] for name, measured in of_seed.items()}).assign_attrs(
        above=run.sizes["seed"], missed=int(run["missed"].sum()), there=int(there.sum())
    )


@claim(
    "narrow-path:limit",
    _PATH,
    "As R grows, the minimizers of the risk over K and Q with m columns and ||K||_F^2 + ||Q||_F^2 <= 2 R tend in "
    "direction to the solution of the nuclear Att-SVM with rank W <= m.",
)
def _limit(runs: Datasets) -> Judgement:
    """The path must approach a solution found without it like 1 / R; points that are no minimizers decide nothing."""
    runs = {name: runs[name] for name in _RUNS}
    at = f"at R = {float(runs[_RUNS[0]]['radius'][-1]):g}"
    distance, exponent = f"distance from the best solution found {at}", "exponent of the distance"
    labels = {
        distance: "distance",
        exponent: "exponent",
        f"margin {at} over the margin of the best solution found": "share",
        f"share of starts that end at the lowest point found {at}": "agreeing",
    }
    numbers = _numbers(runs, labels)
    near = [
        criterion
        for name, run in runs.items()
        for criterion in (
            below(f"{name}, {distance}", number(run.isel(radius=-1), "distance"), _NEAR),
            between(f"{name}, {exponent}", number(run, "exponent"), _EXPONENT - _AROUND, _EXPONENT + _AROUND),
            below(f"{name}, kept seeds {at} whose tokens are not the optimal ones", number(run, "elsewhere"), 0),
        )
    ]
    minima = min(float(run["minimum"].min()) for run in runs.values())
    worst = max(float(run["residual"].max()) for run in runs.values())
    bounds = ", ".join(
        f"{float(np.median(1 - 1 / (1 + run['bound'].values))):.1%} at {name}" for name, run in runs.items()
    )
    missed = ", ".join(f"{run.attrs['missed']} of {run.attrs['above']} seeds at {name}" for name, run in runs.items())
    no_minimizers = (
        f"In {missed} the best solution, scaled to the last ball, has a lower risk than the path's point, which is "
        "therefore no minimizer: the path needs more starts."
    )
    return Judgement(
        near,
        remark="The best solution is that of smallest norm which a solver finds from starts of its own. "
        f"Points and solution satisfy the first-order conditions, the points with a residual of at most {worst:.0e}; "
        f"at every radius at least {minima:.0%} of the points are local minima to second order. No point and no "
        "solution is known to be a global minimum. The nuclear solution without the rank constraint is a lower bound: "
        f"it proves that no W of rank m has a norm smaller than the best one found by more than {bounds} (medians).",
        numbers=numbers,
        expected={
            label: _EXPONENT if "exponent" in label else 1.0 if "margin" in label else 0.0
            for label in numbers
            if "share" not in label
        },
        undecided=_too_little(runs) or (no_minimizers if any(run.attrs["missed"] for run in runs.values()) else ""),
    )


@claim(
    "narrow-path:descent",
    _DESCENT,
    "Descent on (K, Q) with m columns converges to the direction of their regularization path.",
)
def _descent(runs: Datasets) -> Judgement:
    """Descent must end along the path's last point."""
    runs = {name: runs[name] for name in _RUNS}
    margin, correlation = "margin of descent over the margin of the path", "correlation of descent with the path"
    labels = {
        margin: "margin",
        correlation: "correlation",
        "correlation of descent with a stationary point for its own tokens": "reached",
        "share of seeds where descent ends at the optimal tokens": "optimal",
    }
    numbers = _numbers(runs, labels)
    stated = [
        above(f"{name}, {label}", number(run, labels[label]), threshold)
        for name, run in runs.items()
        for label, threshold in ((margin, _MARGIN), (correlation, _REACHED))
    ]
    far = ", ".join(
        f"{int((run['each_reached'] < _REACHED).sum())} of {run.attrs['above']} seeds at {name}"
        for name, run in runs.items()
    )
    ends = ", ".join(f"{run.attrs['there']} of {run.attrs['above']} seeds at {name}" for name, run in runs.items())
    return Judgement(
        stated,
        remark=f"The path tends to the optimal tokens; descent ends at them in {ends}. Margins are computed for the "
        "optimal tokens, so the margin is negative where descent ends at other tokens. The stationary point for its "
        "own tokens is the one that a solver reaches from the end of descent, so that descent is near one wherever it "
        f"has converged: the correlation is less than {_REACHED:g} in {far}.",
        numbers=numbers,
        expected=dict.fromkeys(numbers, 1.0),
        undecided=_too_little(runs),
    )


@claim(
    "narrow-path:margin",
    _DESCENT,
    "Where descent on (K, Q) with m columns ends at the optimal tokens, it has the margin of their "
    "regularization path.",
)
def _margin(runs: Datasets) -> Judgement:
    runs = {name: runs[name] for name in _RUNS}
    label = "margin of descent over the margin of the path, where descent ends at the optimal tokens"
    numbers = _numbers(runs, {label: "margin_there"})
    few = too_few(min(run.attrs["there"] for run in runs.values()), LEAST_SEEDS)
    return Judgement(
        [above(label, value, _MARGIN) for label, value in numbers.items()],
        remark=" ".join(_there(name, run) for name, run in runs.items()),
        expected=dict.fromkeys(numbers, 1.0),
        undecided=_too_little(runs) or (few and f"For seeds where descent ends at the optimal tokens: {few}"),
    )


CLAIMS = (_limit, _descent, _margin)


def _numbers(runs: Datasets, labels: Mapping[str, str]) -> dict[str, Number]:
    """Return estimates of every run by their labels, those along the radii at the last one."""
    return {
        f"{name}, {label}": number(run.isel(radius=-1), estimate)
        for name, run in runs.items()
        for label, estimate in labels.items()
    }


def _too_little(runs: Datasets) -> str:
    last = min(float(run["radius"][-1]) for run in runs.values())
    short = f"Radii up to {last:g} are too small to decide; the published ones end at 10000." if last < _FAR else ""
    return too_few(min(run.attrs["above"] for run in runs.values())) or short


def _there(name: str, run: xarray.Dataset) -> str:
    margins = run["each_margin"].values[run["end"].values]
    less = margins[margins < _MARGIN]
    middle, low, high = number(run, "margin_there")
    text = f"At {name} {margins.size - less.size} of {margins.size} such seeds have {_MARGIN:.0%} of the path's margin"
    text += f" or more; the others have {less.mean():.2f} of it on average." if less.size else " or more."
    unclear = f" The interval of the mean over all of them, {middle:.3f}, contains {_MARGIN:g}."
    return text + (unclear if low < _MARGIN < high else "")
