"""Which max-margin problems do the joint regularization paths of the prompt p and the head's v obey (2306.13596)?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray
from jaxtyping import Bool, Float, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import svm
from jaxattn.experiments.prompts import joint
from jaxattn.experiments.prompts.joint import PROBLEM_LOOKS, PROBLEMS, is_parallel, medians_of, of_support
from jaxattn.experiments.prompts.joint_path.record import SOLVED
from jaxattn.problem import Problem, of_arrays
from jaxattn.statistics import bootstrap, variables
from jaxattn.study.claims import Datasets, Experiment, Judgement, Judgements, Setting, Source, claim, too_few
from jaxattn.study.claims.criteria import Number, above, below, between
from jaxattn.study.estimates import estimated, exact, number, quantiles, share
from jaxattn.study.measuring import exclusions
from jaxattn.study.style import page, palette

# The laws of the radii, and the problem that p obeys under each: p outgrows v, neither does, or v outgrows p.
_OBEYED = {"r ~ R^0.5": "unrelaxed", "r ~ R^1": "offset", "r ~ R^2": "relaxed"}
# Fixed before any number of the experiment's key: the direction error of equal directions; the share of seeds that is
# nearly all; that which other problems must not reach; the largest mean direction error of a limit; the smallest last
# radius that decides; and the share of seeds that must be solved.
_PARALLEL, _ALL, _OTHERS, _NEAR, _FAR, _SOLVED = 0.001, 0.95, 0.8, 0.001, 900.0, 0.9
# The rounding errors of 1 - cos for equal directions, and of equal margins, in double precision.
_SAME, _EQUAL = 1e-16, 1e-9
_SHARE = f"share of seeds with 1 - cos below {_PARALLEL}"


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare the path of lowest risk at the largest radii with the certified solutions for its tokens.

    A seed is kept if that path is solved on every radius, and its other paths on the largest; if all max-margin
    problems are certified optimal; and unless it is "ambiguous", which the theorem excludes: another token of an input
    has a label margin as large as the smallest one of the tokens chosen.

    Returns:
        `off`, 1 - cos of p and each solution, offsets being those for the largest radii, and `off_v`, of v; `residual`;
        whether the path is the `lowest` found, an input is a `support` vector of v, the path's tokens are those of
        `largest` label margin of all, and a point of an attempt is `solved`.
    """
    arrays = {str(name): record[name].values for name in record.data_vars}
    seeds = np.arange(len(arrays["X"]))
    solved = arrays["residual"] <= SOLVED
    risk = np.where(solved, arrays["log_risk"], np.inf)
    path = risk[:, :, -1].argmin(axis=1)
    alpha, p, head = (arrays[name][seeds, path] for name in ("alpha", "p", "head"))
    problems = of_arrays(arrays)
    r, R = (np.linalg.norm(end[:, -1], axis=1) for end in (head, p))
    # A path that was given up ends at p = 0; it is excluded below.
    ratio = np.divide(r, R, out=np.ones_like(r), where=(R > 0) & np.isfinite(r) & (r > 0))
    solutions = joint.solve(problems, alpha, ratio, solver)
    p_mm = np.einsum("spij,sj->spi", np.nan_to_num(solutions.W), arrays["Z"][:, 0])
    v_mm = np.nan_to_num(solutions.v)
    complete = solved[seeds, path].all(axis=1) & solved[:, :, -1].all(axis=1)
    ambiguous = solutions.solved & complete & _ambiguous(problems, alpha, v_mm)
    kept = solutions.solved & complete & ~ambiguous
    return xarray.Dataset(
        {
            "off": (("seed", "problem", "radius"), _off(p[:, None], p_mm[:, :, None])[kept]),
            "off_v": (("seed", "radius"), _off(head, v_mm[:, None])[kept]),
            "residual": (("seed", "radius"), arrays["residual"][seeds, path][kept]),
            "lowest": (("seed", "radius"), (risk.argmin(axis=1) == path[:, None])[kept]),
            "support": (("seed", "input"), solutions.support[kept]),
            "largest": (("seed",), (path == 0)[kept]),
            "solved": (("attempt", "radius"), solved[seeds, path]),
        },
        {
            "seed": record["seed"].values[kept],
            "attempt": record["seed"].values,
            "problem": np.array(PROBLEMS, object),
            "radius": record["radius"].values,
        },
        exclusions.count(kept, ambiguous=ambiguous, infeasible=solutions.infeasible),
    )


def _ambiguous(problems: Problem, alpha: np.ndarray, v: Float[np.ndarray, "seed d"]) -> Bool[np.ndarray, " seed"]:
    """Whether another token of an input has at least the smallest label margin of the tokens chosen, 1."""
    margins = np.asarray(problems.Y)[:, :, None] * np.einsum("sntd,sd->snt", np.asarray(problems.X), v)
    others = np.arange(problems.T) != alpha[:, :, None]
    return (others & (margins >= 1 - _EQUAL)).any(axis=(1, 2))


