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

from jaxattn.experiments.local.local_convergence import measure
from jaxattn.statistics import bootstrap, proportion, variables
from jaxattn.study.claims import TRAINED, Claim, Datasets, Experiment, Judgement, Judgements, Setting, Source, counts_of
from jaxattn.study.claims.criteria import Number, Outcome, above, below
from jaxattn.study.estimates import number
from jaxattn.study.measuring.growth import AT_REST, growth, lengths
from jaxattn.study.style import page, palette
from jaxattn.study.style.plane import plane
from jaxattn.study.style.view import rounded

_SOURCE = Source("arXiv 2308.16898", "trajectories figure (figure 1; the figure of the poster)", Setting.EXACT)
# The max-margin problem that each parameterization is claimed to solve.
_OWN = {"W": "frobenius", "KQ": "nuclear"}
_NORMS = {"free_zero": "frobenius", "factored_zero": "nuclear"}
_PATHS = {"W": "W", "KQ": "K Q^T"}
_SOLUTIONS = {"W": "Att-SVM (Frobenius norm)", "KQ": "Att-SVM* (nuclear norm)"}
# The two training rules: the suffixes of the runs, and their names in text.
_RULES = {"": "the published rule", ", exact": "the exact gradient direction"}
# Fixed beforehand: the correlation above which a direction counts as that of the ray, and the shares of seeds that
# count as nearly all and as most. The mean correlation is not used: a few instances of tiny margin, for which 2,000
# steps are only the beginning, move it to either side of 0.99 by chance.
_PARALLEL, _ALL, _MOST = 0.99, 0.95, 0.5


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Choose the instance to draw, and estimate the final direction over all kept seeds.

    Returns:
        For each run the measured dataset of the drawn seed, whose correlation with the Frobenius solution at the end of
        training W by the published rule is the median, and over all kept seeds `final`, the mean correlation at the
        last step, (norm,); `parallel`, the share of seeds above 0.99; `off_10`, `off_50` and `off_90`, quantiles of
        1 - cos with the run's own solution, (snapshot,); and what `growth.growth` returns. The attribute `rank` is the
        share of the seeds whose final correlation is below that of the drawn seed.

    Raises:
        ValueError: no seed was kept in all runs.
    """
    seeds, summaries = _by_final_correlation(runs), {}
    # The lower one of two in the middle.
    drawn = int(seeds[(len(seeds) - 1) // 2])
    for k, (name, run) in enumerate(runs.items()):
        run_key = jax.random.fold_in(key, k)
        correlation = run["correlation"].sel(norm=_NORMS[run.attrs["weights"]])
        final = correlation.isel(snapshot=-1)
        estimates = {
            "final": (("norm",), bootstrap(run["correlation"].values[..., -1], run_key)),
            "parallel": ((), proportion((final > _PARALLEL).values)),
        }
        quantiles = {f"off_{q}": (("snapshot",), np.quantile(1 - correlation, q / 100, axis=0)) for q in (10, 50, 90)}
        grows = growth(lengths(run), jax.random.fold_in(run_key, 1))
        summary = run.sel(seed=drawn).assign(variables(estimates) | quantiles).assign(grows)
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
    """Along the exact gradient direction nearly all paths must end parallel to their rays, else most.

    The statement is about the limit, which the published rule does not reach: it makes few steps, and it stalls by
    rounding. As corrected, most paths must be parallel under both rules.
    """
    finals: dict[str, Number] = {}
    shares: dict[str, Number] = {}
    reached, motion, expected = [], [], {}
    for suffix, rule in _RULES.items():
        name, run = f"{weights}{suffix}", runs[f"{weights}{suffix}"]
        end, parallel = f"step {run.attrs['steps']}", number(run, "parallel")
        finals |= {f"{name}: {norm} at {end}": number(run, "final", norm=norm) for norm in run["norm"].values}
        shares[f"{name}: share of seeds above {_PARALLEL}"] = parallel
        reached.append(f"{parallel.mean:.0%} by {rule} ({end})")
        motion.append(_motion(run, _PATHS[weights], rule))
        expected[f"{name}: {_OWN[weights]} at {end}"] = 1.0
    return Judgement(
        [above(*share, least) for share, least in zip(shares.items(), (_MOST, _ALL), strict=True)],
        [above(*share, _MOST) for share in shares.items()],
        correction=f"at that step most but not nearly all of the paths are parallel to their rays: "
        f"{' and '.join(reached)}.",
        remark=" ".join(motion),
        numbers=finals | shares,
        expected=expected,
    )


def _motion(run: xarray.Dataset, W: str, rule: str) -> str:
    """Say whether the paths still move outwards at the end."""
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
_LOOKS = {"": (palette.NOTE, "--", "published rule"), ", exact": (palette.AMBER, "-", "exact direction")}
# Distances below this are drawn here: rounding leaves none smaller.
_LEAST = 1e-16


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the paths of one seed by the published rule, and below the distance from the rays over all seeds."""
    with page.style():
        figure = page.full(6.6)
        panels = figure.subplots(2, 2, height_ratios=(1.35, 1))
        for weights, axes, letter in zip(_OWN, panels[0], "ab", strict=True):
            _paths(axes, letter, weights, summaries[weights])
        for weights, axes, letter in zip(_OWN, panels[1], "cd", strict=True):
            _distances(axes, letter, weights, summaries)
        # Below the panel: inside, some path would be under it.
        panels[0, 0].legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2)
        panels[1, 0].legend(loc="lower left")
        panels[0, 1].set_ylabel("")
        page.add_counts(
            figure,
            summaries,
            f"(a), (b): seed {int(summaries['W']['seed'])}, the median in final cos when training {page.RUNS['W']} as "
            f"published; {summaries['KQ'].attrs['rank']:.0%} of the seeds end below it in {page.RUNS['KQ']}. Paths and "
            "rays (grey) are scaled to the panel; dots: steps near powers of ten and the last. "
            f"(c), (d): median over all seeds, band from the 10th to the 90th percentile; dotted: cos = {_PARALLEL}.",
        )
    return figure


