"""Where do the regularization path of (K, Q) and descent go with fewer columns than the solution's rank?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.max_margin.narrow_path.measure import measure
from jaxattn.study.claims import LEAST_SEEDS, Datasets, Experiment, Judgement, Judgements, Setting, Source, claim
from jaxattn.study.claims.counts import too_few
from jaxattn.study.claims.criteria import Number, above, below, between
from jaxattn.study.estimates import estimated, exact, geometric_mean, mean, number, power_law, share, undefined
from jaxattn.study.style import page, palette
from jaxattn.study.style.labels import beside

_PATH = Source("arXiv 2308.16898", "theorem on the regularization paths (poster, theorem I)", Setting.OURS)
_DESCENT = Source("jaxattn", "whether descent on (K, Q) follows the regularization path", Setting.OURS)
_RUNS = ("m=1", "m=2")
# The exponent is fitted over the last decade of the radii, which should end here or later.
_DECADE, _FAR = 10.0, 3000.0
# Fixed beforehand, for the path: its distance from the best solution falls like 1 / R and is small.
_EXPONENT, _AROUND, _NEAR = -1.0, 0.2, 0.02
# For descent: correlation with the path's last point, the ratio of its margin to the path's, and the share of seeds at
# the optimal tokens that must have this margin.
_REACHED, _MARGIN, _NEARLY_ALL = 0.95, 0.9, 0.95
# A path whose margin exceeds that of the best solution by this share shows that a better solution exists.
_MORE = 1e-4


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate where the paths and descent end, over the kept seeds whose nuclear solution has a rank above m.

    Returns:
        What is measured, over seeds: geometric means of `distance`, the largest `residual`, otherwise means and shares;
        the `exponent` of the distance; `elsewhere`, the number of seeds at other tokens at the last radius; and of the
        seeds where descent ends at the optimal tokens the share with the margin of the path, `margin_there`: its lower
        bound counts every other seed as short of it, its upper bound only those that stay short, whose stationary point
        is short of it too. For every seed `bound`, `end` (whether descent ends at the optimal tokens), `each_margin`
        and `each_reached`. Attributes in addition, numbers of seeds: all, `above`; those whose path is `missed`, or has
        a larger margin than the best solution, `outdone`; those where descent ends at the optimal tokens, `there`; and
        of these those that are `short` and that `stay` short.

    Raises:
        ValueError: no kept seed has a rank above m.
    """
    m = run.attrs["weights.m"]
    run = run.isel(seed=run["rank"].values > m)
    if not run.sizes["seed"]:
        raise ValueError(f"narrow-path: expected a kept seed of rank above m = {m}, found none")
    there, late = run["optimal"].values, float(run["radius"][-1]) / _DECADE * (1 - 1e-9)
    short = run["margin"] < _MARGIN
    stays = short & (run["ahead"] < _MARGIN)
    end = run["share"].isel(radius=-1, drop=True)
    estimates = estimated(
        run,
        key,
        distance=geometric_mean(run["distance"]),
        share=mean(run["share"]),
        agreeing=mean(run["agreeing"]),
        drawn=share(run["drawn"]),
        exponent=power_law(run["distance"], since=late, along="radius"),
        margin=mean(run["margin"]),
        correlation=mean(run["correlation"]),
        reached=mean(run["reached"]),
        margin_there=share(~short[there]) if there.any() else undefined(),
        margin_settled=share(~stays[there]) if there.any() else undefined(),
        optimal=share(run["optimal"]),
        residual=exact(run["residual"].max("seed")),
        minimum=exact(run["minimum"].mean("seed")),
        elsewhere=exact((end <= 0).sum("seed")),
    )
    of_seed = {"bound": "bound", "each_margin": "margin", "each_reached": "reached", "end": "optimal"}
    estimates["margin_there_high"] = estimates["margin_settled_high"]
    return estimates.assign({name: run[measured] for name, measured in of_seed.items()}).assign_attrs(
        above=run.sizes["seed"],
        missed=int(run["missed"].sum()),
        outdone=int((end > 1 + _MORE).sum()),
        there=int(there.sum()),
        short=int(short[there].sum()),
        stay=int(stays[there].sum()),
    )


