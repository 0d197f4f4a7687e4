"""Do the paths of W z and K Q^T z in the plane become parallel to the rays of their max-margin solutions?"""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import Int, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxattn import attention, svm
from jaxattn.statistics import bootstrap, variables
from jaxattn.study.claims import TRAINED, Claim, Datasets, Experiment, Judgement, Judgements, Setting, Source, counts_of
from jaxattn.study.claims.criteria import Number, Outcome, above, below
from jaxattn.study.estimates import estimated, exact, number, quantiles, share
from jaxattn.study.measuring.comparison import compare
from jaxattn.study.measuring.growth import AT_REST, growth, lengths
from jaxattn.study.settings.parameters import weights_of
from jaxattn.study.style import page, palette
from jaxattn.study.style.plane import plane
from jaxattn.study.style.view import rounded

_SOURCE = Source("arXiv 2308.16898", "trajectories figure (figure 1; the figure of the poster)", Setting.EXACT)
# The max-margin problem that each parameterization is claimed to solve.
_OWN = {"W": "frobenius", "KQ": "nuclear"}
_NORMS = {"free_zero": "frobenius", "factored_zero": "nuclear"}
_PATHS = {"W": "W", "KQ": "K Q^T"}
_SOLUTIONS = {"W": "Att-SVM (Frobenius norm)", "KQ": "Att-SVM* (nuclear norm)"}
# The training rules by the names of their runs.
_PUBLISHED, _EXACT, _FALLING = "the published rule", "the exact gradient direction", "steps that fall like k^-1/2"
_RULES = {
    "W": {"W": _PUBLISHED, "W, exact": _EXACT},
    "KQ": {"KQ": _PUBLISHED, "KQ, exact": _EXACT, "KQ, falling": _FALLING},
}
# Fixed beforehand: the correlation above which a direction counts as that of the ray, and the shares of seeds that
# count as nearly all and as most. A few instances of tiny margin move the mean correlation to either side by chance.
_PARALLEL, _ALL, _MOST = 0.99, 0.95, 0.5
# Fixed before training with steps that fall: a seed that is not parallel at the end still converges if 1 - cos fell to
# this share of itself or less while the steps became ten times as many.
_STILL, _SPAN = 0.75, 10


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare training W or (K, Q) with the Frobenius and the nuclear solution of its selected tokens.

    Returns:
        The dataset of `compare`, with `grows`, (seed): whether the second singular value of W over the first is larger
        at the last snapshot than at a tenth of the steps.
    """
    compared = compare(record, solver=solver)
    kept = np.isin(record["seed"].values, compared["seed"].values)
    steps = record["snapshot"].values[-1]
    ends = record.sel(snapshot=[steps / _SPAN, steps], method="nearest")
    weights = weights_of({str(name): ends[name].values[kept] for name in ends.data_vars}, "_snapshots")
    first, second = np.moveaxis(np.linalg.svd(attention.matrix(weights), compute_uv=False), -1, 0)
    # Weights may still be zero at the first of the two.
    before, final = np.moveaxis(second / np.maximum(first, np.finfo(float).tiny), -1, 0)
    return compared.assign(grows=(("seed",), final > before))


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Choose the instance to draw, and estimate the final direction over all kept seeds.

    Returns:
        For each run the measured dataset of the drawn seed, the median in the final correlation of W by the published
        rule, and over all kept seeds `final`, the mean correlation at the last step, (norm,); `parallel`, the share of
        seeds above 0.99; `converges`, the share of those and of the seeds whose 1 - cos still falls; `others`, the
        number of all other seeds, and `leaving`, of those of them that `grows`; `off_10`, `off_50` and `off_90`,
        quantiles of 1 - cos with the run's own solution, (snapshot,); and what `growth.growth` returns. The attribute
        `rank` is the share of the seeds whose final correlation is below that of the drawn seed.

    Raises:
        ValueError: no seed was kept in all runs.
    """
    seeds, summaries = _by_final_correlation(runs), {}
    # The lower one of two in the middle.
    drawn = int(seeds[(len(seeds) - 1) // 2])
    for k, (name, run) in enumerate(runs.items()):
        run_key = jax.random.fold_in(key, k)
        correlation = run["correlation"].sel(norm=_NORMS[run.attrs["weights"]], drop=True)
        final = correlation.isel(snapshot=-1, drop=True)
        before = correlation.sel(snapshot=run.attrs["steps"] / _SPAN, method="nearest", drop=True)
        parallel = final > _PARALLEL
        converges = parallel | (1 - final <= _STILL * (1 - before))
        estimates = estimated(
            run,
            key,
            parallel=share(parallel),
            converges=share(converges),
            off=quantiles(1 - correlation, 10, 50, 90),
            others=exact((~converges).sum()),
            leaving=exact((~converges & run["grows"]).sum()),
        )
        means = variables({"final": (("norm",), bootstrap(run["correlation"].values[..., -1], run_key))})
        outwards = growth(lengths(run), jax.random.fold_in(run_key, 1))
        summary = run.sel(seed=drawn).assign(estimates).assign(means).assign(outwards)
        summaries[name] = summary.assign_attrs(rank=float((final < final.sel(seed=drawn)).mean()))
    return summaries


def _by_final_correlation(runs: Datasets) -> Int[np.ndarray, " seeds"]:
    """Return the seeds that all runs kept, sorted by their final correlation of W; ties are sorted by seed number."""
    shared = reduce(np.intersect1d, [run["seed"].values for run in runs.values()])
    if shared.size == 0:
        raise ValueError(f"trajectories: no seed was kept in all runs, counts {counts_of(runs)}")
    final = runs["W"]["correlation"].sel(norm=_OWN["W"], seed=shared).isel(snapshot=-1).values
    return shared[np.argsort(final, kind="stable")]


def _judge(weights: str, runs: Datasets) -> Judgement:
    """Most paths must end parallel by the published rule, which stalls; nearly all converge along the exact one."""
    finals: dict[str, Number] = {}
    motion, expected = [], {}
    for name, rule in _RULES[weights].items():
        run, end = runs[name], f"step {runs[name].attrs['steps']}"
        finals |= {f"{name}: {norm} at {end}": number(run, "final", norm=norm) for norm in run["norm"].values}
        motion.append(_motion(run, _PATHS[weights], rule))
        expected[f"{name}: {_OWN[weights]} at {end}"] = 1.0
    above_it = f"share of seeds above {_PARALLEL}"
    parallel = {f"{name}: {above_it}": number(runs[name], "parallel") for name in _RULES[weights]}
    falls = f"{above_it} or whose 1 - cos still falls"
    converges = {f"{name}: {falls}": number(runs[name], "converges") for name in _RULES[weights]}
    (published, *_), (_, constant, *falling) = parallel.items(), converges.items()
    return Judgement(
        [above(*published, _MOST), above(*constant, _ALL)],
        [above(*of_run, _ALL) for of_run in falling],
        correction=" ".join(
            f"with {_FALLING}: {value.mean:.1%} of the seeds converge, and {constant[1].mean:.1%} with a constant step."
            for _, value in falling
        ),
        remark=f"1 - cos of a seed still falls if it is at most {_STILL:g} of what it was at a tenth of the steps. "
        + " ".join([*(_rest(runs[name], name) for name in _RULES[weights]), *motion]),
        numbers=finals | parallel | converges,
        expected=expected,
    )


def _rest(run: xarray.Dataset, name: str) -> str:
    others, leaving = int(run["others"]), int(run["leaving"])
    if not others:
        return f"{name}: all seeds do one of both."
    return (
        f"{name}: {others} seeds do neither; in {leaving} of them the second singular value grows relative to the "
        "first, so that they slowly leave a direction of rank one."
    )


def _motion(run: xarray.Dataset, W: str, rule: str) -> str:
    grows = number(run, "growth")
    motion = {
        Outcome.MET: "the paths no longer grow, so their direction is that of their end points",
        Outcome.BROKEN: "the paths still move outwards",
        Outcome.UNCLEAR: "it is not clear whether the paths still move outwards",
    }[below("growth", grows, AT_REST).outcome]
    steps = f"from step {int(run['since'])} to {int(run['until'])}"
    return f"By {rule}, {steps}, ||{W} Z|| grows like k^{grows.mean:.2g}: {motion}."


_CLAIMS = tuple(
    Claim(
        f"trajectories-{tokens}:{weights}",
        _SOURCE,
        f"The trajectories {_PATHS[weights]} z_i of gradient descent converge towards the directions to which the "
        f"solution of the {_SOLUTIONS[weights]} maps z_i.",
        partial(_judge, weights),
        TRAINED,
    )
    for tokens in (3, 5)
    for weights in _OWN
)


_WRITTEN = {"frobenius": r"$W_F$", "nuclear": r"$W_*$"}
_LOOKS = {
    _PUBLISHED: (palette.NOTE, "--", "published rule"),
    _EXACT: (palette.AMBER, "-", "exact direction"),
    _FALLING: (palette.SKY, "-.", "falling steps"),
}
# Distances below this are drawn here: rounding leaves none smaller.
_LEAST = 1e-16


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the paths of one seed by the published rule, and below the distance from the rays over all seeds."""
    verdicts = {id.partition(":")[2]: judgement.verdict for id, judgement in judgements.items()}
    with page.style():
        figure = page.full(7.0)
        body = page.body(figure)
        panels = body.subplots(2, 2, height_ratios=(1.35, 1))
        for weights, axes, letter in zip(_OWN, panels[0], "ab", strict=True):
            _paths(axes, letter, weights, summaries[weights])
        for weights, axes, letter in zip(_OWN, panels[1], "cd", strict=True):
            _distances(axes, letter, weights, summaries)
        panels[0, 1].set_ylabel("")
        body.legend(handles=_key(), loc="outside upper center", ncols=4)
        for axes in panels[1]:
            axes.legend(loc="lower left", title="median, 10th to 90th percentile")
        figure.suptitle(
            "The trajectories become parallel to the rays of their SVM solutions: "
            + ", ".join(f"{page.RUNS[weights]} {verdicts[weights]}" for weights in _OWN)
        )
        page.add_counts(
            figure,
            summaries,
            f"(a), (b): seed {int(summaries['W']['seed'])}, the median in final cos when training {page.RUNS['W']} as "
            f"published; {summaries['KQ'].attrs['rank']:.0%} of the seeds end below it in {page.RUNS['KQ']}. Paths and "
            "rays are scaled to the panel; dots: steps near powers of ten and the last. "
            "(c), (d): medians over all seeds, bands from the 10th to the 90th percentile; dotted: "
            f"cos = {_PARALLEL}.",
        )
    return figure


def _key() -> list[Line2D]:
    looks: dict[str, dict[str, Any]] = {}
    for i, (colour, marker, dashes) in enumerate(((palette.TEAL, "o", "-"), (palette.WINE, "s", "--")), start=1):
        looks[f"path of input {i}"] = {"color": colour, "linestyle": dashes}
        looks[f"tokens of input {i}"] = {"color": colour, "marker": marker, "markerfacecolor": "white", "linewidth": 0}
    looks["selected tokens"] = {"color": palette.GUIDE, "marker": "*", "markersize": 9, "linewidth": 0}
    looks["rays"] = {"color": palette.GUIDE, "linestyle": ":", "linewidth": 1.2}
    looks["between star and nearest token"] = {"color": palette.GUIDE, "linewidth": 0.7}
    return [Line2D([], [], label=label, **look) for label, look in looks.items()]


def _paths(axes: Axes, letter: str, weights: str, run: xarray.Dataset) -> None:
    own, steps = _OWN[weights], run["snapshot"].values
    powers = [int(np.abs(np.log10(steps) - power).argmin()) for power in range(int(np.log10(steps[-1])) + 1)]
    # Only the last dot has a name: the others are near the origin or beside tokens.
    marked = dict.fromkeys(powers, "") | {len(steps) - 1: f"step {steps[-1]:,}"}
    paths, rays = run["path"].values.swapaxes(0, 1), run["ray"].sel(norm=own).values
    plane(axes, run["X"].values, run["selected"].values, paths, rays, marked)
    final = run["correlation"].isel(snapshot=-1)
    values = ", ".join(f"{_WRITTEN[str(norm)]} {float(final.sel(norm=norm)):.4f}" for norm in final["norm"].values)
    axes.set_title(f"({letter}) training {page.RUNS[weights]}, rays of {_WRITTEN[own]}\ncos at the end: {values}")


def _distances(axes: Axes, letter: str, weights: str, summaries: Datasets) -> None:
    shares = []
    for name, rule in _RULES[weights].items():
        # At size=small there are no falling steps.
        if name not in summaries:
            continue
        run, (colour, dashes, label) = summaries[name], _LOOKS[rule]
        curve = (np.maximum(run[f"off_{q}"].values, _LEAST) for q in (50, 10, 90))
        page.band(axes, run["snapshot"].values, *curve, color=colour, linestyle=dashes, label=label)
        shares.append(f"{float(run['parallel']):.0%} ({label.partition(' ')[0]})")
    own, drawn = _OWN[weights], summaries[weights]
    for norm in sorted(map(str, drawn["norm"].values), key=lambda norm: norm != own):
        off = np.maximum(1 - drawn["correlation"].sel(norm=norm).values, _LEAST)
        look = {"color": palette.COLOURS[norm], "linewidth": 0.9, "linestyle": palette.DASHES[norm]}
        axes.plot(drawn["snapshot"].values, off, label=f"seed of (a), (b): {_WRITTEN[norm]}", **look)
    axes.axhline(1 - _PARALLEL, color="black", linewidth=0.8, linestyle=":")
    axes.set_title(f"({letter}) {page.RUNS[weights]} and {_WRITTEN[own]}: parallel at the end {', '.join(shares)}")
    axes.set(xscale="log", yscale="log", xlabel="step", ylim=(1e-9, 3))
    axes.set_ylabel("direction error, 1 - cos")


# Which seeds are shown on the site, by their rank in the final correlation of W under the published rule.
_SHOWN = {"median": 0.5, "lowest tenth": 0.1, "lower quartile": 0.25, "upper quartile": 0.75, "highest tenth": 0.9}


def view(runs: Datasets) -> dict[str, Any]:
    """Return tokens, paths, rays and distances of five seeds.

    Returns:
        `steps`, of the snapshots of each run; and `seeds`, for each its number, its `place` among all, the tokens `X`
        and for each run the `selected` tokens, the `path` of W z_i, (snapshot, input, 2), the `ray` of both
        solutions, (input, 2), and how far `off` them W is, 1 - cos, (snapshot,).
    """
    order = _by_final_correlation(runs)
    shown = {place: int(order[int(share * (len(order) - 1))]) for place, share in _SHOWN.items()}
    return {
        "steps": {name: run["snapshot"].values.tolist() for name, run in runs.items()},
        "seeds": [
            {
                "seed": seed,
                "place": place,
                "X": rounded(runs["W"]["X"].sel(seed=seed).values),
                "runs": {name: _seen(run.sel(seed=seed)) for name, run in runs.items()},
            }
            for place, seed in shown.items()
        ],
    }


def _seen(run: xarray.Dataset) -> dict[str, Any]:
    norms = [str(norm) for norm in run["norm"].values]
    return {
        "selected": rounded(run["selected"].values),
        "path": rounded(run["path"].values),
        "ray": {norm: rounded(run["ray"].sel(norm=norm).values) for norm in norms},
        # Rounding can leave a correlation above 1.
        "off": {norm: rounded((1 - run["correlation"].sel(norm=norm).values).clip(min=0.0), 3) for norm in norms},
    }


EXPERIMENT = Experiment(measure, claims=_CLAIMS, summarize=summarize, draw=draw, view=view)
