"""The regularization path of (K, Q) below the rank of the nuclear solution, compared with descent (2308.16898)."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.max_margin.narrow_path import examples
from jaxattn.statistics import bootstrap, proportion, variables
from jaxattn.study.claims import (
    LEAST_SEEDS,
    Claim,
    Criterion,
    Datasets,
    Judgement,
    Number,
    Setting,
    Source,
    above,
    below,
    between,
    counts_of,
    number,
    too_few,
)

_PATH = Source("arXiv 2308.16898", "theorem on the regularization paths (poster, theorem I)", Setting.OURS)
_DESCENT = Source("arXiv 2308.16898", "local convergence figure, panel (c), and nuclear Att-SVM", Setting.OURS)
# The exponent is fitted over the last decade of the radii, which should end here or later.
DECADE, _FAR = 10.0, 3000.0
# Fixed beforehand, for the path: its distance from its limit falls like 1 / R and is small, and the norm of the limit
# exceeds that of the best solution found by no more than this share on average.
_EXPONENT, _AROUND, _NEAR, _LONGER = -1.0, 0.2, 0.02, 0.01
# For descent: correlation with the path's last point or with a stationary point, and the ratio of its margin to the
# path's.
_REACHED, _MARGIN = 0.95, 0.9
# Relative differences of certified norms below this count as zero.
_SAME = 1e-6


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate where the paths and descent end, over the kept seeds whose nuclear solution has a rank above m.

    Args:
        datasets: of `measure`, one for each m.
        key: of the bootstrap.

    Returns:
        For each m, in increasing order, a dataset over the radii: geometric means of the `distance` from the path's
        limit, means of the `share` of its margin and of the `agreeing` starts, each with its interval, and the largest
        `residual`; the `exponent` of the distance; `longer`, the relative excess of the limit's norm over the best
        solution found, 0 where there is none; for descent the `margin`, `correlation` and `reached`, the share of seeds
        at the `optimal` tokens, and the margin of these seeds, `margin_there`. For every seed `worse`, `bound`, `end`
        (whether descent ends at the optimal tokens), `each_margin` and `each_reached`. Attributes in addition to the
        counts: `above`, the number of seeds, and `there`, the number of these where descent ends at the optimal tokens.

    Raises:
        ValueError: no run, or one without a kept seed of rank above m.
    """
    ordered = dict(sorted(datasets.items(), key=lambda item: item[1].attrs["width"]))
    empty = [run for run, one in ordered.items() if not (one["rank"].values > one.attrs["width"]).any()]
    if empty or not ordered:
        raise ValueError(f"narrow-path: expected runs with a kept seed of rank above m, found none in {empty or 'any'}")
    keys = jax.random.split(key, len(ordered))
    return {run: _summary(one, k) for (run, one), k in zip(ordered.items(), keys, strict=True)}


