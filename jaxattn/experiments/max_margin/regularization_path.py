"""Which max-margin solutions do the regularization paths of W and of (K, Q) tend to?"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import svm
from jaxattn.experiments.max_margin import local_paths
from jaxattn.statistics import bootstrap, derive_key
from jaxattn.study.claims import DRAWN, Claim, Datasets, Experiment, Judgement, Judgements, Setting, Source, claim
from jaxattn.study.claims.criteria import above, below, between
from jaxattn.study.estimates import estimated, exact, geometric_mean, mean, number, power_law, share
from jaxattn.study.measuring import paths
from jaxattn.study.style import labels, page, palette
from jaxattn.study.style.view import rounded

# The poster states the theorem for (K, Q) only.
_SOURCES = {
    "W": Source("arXiv 2308.16898", "theorem on the regularization paths", Setting.OURS),
    "KQ": Source("arXiv 2308.16898", "theorem on the regularization paths (poster, theorem I)", Setting.OURS),
}
_LOCAL, _LOCAL_RUN = Source("arXiv 2308.16898", "theorem on the local regularization path", Setting.OURS), "local"
# How the solutions in the two norms are written.
_WRITTEN = {"frobenius": "$W_F$", "nuclear": "$W_*$"}
_LIMITS = {"W": "W_R / R to W_mm / ||W_mm||_F", "KQ": "K Q^T / R to W* / ||W*||_*"}
# What a reader who compares with the source should know.
_CHANGED = {
    "W": "",
    "KQ": " The poster divides W* by its Frobenius norm. The direction is the same, but K Q^T / R has a nuclear norm "
    "of 1 at most, so that we divide by the nuclear norm.",
}
# The exponent is fitted over the last decade of the radii, which should end here or later.
_DECADE, _FAR = 10.0, 300.0
# The exponent of 1 / R with its tolerance, and the threshold for a small distance.
_EXPONENT, _AROUND, _NEAR = -1.0, 0.2, 0.02
# The share of seeds whose local path must be in the cone.
_NEARLY_ALL = 0.95
# Two paths farther apart than this, in units of R, count as different.
_APART = 1e-3


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare paths with the solutions; those of `LocalPaths` with the solutions of their own tokens."""
    return local_paths.measure(record) if "alpha" in record else paths.measure(record, solver)


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate distances and their exponents over the kept seeds.

    Returns:
        Over norms and radii: geometric means of `distance` and `off` with interval bounds, the `exponent` of the
        distance, the `ratio` of the distance from its own solution to that from the other at the last radius, the
        shares of seeds with the optimal tokens `selected`, with two paths `apart`, and solved from `one_way` only; the
        number of seeds `elsewhere`, at other tokens at the last radius; and the largest `residual`. For local paths
        `distance`, `exponent` and `residual`, the mean share of starts that end `inside` the cone, the share of seeds
        whose path is `within` it, and the numbers of points by which a path is `beaten`, and of seeds with the
        `optimal` tokens.
    """
    distance, late = run["distance"], float(run["radius"][-1]) / _DECADE * (1 - 1e-9)
    if "beaten" in run:
        return estimated(
            run,
            key,
            distance=geometric_mean(distance),
            exponent=power_law(distance, since=late, along="radius"),
            inside=mean(run["inside"]),
            within=share(run["within"]),
            beaten=exact(run["beaten"].sum()),
            residual=exact(run["residual"].max("seed")),
            optimal=exact(run["optimal"].sum()),
        )
    own = distance.sel(norm=run.attrs["ball"], drop=True)
    (other,) = (distance.sel(norm=norm, drop=True) for norm in _WRITTEN if norm != run.attrs["ball"])
    ratio = bootstrap(np.log10(own.values[:, -1]) - np.log10(other.values[:, -1]), derive_key(key))
    estimates = estimated(
        run,
        key,
        distance=geometric_mean(distance),
        off=geometric_mean(run["off"].clip(min=np.finfo(float).eps)),
        exponent=power_law(own, since=late, along="radius"),
        selected=share(run["selected"]),
        apart=share(_two_minima(run)),
        one_way=share(run["apart"] == np.inf),
        residual=exact(run["residual"].max("seed")),
        elsewhere=exact((~run["selected"]).isel(radius=-1, drop=True).sum("seed")),
    )
    return estimates.assign(ratio=10**ratio.mean, ratio_low=10**ratio.low, ratio_high=10**ratio.high).assign_attrs(
        points=run["solved"].size, unsolved_points=int((~run["solved"]).sum())
    )


def _two_minima(run: xarray.Dataset) -> xarray.DataArray:
    """Return whether a seed has two minima at a radius; a path solved from one end alone has one."""
    return (run["apart"] > _APART) & (run["apart"] < np.inf)


def _judge(name: str, runs: Datasets) -> Judgement:
    """The distance from its own solution must be small, smaller than from the other, and fall like 1 / R."""
    run = runs[name]
    end, own, last = run.isel(radius=-1), run.attrs["ball"], float(run["radius"][-1])
    at, distance = f"at R = {last:g}", f"distance at R = {last:g}, {own}"
    apart = number(end, "apart")
    numbers = {f"distance {at}, {norm}": number(end, "distance", norm=norm) for norm in _WRITTEN} | {
        "exponent of the distance": number(run, "exponent"),
        f"1 - cos {at}": number(end, "off", norm=own),
        f"share of seeds with the optimal tokens {at}": number(end, "selected"),
        f"share of seeds with two local minima {at}": apart,
        f"share of seeds solved from one end only {at}": number(end, "one_way"),
        "largest residual": float(run["residual"].max()),
    }
    short = f"Radii up to {last:g} are too small to decide; the published ones end at 1000."
    return Judgement(
        (
            below(distance, number(end, "distance", norm=own), _NEAR),
            below(f"distance from the {own} solution over the distance from the other {at}", number(run, "ratio"), 1.0),
            between("exponent of the distance", number(run, "exponent"), _EXPONENT - _AROUND, _EXPONENT + _AROUND),
            below(f"kept seeds that select tokens other than the optimal ones {at}", number(run, "elsewhere"), 0),
        ),
        remark=f"Of the two paths, the one with the lower risk is used; {apart.mean:.0%} of the seeds have two "
        f"different local minima {at}.{_CHANGED[name]}",
        numbers=numbers,
        expected={
            distance: 0.0,
            "exponent of the distance": _EXPONENT,
            f"share of seeds with the optimal tokens {at}": 1.0,
        },
        undecided=short if last < _FAR else "",
    )


_CLAIMS = tuple(
    Claim(
        f"regularization-path:{name}",
        source,
        f"As R grows, the minimizers of the risk on balls of radius R converge in direction: {_LIMITS[name]}.",
        partial(_judge, name),
    )
    for name, source in _SOURCES.items()
)


@claim(
    "regularization-path:local",
    _LOCAL,
    "For locally optimal tokens alpha, as R grows, the minimizers of the risk within a cone around W_alpha and the "
    "ball of radius R converge in direction to W_alpha.",
    DRAWN,
)
def _local(runs: Datasets) -> Judgement:
    """What is found in the cone must approach W_alpha like 1 / R, and have a lower risk than the cone's boundary."""
    run = runs[_LOCAL_RUN]
    end, last = run.isel(radius=-1), float(run["radius"][-1])
    short = f"Radii up to {last:g} are too small to decide; the published ones end at 3000."
    return Judgement(
        (
            below(f"distance at R = {last:g}", number(end, "distance"), _NEAR),
            between("exponent of the distance", number(run, "exponent"), _EXPONENT - _AROUND, _EXPONENT + _AROUND),
            above(f"share of seeds whose path is in the cone at R = {last:g}", number(end, "within"), _NEARLY_ALL),
            below("random points on the boundary of the cone with a lower risk", number(run, "beaten"), 0),
        ),
        remark="The theorem has some cone that is narrow enough. Here it has half the tangent up to which the SVM "
        "ensures that alpha leads and that tokens of a higher score are farther behind than the margin. The tokens "
        "alpha are the optimal ones, except for one input, which takes its second best, where this is locally optimal; "
        "in "
        f"{int(run['optimal'])} of {run.attrs['kept']} seeds it is for no input, and alpha is optimal. On each "
        "ball Newton steps start along W_alpha and along random directions on the boundary of the cone; the distance "
        "is that of the farthest of their ends in the cone.",
        numbers={
            f"share of starts that end in the cone at R = {last:g}": number(end, "inside"),
            "largest residual": float(run["residual"].max()),
        },
        expected={},
        undecided=short if last < _FAR else "",
    )


