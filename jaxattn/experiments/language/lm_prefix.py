"""Attention to the prefix, read by a fixed head, from any start: where descent ends, and the two theorems."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import svm
from jaxattn.experiments.language import PAPER, arrival
from jaxattn.experiments.language.every_run import all_above, all_below, labelled
from jaxattn.statistics import bootstrap, derive_key, pooled, variables
from jaxattn.study.claims import Datasets, Experiment, Judgement, Judgements, Needs, Setting, Source, claim, family
from jaxattn.study.claims.counts import LEAST_STEPS
from jaxattn.study.claims.criteria import Number, below
from jaxattn.study.estimates import Estimator, added, estimated, exact, mean
from jaxattn.study.style import page, palette
from jaxattn.study.style.rows import Column, draw_rows, grouped

# Fixed beforehand: thresholds for the mean 1 - cos and the mean margin ratio along the exact gradient direction; for
# the growth of the norm with plain steps, where theory predicts 1; for the attention that selects a token; and for the
# number of feasible texts.
_CLOSE, _MARGIN, _GROWS, _SELECTS, _TEXTS = 0.02, 0.95, 0.5, 0.999, 10
# The largest step of Theorem 3.14 in units of 1 / L; that of Theorem 3.15 is half as large.
_EQUAL, _HALF = 1.0, 0.5
# Scores are equal, or within this of each other.
_DELTA = 0.01
_KEPT = "the solution of the kept tokens"
# The exact gradient direction, and plain steps.
_EXACT, _PLAIN = "scale_free_gd", "gd"
_NEEDS = Needs(_TEXTS, LEAST_STEPS)


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Return where each start of a `StartedTraining` from normal weights ends, by `arrival.measure`, and its `text`."""
    ends = arrival.measure(record, record.attrs["data.head.delta"], record.attrs["optimizer.step_size"], solver)
    return ends.assign(text=ends["seed"] // record.attrs["weights.starts"])


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate how many starts converge to the solution, and how closely.

    The starts of one text are not independent, so whole texts are resampled.

    Returns:
        The numbers of `texts` and `starts`; the numbers of starts that have `arrived`, have `left` prefixes unserved,
        are `moving`, `unexplained` or `opposed`, as defined in `arrival.outcomes`, and the number of the last that are
        `astray`, near the solution of what they keep; the number that have `selected` all optimal tokens; the shares
        `share`, `share_left` and `share_selected`. Means over the snapshots: `off`, and `reached`, the same for starts
        that leave nothing unserved (for all if there are none). Other means: `margin`, `off_kept` and `margin_kept`;
        `drift`, the change of `off` in the last two decades of steps where nothing is left unserved; `rate`, the slope
        of the norm of W over that of W_mm in the logarithm of the steps, over the last decade. And the largest
        `within`.
    """
    text, ends, steps = run["text"].values, arrival.outcomes(run), run["snapshot"].values
    selected = run["attention"].values >= _SELECTS
    counts = {name: int(hits.sum()) for name, hits in (ends._asdict() | {"selected": selected}).items()}
    counts["astray"] = int((ends.unexplained & (run["off_kept"].values <= arrival.NEAR)).sum())
    counts |= {"texts": len(np.unique(text)), "starts": len(text)}
    decade, two_decades = (int(np.flatnonzero(steps * part >= steps[-1])[0]) for part in (10, 100))
    growth, off = run["growth"].values, run["off"].values
    rate = (growth[:, -1] - growth[:, decade]) / np.log(steps[-1] / steps[decade])
    drift = np.where(ends.left, 0.0, off[:, -1] - off[:, two_decades])
    rest = ~ends.left | ends.left.all()
    reached = bootstrap(_of_texts(run["off"][rest], text[rest]).values, derive_key(key))
    return estimated(
        run,
        key,
        share=_share(ends.arrived, text),
        share_left=_share(ends.left, text),
        share_selected=_share(selected, text),
        **{name: mean(_of_texts(run[name], text)) for name in ("off", "margin", "off_kept", "margin_kept")},
        drift=mean(_of_texts(run["text"].copy(data=drift), text)),
        rate=mean(_of_texts(run["text"].copy(data=rate), text)),
        within=exact(run["within"].max()),
        **{name: exact(count) for name, count in counts.items()},
    ).assign(variables({"reached": (("snapshot",), reached)}))


def _share(hits: np.ndarray, text: np.ndarray) -> Estimator:
    """Return the share of starts, resampled by text."""

    def parts(key: PRNGKeyArray) -> dict[str, np.ndarray]:
        return dict(zip(("", "_low", "_high", "_error"), pooled(hits, text, key), strict=True))

    return Estimator(xarray.DataArray(0.0), parts)


def _of_texts(values: xarray.DataArray, text: np.ndarray) -> xarray.DataArray:
    """Return the mean over the starts of each text, with the texts in place of the seeds."""
    means = [values.values[text == each].mean(axis=0) for each in np.unique(text)]
    return values.isel(seed=slice(len(means))).copy(data=np.stack(means))


def _theorem(equal: Datasets, close: Datasets, longest: float) -> Judgement:
    """No start may end elsewhere; along the exact direction all must come near, and plain steps must approach."""
    runs = {**equal, **close}
    exact_runs, plain = _by(runs, _EXACT), _by(runs, _PLAIN)
    slope = "slope of ||W|| / ||W_mm|| in log k"
    labels = {
        "share of starts at the solution": "share",
        "share of starts that leave prefixes unserved": "share_left",
        "1 - cos at the end": "off",
        "margin ratio at the end": "margin",
    }
    numbers = labelled(runs, labels) | labelled(plain, {slope: "rate"})
    converges = [
        *all_below(f"1 - cos with {_KEPT}", exact_runs, "off_kept", _CLOSE),
        *all_above(f"margin ratio, {_KEPT}", exact_runs, "margin_kept", _MARGIN),
        *all_below("late change of 1 - cos", plain, "drift", 0),
        # Steps along the exact direction have a constant length, so only plain ones show whether the norm grows.
        *all_above(slope, _by(close, _PLAIN), "rate", _GROWS),
    ]
    left = Number.exact(added(_by(equal, _PLAIN), "left"))
    # A start that fails with close scores may not fail with closer ones.
    missing = added(_by(close, _EXACT), "starts") - added(_by(close, _EXACT), "arrived")
    starts = " or ".join(map(str, sorted({int(run.attrs["weights.starts"]) for run in runs.values()})))
    moving = [f"{int(run['moving'])} ({name})" for name, run in runs.items() if int(run["moving"])]
    within = max(float(run["within"]) for run in plain.values())
    too_long = f"A plain step is {within:.4g} / L, but the claim is about steps of at most {longest:g} / L."
    return Judgement(
        stated=[
            arrival.elsewhere(
                "starts that leave prefixes unserved (interval: up to all that have not converged), equal scores, "
                "exact direction",
                _by(equal, _EXACT),
            ),
            below("starts that leave prefixes unserved, equal scores, plain steps", left, 0),
            *([below("starts that may need a smaller delta", Number(0, 0, missing), 0)] if close else ()),
            *converges,
        ],
        remark=f"Each text has {starts} starts per run. {_left(runs)}. Starts that are not yet near a solution: "
        f"{', '.join(moving) or 'none'}. The exact direction takes normalized steps along the path of small plain "
        f"ones, without their logarithmic slowness. The plain steps are at most {within:.2g} / L. The late change is "
        "over their last two decades, for starts that leave no prefix unserved.",
        numbers=numbers,
        expected={label: 0.0 if label.startswith(("1 -", "share of starts that leave")) else 1.0 for label in numbers},
        undecided=arrival.few(runs, "texts", _TEXTS, "feasible") or (too_long if within > longest else ""),
    )


@claim(
    "lm-prefix:equal",
    Source(PAPER, "Theorem 3.14, Assumption 3.10 (equal scores)", Setting.PROXY),
    "If the optimal token of every input is unique and all its other tokens have equal scores, descent with a "
    "step of at most 1 / L from any start converges in direction to the hard-margin solution.",
    needs=_NEEDS,
)
def _equal(runs: Datasets) -> Judgement:
    return _theorem(family(runs, {"data.head.delta": 0.0}), {}, _EQUAL)


@claim(
    "lm-prefix:close",
    Source(PAPER, "Theorem 3.15 (close scores)", Setting.PROXY),
    "For any start there is a sufficiently small delta such that, if the scores of non-optimal tokens are within "
    "delta and the step is at most 1 / (2 L), the norm of W diverges and its direction converges to the "
    "hard-margin solution.",
    needs=_NEEDS,
)
def _close(runs: Datasets) -> Judgement:
    """No start may end elsewhere if the scores are arbitrarily close, including equal ones."""
    equal, close = (family(runs, {"data.head.delta": delta}) for delta in (0.0, _DELTA))
    return _theorem(equal, close, _HALF)


@claim(
    "lm-prefix:served",
    Source("jaxattn", "what descent on a bounded loss converges to from any start", Setting.OURS),
    "From any start W converges in direction to the max-margin solution of the prefixes that descent serves (selects "
    "the optimal token of), or, if the other scores differ, of all tokens that it selects. The optimal token of every "
    "other prefix is behind by more than 1, the margin of the served prefixes, along that solution.",
    needs=_NEEDS,
)
def _served(runs: Datasets) -> Judgement:
    exact_runs = family(runs, {"optimizer": _EXACT})
    astray, unexplained = (added(exact_runs, name) for name in ("astray", "unexplained"))
    labels = {f"1 - cos with {_KEPT}": "off_kept", f"margin ratio, {_KEPT}": "margin_kept"}
    return Judgement(
        [
            *all_below(f"1 - cos with {_KEPT}", exact_runs, "off_kept", _CLOSE),
            *all_above(f"margin ratio, {_KEPT}", exact_runs, "margin_kept", _MARGIN),
            below(
                "starts with unserved prefixes that are at most the margin behind, exact direction (interval: those "
                f"near {_KEPT}, to all)",
                Number(astray, astray, unexplained),
                0,
            ),
        ],
        remark=f"{_left(exact_runs)}. Starts near the solution of what they keep although an unserved prefix is at "
        f"most 1 behind along it: {astray}. More steps may still serve a prefix that is exactly 1 behind.",
        numbers=labelled(exact_runs, labels),
        undecided=arrival.few(exact_runs, "texts", _TEXTS, "feasible"),
    )


@claim(
    "lm-prefix:selection",
    Source(PAPER, "section 1 (token separation and selection), Theorems 3.14 and 3.15", Setting.PROXY),
    "Training separates the tokens of every prefix: from any start, its attention converges to the optimal token.",
    needs=_NEEDS,
)
def _selection(runs: Datasets) -> Judgement:
    exact_runs = family(runs, {"optimizer": _EXACT})
    # Unserved prefixes never select their optimal token; for others that have not done so yet, it is open.
    never, starts = added(exact_runs, "left"), added(exact_runs, "starts")
    not_yet = starts - added(exact_runs, "selected")
    what = f"starts without an attention of {_SELECTS:g} to every optimal token, exact direction"
    numbers = labelled(runs, {"share of starts that select all optimal tokens": "share_selected"})
    return Judgement(
        stated=[below(what, Number(never, never, max(never, not_yet)), 0)],
        remark=f"{not_yet} of {starts} starts along the exact direction do not select all optimal tokens; for {never} "
        f"of them a prefix remains unserved. {_left(exact_runs)}. Plain steps are not judged: with them the norm of W "
        "grows only logarithmically, and so does the attention.",
        numbers=numbers,
        expected=dict.fromkeys(numbers, 1.0),
        undecided=arrival.few(runs, "texts", _TEXTS, "feasible"),
    )


def _by(runs: Datasets, optimizer: str) -> dict[str, xarray.Dataset]:
    return {name: run for name, run in runs.items() if run.attrs["optimizer"] == optimizer}


def _left(runs: Datasets) -> str:
    """Say for every run how many starts leave prefixes unserved."""
    parts = [f"{int(run['left'])} of {int(run['starts'])} ({name})" for name, run in runs.items() if int(run["left"])]
    return f"Starts that leave prefixes unserved: {', '.join(parts) or 'none'}{', none in other runs' * bool(parts)}"


_DASHES = {_EXACT: "-", _PLAIN: "--"}
_STEPS = {_EXACT: "normalized", _PLAIN: "plain"}
_COLOURS = dict(zip((0.0, 1.0, 10.0), palette.ramp(3), strict=True))


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a panel of direction errors for each dimension, and below what became of the starts of each run."""
    runs = sorted(summaries.values(), key=_order)
    dimensions = sorted({run.attrs["data.d"] for run in runs}, reverse=True)
    with page.style():
        figure = page.full(5.9)
        # In inches, nearly: the key, the curves, and the rows.
        heights = (0.2, 2.0, 1.2 + 0.14 * max(len(runs), 4))
        top, above, below = (figure.add_subfigure(row) for row in figure.add_gridspec(3, 1, height_ratios=heights))
        panels = above.subplots(1, len(dimensions), sharex=True, sharey=True, squeeze=False)[0]
        for letter, axes, d in zip("ab", panels, dimensions, strict=False):
            equal = [run for run in runs if run.attrs["data.d"] == d and run.attrs["data.head.delta"] == 0]
            _curves(axes, equal)
            furthest = max(float(run["reached"][-1]) for run in equal if run.attrs["optimizer"] == _EXACT)
            within = f"prefixes come within {page.at_most(furthest)} of the hard margin"
            axes.set_title(f"({letter}) $d = {d}$: normalized steps that serve all\n{within}")
        panels[0].set_ylabel("direction error, 1 - cos")
        colours = {f"start: {_start(scale)}": colour for scale, colour in _COLOURS.items()}
        dashes = {f"{_STEPS[rule]} steps": dash for rule, dash in _DASHES.items()}
        page.key(top, colours, dashes, loc="center", ncols=5, columnspacing=1.2)
        _outcomes(below.subplots(), runs, "abc"[len(dimensions)])
        verdicts = [judgements[f"lm-prefix:{scores}"].verdict for scores in ("equal", "close")]
        figure.suptitle(
            "$W$ converges to the hard margin from any start, equal scores: {}; close scores: {}".format(*verdicts)
        )
        page.add_counts(
            figure,
            {_written(run): run for run in summaries.values()},
            "Curves: equal scores, starts that serve all prefixes, means over texts with 95 % intervals. (c): 1 - cos "
            "with the hard margin at the last step. Unserved: behind by more than the margin along the limit of $W$. "
            f"All selected: attention of at least {_SELECTS:g} to every optimal token, 95 % interval over texts.",
            counted="starts",
        )
    return figure


def _order(run: xarray.Dataset) -> list[float]:
    sizes = [run.attrs[name] for name in ("data.head.delta", "data.d", "weights.scale")]
    return [run.attrs["optimizer"] == _PLAIN, *sizes]


def _curves(axes: Axes, runs: Sequence[xarray.Dataset]) -> None:
    for run in runs:
        look = {"color": _COLOURS[run.attrs["weights.scale"]], "linestyle": _DASHES[run.attrs["optimizer"]]}
        page.course(axes, run, "reached", **look)
    axes.set(xlabel="step", xscale="log", yscale="log")


def _outcomes(axes: Axes, runs: Sequence[xarray.Dataset], letter: str) -> None:
    """Draw what became of the starts of every run, and write how many select their tokens."""
    columns = (
        Column("steps", grouped([_STEPS[run.attrs["optimizer"]] for run in runs]), -182),
        Column(r"$\delta$", [f"{run.attrs['data.head.delta']:g}" for run in runs], -132),
        Column("$d$", [f"{run.attrs['data.d']}" for run in runs], -102),
        Column("start", [_start(run.attrs["weights.scale"]) for run in runs], -78),
        Column("unserved in", [f"{int(run['left'])} of {int(run['starts'])}" for run in runs], 6),
        Column("all selected", [_selected(run) for run in runs], 56),
    )
    left, starts = (sum(int(run[name]) for run in runs) for name in ("left", "starts"))
    title = f"({letter}) {left} of {starts} starts leave prefixes unserved"
    draw_rows(axes, columns, arrival.parts(runs, "starts"), title=title, xlabel="share of starts")


def _selected(run: xarray.Dataset) -> str:
    shares = (f"{100 * float(run[f'share_selected{part}']):.0f}" for part in ("", "_low", "_high"))
    return "{} % [{}, {}]".format(*shares)


def _start(scale: float) -> str:
    return f"normal, scale {scale:g}" if scale else "$W = 0$"


def _written(run: xarray.Dataset) -> str:
    """Return a readable name of a run."""
    d, delta, scale, rule = (run.attrs[name] for name in ("data.d", "data.head.delta", "weights.scale", "optimizer"))
    return rf"$d = {d}$, $\delta = {delta:g}$, {_start(scale)}, {_STEPS[rule]} steps"


EXPERIMENT = Experiment(measure, (_equal, _close, _served, _selection), estimate=estimate, draw=draw)