@claim(
    "narrow-path:limit",
    _PATH,
    "As R grows, the minimizers of the risk over K and Q with m columns and ||K||_F^2 + ||Q||_F^2 <= 2 R tend in "
    "direction to the solution of the nuclear Att-SVM with rank W <= m.",
)
def _limit(runs: Datasets) -> Judgement:
    runs = {name: runs[name] for name in _RUNS}
    at = f"at R = {float(runs[_RUNS[0]]['radius'][-1]):g}"
    distance, exponent = f"distance from the best solution found {at}", "exponent of the distance"
    labels = {
        distance: "distance",
        exponent: "exponent",
        f"margin {at} over the margin of the best solution found": "share",
        f"share of starts that end at the lowest point found {at}": "agreeing",
        f"share of seeds where a random start ends at the lowest point found {at}": "drawn",
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
    no_minima = {
        "missed": "the best solution, scaled to the last ball, has a lower risk than the path's point, which is "
        "therefore no minimizer: the path needs more starts.",
        "outdone": "the path has a larger margin than the best solution found, which is therefore not the solution: "
        "the solver needs more starts.",
    }
    undecided = [_too_little(runs)] + [
        f"In {_counts(runs, attribute)} {why}"
        for attribute, why in no_minima.items()
        if any(run.attrs[attribute] for run in runs.values())
    ]
    return Judgement(
        near,
        remark="The best solution is that of smallest norm which a solver finds from many starts of its own. The path "
        "starts from such a solution too, and from random directions, and keeps the point of lowest risk. "
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
        undecided=next(filter(None, undecided), ""),
    )


@claim(
    "narrow-path:descent",
    _DESCENT,
    "Descent on (K, Q) with m columns converges to the direction of their regularization path.",
)
def _descent(runs: Datasets) -> Judgement:
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
    return Judgement(
        stated,
        remark="The path tends to the optimal tokens; descent ends at them in "
        f"{_counts(runs, 'there')}. Margins are computed for the "
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
    label = f"share of seeds at the optimal tokens with {_MARGIN:.0%} of the path's margin or more"
    numbers = _numbers(runs, {label: "margin_there"})
    few = too_few(min(run.attrs["there"] for run in runs.values()), LEAST_SEEDS)
    return Judgement(
        [above(label, value, _NEARLY_ALL) for label, value in numbers.items()],
        remark=" ".join(_there(name, run) for name, run in runs.items()),
        expected=dict.fromkeys(numbers, 1.0),
        undecided=_too_little(runs) or (few and f"For seeds where descent ends at the optimal tokens: {few}"),
    )


def _numbers(runs: Datasets, labels: Mapping[str, str]) -> dict[str, Number]:
    """Return estimates of every run by their labels, those along the radii at the last one."""
    return {
        f"{name}, {label}": number(run.isel(radius=-1), estimate)
        for name, run in runs.items()
        for label, estimate in labels.items()
    }


def _counts(runs: Datasets, attribute: str) -> str:
    return ", ".join(f"{run.attrs[attribute]} of {run.attrs['above']} seeds at {name}" for name, run in runs.items())


def _too_little(runs: Datasets) -> str:
    last = min(float(run["radius"][-1]) for run in runs.values())
    short = f"Radii up to {last:g} are too small to decide; the published ones end at 10000." if last < _FAR else ""
    return too_few(min(run.attrs["above"] for run in runs.values())) or short


def _there(name: str, run: xarray.Dataset) -> str:
    margins = run["each_margin"].values[run["end"].values]
    less = margins[margins < _MARGIN]
    text = f"At {name} {margins.size - less.size} of {margins.size} such seeds have {_MARGIN:.0%} of the path's margin"
    if not less.size:
        return f"{text} or more."
    return (
        f"{text} or more; the others have {less.mean():.2f} of it on average, and {run.attrs['stay']} of these "
        f"{less.size} stay short, since the stationary point that a solver reaches from there is short of it as well."
    )


# Margins below this are drawn as this: descent ends at other tokens.
_LEAST = -1.0
# Where descent ends: marker, its words, and the height that they stand above.
_ENDS = {True: ("o", "the\noptimal tokens", 1.25), False: ("x", "other\ntokens", _LEAST)}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw distance and margin of the paths over the radius, and the margin of every descent."""
    colours = dict(zip(summaries, palette.ramp(len(summaries)), strict=True))
    with page.style():
        figure = page.full(3.7)
        left, middle, right = figure.subplots(1, 3)
        for (name, run), dashes in zip(summaries.items(), palette.STYLES, strict=False):
            look = {"color": colours[name], "linestyle": dashes, "label": f"$m = {run.attrs['weights.m']}$"}
            curve = (run[part].values for part in ("radius", "distance", "distance_low", "distance_high"))
            page.band(left, *curve, **look)
            short = (1 - run[part].values for part in ("share", "share_high", "share_low"))
            page.band(middle, run["radius"].values, *short, **look)
        first = next(iter(summaries.values()))
        last, distance = float(first["radius"][-1]), float(first["distance"][-1])
        guide = {"color": palette.INK, "linewidth": 0.7, "linestyle": ":"}
        left.plot([last / 10, last], [25 * distance, 2.5 * distance], label="$R^{-1}$", **guide)
        powers = " and ".join(f"$R^{{{float(run['exponent']):.2f}}}$" for run in summaries.values())
        left.set(title=f"(a) distance from the best solution: {powers}", ylabel="distance of the path from the best")
        left.legend(loc="lower left", title="mean, 95 % interval")
        short = max(1 - float(run["share"][-1]) for run in summaries.values())
        middle.set_title(f"(b) its margin is {short:.1%} short of the best's")
        middle.set_ylabel("1 - margin / that of the best")
        for axes in (left, middle):
            axes.set(xlabel="radius $R$", xscale="log", yscale="log")
        _descents(right, summaries, colours)
        every, there = (sum(run.attrs[name] for run in summaries.values()) for name in ("above", "there"))
        right.set_title(f"(c) {every - there} of {every} descents end at other tokens")
        verdicts = {name: judgements[f"narrow-path:{name}"].verdict for name in ("limit", "descent", "margin")}
        figure.suptitle(
            f"The path of $(K, Q)$ with few columns tends to the best solution of this rank: {verdicts['limit']}.\n"
            f"Descent follows the path: {verdicts['descent']}; where it ends at the same tokens, it has the path's "
            f"margin: {verdicts['margin']}"
        )
        drawn = ", ".join(str(run.attrs["above"]) for run in summaries.values())
        worst = max(float(run["residual"].max()) for run in summaries.values())
        page.add_counts(
            figure,
            summaries,
            f"Drawn: kept seeds of nuclear rank above $m$ ({drawn}); means in (a) are geometric; (c): one mark per "
            f"seed. Largest residual {page.power(worst)}.",
        )
    return figure


def _descents(axes: Axes, summaries: Datasets, colours: dict[str, str]) -> None:
    for x, (name, run) in enumerate(summaries.items()):
        margins, there = run["each_margin"].values, run["end"].values
        order = np.argsort(margins)
        spread, heights = x + np.linspace(-0.35, 0.35, len(order)), np.maximum(margins[order], _LEAST)
        for is_there, (marker, label, height) in _ENDS.items():
            drawn = there[order] == is_there
            axes.scatter(spread[drawn], heights[drawn], s=12, marker=marker, color=colours[name], linewidths=0.8)
            if drawn.any():
                look = {"ha": "center", "va": "bottom", "color": colours[name]}
                beside(axes, f"{drawn.sum()} at {label}", (x, height), (0, 6), **look)
    axes.axhline(1, color=palette.INK, linewidth=0.7, linestyle=":")
    axes.set_xticks(range(len(summaries)), [f"$m = {run.attrs['weights.m']}$" for run in summaries.values()])
    axes.set_yticks([_LEAST, -0.5, 0, 0.5, 1], [rf"$\leq{_LEAST:g}$", "$-0.5$", "0.0", "0.5", "1.0"])
    axes.set(xlim=(-0.5, len(summaries) - 0.5), ylim=(_LEAST - 0.1, 1.8))
    axes.set_ylabel("margin / that of the path")


EXPERIMENT = Experiment(measure, claims=(_limit, _descent, _margin), estimate=estimate, draw=draw)