def _off(a: Float[np.ndarray, "... d"], b: Float[np.ndarray, "... d"]) -> Float[np.ndarray, "..."]:
    """Return the direction error 1 - cos, computed without cancellation."""

    def unit(x: np.ndarray) -> np.ndarray:
        length = np.linalg.norm(x, axis=-1, keepdims=True)
        return x / np.where(length > 0, length, 1.0)

    return np.maximum(np.sum((unit(a) - unit(b)) ** 2, axis=-1) / 2, _SAME)


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate how close p and v are to the solutions along the radii, over the `mixed`, the `whole` or all seeds."""
    mixed, whole, counts = of_support(run)
    off_whole = whole["off"].sel(problem="unrelaxed", drop=True)
    estimates = estimated(
        run,
        key,
        parallel=share(is_parallel(mixed["off"].isel(radius=-1, drop=True), _PARALLEL)),
        head=share(is_parallel(run["off_v"].isel(radius=-1, drop=True), _PARALLEL)),
        lowest=share(run["lowest"]),
        largest=share(run["largest"]),
        off=quantiles(mixed["off"], 10, 50, 90),
        whole=quantiles(off_whole, 10, 50, 90),
        off_v=quantiles(run["off_v"], 10, 50, 90),
        residual=exact(float(run["residual"].max())),
    )
    solved = run["solved"].values
    estimates = estimates.assign(variables({"off_whole": ((), bootstrap(off_whole.values[:, -1], key))}))
    return estimates.assign_attrs(counts, points=solved.size, unsolved_points=int((~solved).sum()))


def _undecided(runs: Datasets, seeds: str) -> str:
    """Return why the first law that cannot decide cannot, by its seeds of a kind; empty if all can."""
    for law in _OBEYED:
        attrs, last = runs[law].attrs, float(runs[law]["radius"][-1])
        if last < _FAR:
            return f"Radii up to {last:g} are too small to decide; at least {_FAR:g} are needed."
        if attrs["unsolved"] > (1 - _SOLVED) * attrs["attempted"]:
            return f"{attrs['unsolved']} of {attrs['attempted']} paths are unsolved: too many to decide."
        if few := too_few(attrs[seeds]):
            return few
    return ""


def _by_law(runs: Datasets, words: Callable[[xarray.Dataset], str]) -> str:
    """Say something of the run of each law."""
    return ", ".join(f"{words(runs[law])} ({law})" for law in _OBEYED)


def _seeds(runs: Datasets, kind: str) -> str:
    return _by_law(runs, lambda run: f"{run.attrs[kind]} of {run.attrs['kept']}")


_SOURCE = Source("arXiv 2306.13596", "theorem on joint regularization paths, as recalled", Setting.OURS)


@claim(
    "joint-path:head",
    _SOURCE,
    "Under logistic loss, as the radii r of v and R of p grow, v tends in direction to the max-margin classifier "
    "of the selected tokens.",
)
def _head(runs: Datasets) -> Judgement:
    medians = _by_law(runs, lambda run: f"{float(run['off_v_50'][-1]):.2g}")
    largest = _by_law(runs, lambda run: f"{float(run['largest']):.0%}")
    lowest = _by_law(runs, lambda run: f"{float(run['lowest'][0]):.0%}")
    return Judgement(
        [above(f"{_SHARE}, v, {law}", number(runs[law], "head"), _ALL) for law in _OBEYED],
        remark=f"Median 1 - cos of v: {medians}. The path of lower risk at the largest radii is that of the tokens of "
        f"largest label margin in {largest}; at the smallest it is the lower one in {lowest}.",
        undecided=_undecided(runs, "kept"),
    )


@claim(
    "joint-path:support",
    _SOURCE,
    "Where all inputs are support vectors of the max-margin v, p tends in direction to the max-margin solution "
    "p_mm of the selected tokens.",
)
def _support(runs: Datasets) -> Judgement:
    label = "mean 1 - cos of p and its token SVM"
    return Judgement(
        [between(f"{label}, {law}", number(runs[law], "off_whole"), 0.0, _NEAR) for law in _OBEYED],
        remark=f"Over the seeds all of whose inputs are support vectors of v: {_seeds(runs, 'whole')}.",
        undecided=_undecided(runs, "whole"),
    )


@claim(
    "joint-path:relaxed",
    Source("arXiv 2306.13596", "theorem on joint regularization paths, relaxed, as recalled", Setting.OURS),
    "As the radii r of v and R of p grow, p tends in direction to the token SVM in which the constraints of the "
    "inputs that are no support vectors of the max-margin v are relaxed from >= 1 to >= 0.",
)
def _relaxed(runs: Datasets) -> Judgement:
    stated = {law: above(*_parallel(runs, law, "relaxed"), _ALL) for law in _OBEYED}
    correction = "only if the radius r of v outgrows R."
    return Judgement([*stated.values()], [stated["r ~ R^2"]], correction, **_of_mixed(runs))


@claim(
    "joint-path:growth",
    Source("jaxattn", "joint regularization paths by the growth of their radii", Setting.OURS),
    "The problem that p obeys depends on how r grows with R: p tends to the unrelaxed problem if r / R falls to 0, to "
    "the relaxed one if it grows without bound, and for a fixed ratio to that in which input i has the target "
    "max(0, 1 - kappa (m_i - m)), with m_i its label margin, m the smallest and kappa = r / R times the solution's "
    "norm.",
)
def _growth(runs: Datasets) -> Judgement:
    others = [(law, other) for law in _OBEYED for other in ("unrelaxed", "relaxed") if other != _OBEYED[law]]
    stated = [above(*_parallel(runs, law, problem), _ALL) for law, problem in _OBEYED.items()]
    return Judgement(
        stated + [below(*_parallel(runs, law, other), _OTHERS) for law, other in others], **_of_mixed(runs)
    )


def _parallel(runs: Datasets, law: str, problem: str) -> tuple[str, Number]:
    return f"{_SHARE}, {problem}, {law}", number(runs[law], "parallel", problem=problem)


def _of_mixed(runs: Datasets) -> dict[str, Any]:
    """Return what judgements on seeds with inputs that are no support vectors say besides their criteria."""
    medians = "; ".join(f"{law}: {medians_of(runs[law], 'off_50')}" for law in _OBEYED)
    return {
        "remark": f"Over the seeds some of whose inputs are no support vectors of v: {_seeds(runs, 'mixed')}. Median "
        f"1 - cos: {medians}.",
        "numbers": dict(_parallel(runs, law, problem) for law in _OBEYED for problem in PROBLEMS),
        "undecided": _undecided(runs, "mixed"),
    }


_GROWTHS = ("$r \\propto R^{1/2}$", "$r \\propto R$", "$r \\propto R^2$")
# From slow to fast growth of r, from light to dark.
_LOOKS = {
    law: {"color": colour, "linestyle": dash, "label": label}
    for law, colour, dash, label in zip(_OBEYED, palette.ramp(3), ("-", "--", ":"), _GROWTHS, strict=True)
}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw direction errors of p where some inputs are no support vectors, law by law, where all are, and of v."""
    with page.style():
        figure = page.full(5.2)
        panels = figure.subplots(2, 3, sharey="row")
        of_whole, of_v, key = panels[1]
        for axes, (law, look), letter in zip(panels[0], _LOOKS.items(), "abc", strict=True):
            run = summaries[law]
            share_at = float(run["parallel"].sel(problem=_OBEYED[law]))
            axes.set_title(f'({letter}) $p$, {look["label"]}: {share_at:.0%}\nat the problem "{_OBEYED[law]}"')
            # A few seeds may all be of one kind: there is nothing to draw of the other.
            if run.attrs["mixed"]:
                for problem, of_problem in PROBLEM_LOOKS.items():
                    _curve(axes, run.sel(problem=problem), "off", **of_problem)
            if run.attrs["whole"]:
                _curve(of_whole, run, "whole", **look)
            _curve(of_v, run, "off_v", **look)
        of_whole.set_title("(d) $p$, all inputs support vectors,\nfrom its token SVM")
        of_v.set_title("(e) $v$, from the\nmax-margin classifier")
        for axes in (*panels[0], of_whole, of_v):
            axes.set(xscale="log", yscale="log", xlabel="radius $R$ of $p$")
        for axes in panels[:, 0]:
            axes.set_ylabel("direction error, $1 - \\cos$")
        key.axis("off")
        key.add_artist(key.legend(handles=panels[0, 0].lines, title="(a)-(c): 1 - cos with", loc="upper left"))
        key.legend(handles=of_v.lines, title="(d), (e): radius $r$ of $v$", loc="lower left")
        runs = summaries.values()
        mixed, whole = (", ".join(str(run.attrs[kind]) for run in runs) for kind in ("mixed", "whole"))
        unsolved, points = (sum(run.attrs[name] for run in runs) for name in ("unsolved_points", "points"))
        worst = max(float(run["residual"]) for run in runs)
        remark = (
            f"Medians and bands from the 10th to the 90th percentile. (a)-(c): the {mixed} seeds some of whose inputs "
            f"are no support vectors of v, and their share with 1 - cos below {_PARALLEL} at the end; (d): the {whole} "
            f"others. {unsolved} of {points} points are unsolved; largest residual of a kept seed: {worst:.0e}."
        )
        page.add_counts(figure, summaries, remark)
    return figure


def _curve(axes: Axes, run: xarray.Dataset, name: str, **look: Any) -> None:
    page.band(axes, run["radius"].values, *(run[f"{name}_{q}"].values for q in (50, 10, 90)), **look)


EXPERIMENT = Experiment(measure, claims=(_head, _support, _relaxed, _growth), estimate=estimate, draw=draw)