def _summary(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    one = one.isel(seed=one["rank"].values > one.attrs["width"])
    radii, keys = one["radius"].values, iter(jax.random.split(key, 9))
    late = radii >= radii[-1] / DECADE * (1 - 1e-9)
    x = np.log10(radii[late]) - np.log10(radii[late]).mean()
    logs, there = np.log10(one["distance"].values), one["optimal"].values
    far = bootstrap(logs, next(keys))
    estimates = {
        "share": (("radius",), bootstrap(one["share"].values, next(keys))),
        "agreeing": (("radius",), bootstrap(one["agreeing"].values, next(keys))),
        "exponent": ((), bootstrap(logs[:, late] @ x / (x @ x), next(keys))),
        "longer": ((), bootstrap(np.maximum(one["worse"].values, 0.0), next(keys))),
        **{name: ((), bootstrap(one[name].values, next(keys))) for name in ("margin", "correlation", "reached")},
        # With no such seed the judge says that there are too few, so the value here does not matter.
        "margin_there": ((), bootstrap(one["margin"].values[there if there.any() else slice(1)], next(keys))),
        "optimal": ((), proportion(there)),
    }
    arrays = variables(estimates) | {
        f"distance{end}": (("radius",), 10**value)
        for end, value in (("", far.mean), ("_low", far.low), ("_high", far.high))
    }
    arrays |= {
        "residual": (("radius",), one["residual"].values.max(axis=0)),
        "minimum": (("radius",), one["minimum"].values.mean(axis=0)),
        "worse": (("seed",), one["worse"].values),
        "bound": (("seed",), one["bound"].values),
        "each_margin": (("seed",), one["margin"].values),
        "each_reached": (("seed",), one["reached"].values),
        "end": (("seed",), there),
        "elsewhere": ((), int((one["share"].values[:, -1] <= 0).sum())),
    }
    counts = {"above": one.sizes["seed"], "there": int(there.sum())}
    return xarray.Dataset(arrays, {"radius": radii, "seed": one["seed"].values}, one.attrs | counts)


def _judge_limit(summaries: Datasets) -> Judgement:
    """The path must approach a stationary point like 1 / R, and this point must be the best solution found."""
    numbers: dict[str, Number] = {}
    stated: list[Criterion] = []
    near: list[Criterion] = []
    for run, one in summaries.items():
        last, end = float(one["radius"][-1]), one.isel(radius=-1)
        exponent = Number(*(float(one[name]) for name in ("exponent", "exponent_low", "exponent_high")))
        distance = f"{run}, distance from the limit at R = {last:g}"
        numbers |= {
            distance: number(end, "distance"),
            f"{run}, exponent of the distance": exponent,
            f"{run}, excess of the limit's norm over the best solution found": number(one, "longer"),
            f"{run}, margin at R = {last:g} over the margin of the best solution found": number(end, "share"),
            f"{run}, share of starts that end at the lowest point found at R = {last:g}": number(end, "agreeing"),
        }
        elsewhere = Number.exact(int(one["elsewhere"]))
        near += [
            below(distance, number(end, "distance"), _NEAR),
            between(f"{run}, exponent of the distance", exponent, _EXPONENT - _AROUND, _EXPONENT + _AROUND),
            below(f"{run}, kept seeds at R = {last:g} whose tokens are not the optimal ones", elsewhere, 0),
        ]
        stated.append(below(f"{run}, excess of the limit's norm", number(one, "longer"), _LONGER))
    said = "; ".join(_compared(run, one) for run, one in summaries.items())
    minima = min(float(one["minimum"].min()) for one in summaries.values())
    return _judgement(
        summaries,
        numbers,
        {
            label: _EXPONENT if "exponent" in label else 1.0 if "margin" in label else 0.0
            for label in numbers
            if "share" not in label
        },
        (*near, *stated),
        tuple(near),
        "the points found tend to a stationary point of the nuclear problem with rank W <= m, like 1 / R, but this "
        f"is not always the best one found: {said}.",
        "It is certified that every point satisfies the first-order conditions, with a residual of at most "
        f"{_worst(summaries):.0e}, and that the limit and the solver's solution are stationary. Their global "
        f"optimality is not certified. At every radius at least {minima:.0%} of the points are local minima to second "
        f"order. Comparison: {said}. {_bounds(summaries)}",
    )


def _judge_descent(summaries: Datasets) -> Judgement:
    """Descent must end along the path's last point; as corrected, along a stationary point for its own tokens."""
    numbers: dict[str, Number] = {}
    stated: list[Criterion] = []
    reached: list[Criterion] = []
    for run, one in summaries.items():
        margin, correlation = number(one, "margin"), number(one, "correlation")
        numbers |= {
            f"{run}, margin of descent over the margin of the path": margin,
            f"{run}, correlation of descent with the path": correlation,
            f"{run}, correlation of descent with a stationary point for its own tokens": number(one, "reached"),
            f"{run}, share of seeds where descent ends at the optimal tokens": number(one, "optimal"),
        }
        stated += [
            above(f"{run}, margin of descent over the margin of the path", margin, _MARGIN),
            above(f"{run}, correlation of descent with the path", correlation, _REACHED),
        ]
        reached.append(above(f"{run}, correlation with a stationary point", number(one, "reached"), _REACHED))
    apart = "; ".join(
        f"at {run} the mean correlation is {float(one['reached']):.3f} with such a point and "
        f"{float(one['correlation']):.3f} with the last point of the path"
        for run, one in summaries.items()
    )
    far = "After the last step the correlation with the stationary point for its own tokens is less than "
    far += f"{_REACHED:g} in " + ", ".join(
        f"{int((one['each_reached'].values < _REACHED).sum())} of {one.attrs['above']} seeds at {run}"
        for run, one in summaries.items()
    )
    ends = ", ".join(f"{one.attrs['there']} of {one.attrs['above']} seeds at {run}" for run, one in summaries.items())
    return _judgement(
        summaries,
        numbers,
        dict.fromkeys(numbers, 1.0),
        tuple(stated),
        tuple(reached),
        "descent ends at a stationary point of the nuclear problem with rank W <= m for the tokens that it selects: "
        f"{apart}.",
        f"The path tends to the optimal tokens; descent ends at them in {ends}. Margins are computed for the optimal "
        f"tokens, so the margin is negative where descent ends at other tokens. {far}.",
    )


def _judge_margin(summaries: Datasets) -> Judgement:
    """Where descent ends at the optimal tokens, its margin must be that of the path."""
    numbers = {
        f"{run}, margin of descent over the margin of the path, where descent ends at the optimal tokens": number(
            one, "margin_there"
        )
        for run, one in summaries.items()
    }
    few = [too_few(int(one.attrs["there"]), LEAST_SEEDS) for one in summaries.values()]
    return _judgement(
        summaries,
        numbers,
        dict.fromkeys(numbers, 1.0),
        tuple(above(label, value, _MARGIN) for label, value in numbers.items()),
        remark=" ".join(_there(run, one) for run, one in summaries.items()),
        undecided=next(
            (
                f"For seeds where descent ends at the optimal tokens: {text[0].lower()}{text[1:]}"
                for text in few
                if text
            ),
            "",
        ),
    )


def _judgement(
    summaries: Datasets,
    numbers: dict[str, Number],
    expected: dict[str, float],
    stated: tuple[Criterion, ...],
    corrected: tuple[Criterion, ...] = (),
    correction: str = "",
    remark: str = "",
    undecided: str = "",
) -> Judgement:
    last = min(float(one["radius"][-1]) for one in summaries.values())
    short = f"Radii up to {last:g} are too small to decide; the published ones end at 10000." if last < _FAR else ""
    few = next(filter(None, (too_few(int(one.attrs["above"])) for one in summaries.values())), "")
    return Judgement(
        numbers=numbers,
        expected=expected,
        counts=counts_of(summaries),
        stated=stated,
        corrected=corrected,
        correction=correction,
        undecided=few or short or undecided,
        remark=remark,
    )


def _worst(summaries: Datasets) -> float:
    return max(float(one["residual"].max()) for one in summaries.values())


def _compared(run: str, one: xarray.Dataset) -> str:
    worse = one["worse"].values
    longer, shorter = int((worse > _SAME).sum()), int((worse < -_SAME).sum())
    return (
        f"at {run} the limit equals the solver's best solution in {worse.size - longer - shorter} of {worse.size} "
        f"seeds, has a smaller norm in {shorter} and a larger norm in {longer}; {one.attrs['missed']} further seeds "
        "are excluded because the solver's solution has a lower risk on the last ball than the path's point"
    )


def _bounds(summaries: Datasets) -> str:
    shares = {run: float(np.median(1 - 1 / (1 + one["bound"].values))) for run, one in summaries.items()}
    return (
        "The nuclear solution without the rank constraint is a lower bound: it proves that no W of rank m has a norm "
        "smaller than the best one found by more than "
        f"{', '.join(f'{share:.1%} at {run}' for run, share in shares.items())} (medians)."
    )


def _there(run: str, one: xarray.Dataset) -> str:
    margins = one["each_margin"].values[one["end"].values]
    less = margins[margins < _MARGIN]
    mean, low, high = number(one, "margin_there")
    said = f"At {run} {margins.size - less.size} of {margins.size} such seeds have {_MARGIN:.0%} of the path's margin"
    said += f" or more; the others have {less.mean():.2f} of it on average." if less.size else " or more."
    unclear = f" The interval of the mean over all of them, {mean:.3f}, contains {_MARGIN:g}."
    return said + (unclear if low < _MARGIN < high else "")


def _claim(name: str, source: Source, statement: str, judge: Callable[[Datasets], Judgement], of: Callable) -> Claim:
    return Claim(f"narrow-path:{name}", source, statement, judge, of)


CLAIMS = (
    _claim(
        "limit",
        _PATH,
        "As R grows, the minimizers of the risk over K and Q with m columns and ||K||_F^2 + ||Q||_F^2 <= 2 R tend in "
        "direction to the solution of the nuclear Att-SVM with rank W <= m.",
        _judge_limit,
        examples.of_limit,
    ),
    _claim(
        "descent",
        _DESCENT,
        "Descent on (K, Q) with m columns converges to the direction of their regularization path.",
        _judge_descent,
        examples.of_descent,
    ),
    _claim(
        "margin",
        _DESCENT,
        "Where descent on (K, Q) with m columns ends at the optimal tokens, it has the margin of their "
        "regularization path.",
        _judge_margin,
        examples.of_margin,
    ),
)