_PATHS = {"W": "$W$", "KQ": "$(K, Q)$"}
_BALLS = {"W": r"radius $R$ of $\|W\|_F$", "KQ": r"radius $R$ of $\|KQ^\top\|_*$"}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the distances of both paths, and the share of seeds whose two ends lead to two minima."""
    local = summaries[_LOCAL_RUN]
    summaries = {name: summaries[name] for name in _SOURCES}
    with page.style():
        figure = page.full(3.8)
        verdicts = {path: judgements[f"regularization-path:{path}"].verdict for path in _SOURCES}
        figure.suptitle(
            f"The regularization path of $W$ tends to $W_F$: {verdicts['W']}; "
            f"that of $(K, Q)$ to $W_*$: {verdicts['KQ']}.\n"
            f"Local paths tend to the solution of their tokens: {judgements['regularization-path:local'].verdict}"
        )
        left, middle, right = figure.subplots(1, 3)
        low = min(float(run["distance_low"].min()) for run in summaries.values())
        high = max(float(run["distance_high"].max()) for run in summaries.values())
        for letter, axes, (name, run) in zip("ab", (left, middle), summaries.items(), strict=True):
            # The same limits for both paths, with room for the labels.
            axes.set(xscale="log", yscale="log", ylim=(0.3 * low, 2.5 * high))
            _distances(axes, run)
            own, exponent = _WRITTEN[run.attrs["ball"]], float(run["exponent"])
            axes.set_title(rf"({letter}) path of {_PATHS[name]}: distance to {own} $\propto R^{{{exponent:.2f}}}$")
            axes.set_xlabel(_BALLS[name])
        left.set_ylabel("distance to a solution")
        middle.tick_params(labelleft=False)
        _minima(right, summaries)
        local = local.sel(radius=slice(None, float(summaries["W"]["radius"][-1])))
        radii, *curve = (local[part].values for part in ("radius", "distance", "distance_low", "distance_high"))
        page.band(left, radii, *curve, color=palette.GUIDE, linestyle="-.", label=r"local path, to $W_\alpha$")
        left.legend(loc="lower left")
        page.add_counts(figure, summaries | {_LOCAL_RUN: local}, _remark(summaries))
    return figure


def _distances(axes: Axes, run: xarray.Dataset) -> None:
    radii, ends = run["radius"].values, []
    for norm, written in _WRITTEN.items():
        of_norm, colour = run.sel(norm=norm), palette.COLOURS[norm]
        curve = (of_norm[part].values for part in ("distance", "distance_low", "distance_high"))
        page.band(axes, radii, *curve, color=colour, linestyle=palette.DASHES[norm])
        ends.append(labels.End(f"to {written}", radii[-1], float(of_norm["distance"][-1]), colour))
    last = radii[-1] / np.array([_DECADE, 1.0])
    guide = 0.4 * float(run["distance"].sel(norm=run.attrs["ball"])[-1]) * radii[-1] / last
    axes.plot(last, guide, color=palette.INK, linewidth=0.7, linestyle=":")
    axes.annotate("$R^{-1}$", (last[0], guide[0]), (-2, -2), textcoords="offset points", ha="right", va="top")
    labels.beside_ends(axes, ends)


def _minima(axes: Axes, summaries: Datasets) -> None:
    ends = []
    for name, run in summaries.items():
        curve = (run[part].values for part in ("radius", "apart", "apart_low", "apart_high"))
        page.band(axes, *curve, color=palette.COLOURS[name], linestyle=palette.DASHES[name])
        radius, apart = float(run["radius"][-1]), float(run["apart"][-1])
        ends.append(labels.End(page.RUNS[name], radius, apart, palette.COLOURS[name]))
    shares = " and ".join(f"{end.y:.0%} ({end.label})" for end in ends)
    axes.set(title=f"(c) two minima: {shares} of seeds", xlabel="radius $R$", xscale="log")
    axes.set(ylim=(-0.02, 1.02), ylabel="share of seeds with two minima")
    labels.beside_ends(axes, ends)


def _remark(summaries: Datasets) -> str:
    unsolved, points = (sum(run.attrs[name] for run in summaries.values()) for name in ("unsolved_points", "points"))
    worst = max(float(run["residual"].max()) for run in summaries.values())
    missing = f"{unsolved} of {points} points are unsolved. " if unsolved else ""
    return (
        r"$W_F$, $W_*$: Frobenius and nuclear SVM solution. Distance: $\|W_R/R - \hat W/\|\hat W\|\,\|_F$, $\|\hat W\|$"
        " in the norm of the ball; geometric means, 95% intervals. Two minima: the paths followed up and down differ; "
        f"(a), (b) show that of lower risk. {missing}"
        f"Largest residual: {page.power(worst)}."
    )


def view(runs: Datasets) -> dict[str, Any]:
    """Return the distances of every kept seed, radius by radius.

    Returns:
        The `radii`, and `paths`, for each its `name`, the `distance` from the solution of each norm, (seed, radius),
        and the shares of the seeds with the optimal tokens `selected` and with two minima `apart`, (radius,).
    """
    return {
        "radii": rounded(next(iter(runs.values()))["radius"].values),
        "paths": [
            {
                "name": name,
                "distance": {
                    str(norm): rounded(run["distance"].sel(norm=norm).values, 3) for norm in run["norm"].values
                },
                "selected": rounded(run["selected"].mean("seed").values, 3),
                "apart": rounded(_two_minima(run).mean("seed").values, 3),
            }
            for name, run in runs.items()
            if name in _SOURCES
        ],
    }


EXPERIMENT = Experiment(measure, claims=(*_CLAIMS, _local), estimate=estimate, draw=draw, view=view)