def _paths(axes: Axes, letter: str, weights: str, run: xarray.Dataset) -> None:
    own, steps = _OWN[weights], run["snapshot"].values
    powers = [int(np.abs(np.log10(steps) - power).argmin()) for power in range(int(np.log10(steps[-1])) + 1)]
    marked = {snapshot: f"{steps[snapshot]:,}" for snapshot in [*powers, len(steps) - 1]}
    paths, rays = run["path"].values.swapaxes(0, 1), run["ray"].sel(norm=own).values
    plane(axes, run["X"].values, run["selected"].values, paths, rays, marked)
    final = run["correlation"].isel(snapshot=-1)
    values = ", ".join(f"{_WRITTEN[str(norm)]} {float(final.sel(norm=norm)):.4f}" for norm in final["norm"].values)
    axes.set_title(f"({letter}) training {page.RUNS[weights]}, rays of {_WRITTEN[own]}\ncos at the end: {values}")


def _distances(axes: Axes, letter: str, weights: str, summaries: Datasets) -> None:
    """Draw 1 - cos along the steps by both rules, and that of the drawn seed from both solutions."""
    for rule, (colour, dashes, label) in _LOOKS.items():
        run = summaries[f"{weights}{rule}"]
        curve = (np.maximum(run[f"off_{q}"].values, _LEAST) for q in (50, 10, 90))
        page.band(axes, run["snapshot"].values, *curve, color=colour, linestyle=dashes, label=label)
    own, drawn = _OWN[weights], summaries[weights]
    for norm in sorted(map(str, drawn["norm"].values), key=lambda norm: norm != own):
        off = np.maximum(1 - drawn["correlation"].sel(norm=norm).values, _LEAST)
        look = {"color": palette.COLOURS[norm], "linewidth": 0.9, "linestyle": palette.DASHES[norm]}
        axes.plot(drawn["snapshot"].values, off, label=f"seed of (a), (b): {_WRITTEN[norm]}", **look)
    axes.axhline(1 - _PARALLEL, color="black", linewidth=0.8, linestyle=":")
    published, exact = (f"{float(summaries[f'{weights}{rule}']['parallel']):.0%}" for rule in _RULES)
    axes.set_title(
        f"({letter}) {page.RUNS[weights]} and {_WRITTEN[own]}: share of seeds that end\n"
        f"parallel {published} (published), {exact} (exact)",
    )
    axes.set(xscale="log", yscale="log", xlabel="step", ylim=(1e-8, 3))
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
