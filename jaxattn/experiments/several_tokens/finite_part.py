"""Are the attention ratios inside the selected sets finite, and are they those that the problem determines?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain, product, starmap
from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import svm
from jaxattn.experiments.several_tokens import screening
from jaxattn.experiments.several_tokens.descriptions import KINDS, held_against, predict
from jaxattn.experiments.several_tokens.limit import PARTS, counts_of_part, number_or_nan
from jaxattn.statistics import proportion
from jaxattn.study.claims import EXCLUDED, TRAINED, Datasets, Experiment, Judgement, Judgements, Setting, Source, claim
from jaxattn.study.claims.counts import total
from jaxattn.study.claims.criteria import Criterion, Number, above, between
from jaxattn.study.estimates import number
from jaxattn.study.style import page, palette

_SOURCE = Source("arXiv 2308.16898", "finite part of the multi-token limit (eq. 9)", Setting.OURS)
_HEADS = {"quadratic": "h(x) = v . x - lambda ||x||^2", "ReLU": "a ReLU head"}
# A ratio has settled if its logarithm changes by less than the first in the second half of training. A line agrees
# within the second.
_SETTLED, _AGREES = 0.01, 0.05
# A statement about the inputs must be true for nearly all: at least this share, as in losses.
_NEARLY_ALL = 0.95
_SAMPLES = 2000
# Estimates with an interval, and those without one.
_WITH, _ALONE = ("slope", "intercept", "rms", "determined", "not unique", "settled"), ("drift", "fitted", "foretold")


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare the ratios inside every set of several tokens with those of the best distribution on the set.

    The record is of a `Screening` with the head `mlp`, or `Quadratic` with the setting `head.penalty` on orthonormal
    tokens.

    Returns:
        Three axes. `mixed`: the inputs that select several tokens, with `kind`, an index into KINDS, and `drift`, the
        largest change of a log ratio in the second half of training. `pair`: for inputs of the first kind, every other
        token of the set paired with the first, with the log ratios `predicted` and `descended`. `whole`: the runs whose
        sets are all of the first kind and whose solutions are found, with `fitted` and `foretold` of
        `descriptions.held_against`. `seed` on each axis, with the prefix `pair_` or `whole_`, is the run; likewise
        `published` and `every`, whether it is in that part of `screening.attempts`. The counts of the second have a
        prefix.
    """
    runs, penalty = screening.runs_of(record), record.attrs.get("head.penalty")
    further = {"labels": screening.labels_of_one_kind(runs)} if penalty is None else {}
    parts = dict(zip(PARTS, screening.attempts(runs, **further), strict=True))
    seeds = np.union1d(*(np.flatnonzero(reason < 0) for reason in parts.values()))
    against, failed = held_against(runs, seeds, penalty, solver)
    for reason in parts.values():
        lost = seeds[failed >= 0]
        reason[lost[lost < len(reason)]] = failed[failed >= 0][lost < len(reason)]
    selected, runs = screening.selected_sets(runs)[seeds], screening.taken(runs, seeds)
    best, kind, several = predict(runs.problems, selected, penalty)

    reference = selected.argmax(axis=2)[..., None]
    half, last = (_relative(runs.logits[:, snapshot], reference) for snapshot in ((len(runs.steps) - 1) // 2, -1))
    drift = np.where(selected, np.abs(last - half), 0).max(axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        predicted = _relative(np.log(best), reference)
    pairs = selected & (several & (kind == 0))[..., None] & (np.arange(selected.shape[2]) != reference)

    found = xarray.Dataset(
        {
            "seed": ("mixed", seeds[np.nonzero(several)[0]]),
            "kind": ("mixed", kind[several]),
            "drift": ("mixed", drift[several]),
            "pair_seed": ("pair", seeds[np.nonzero(pairs)[0]]),
            "predicted": ("pair", predicted[pairs]),
            "descended": ("pair", last[pairs]),
            **against.drop_vars("several"),
        },
        {"snapshot": runs.steps},
    )
    for (part, reason), prefix in product(parts.items(), ("", "pair_", "whole_")):
        of = found[f"{prefix}seed"]
        found[f"{prefix}{part}"] = of.copy(data=screening.kept_of(of.values, reason))
    of_every = {f"every_{name}": count for name, count in screening.counts(parts["every"]).items()}
    return found.assign_attrs(screening.counts(parts["published"], EXCLUDED) | of_every)


def _relative(values: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return the values of all tokens of an input minus that of its reference token."""
    return values - np.take_along_axis(values, reference, axis=2)


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Fit a line to the ratios under each head, with the published selection and without.

    Returns:
        For each head two datasets, for the published selection under its name and for every run under its name with the
        suffix `, no selection`: kinds and pairs, the line, and shares of the inputs, with their intervals. The
        attribute `of_runs` has the counts of each run.
    """
    summaries = {}
    for k, head in enumerate(_HEADS):
        own = {name: run for name, run in runs.items() if ("head.penalty" in run.attrs) == (head == "quadratic")}
        for part, suffix in PARTS.items():
            summary = _summary(list(own.values()), part, jax.random.fold_in(key, k))
            counts = {f"{name}{suffix}": counts_of_part(run, part) for name, run in own.items()}
            summaries[f"{head}{suffix}"] = summary.assign_attrs(of_runs=counts)
    return summaries


def _summary(runs: list[xarray.Dataset], part: str, key: PRNGKeyArray) -> xarray.Dataset:
    own = [
        run.isel(mixed=run[part].values, pair=run[f"pair_{part}"].values, whole=run[f"whole_{part}"].values)
        for run in runs
    ]
    names = ("kind", "drift", "predicted", "descended", "pair_seed", "fitted", "foretold")
    joined = {name: np.concatenate([run[name].values for run in own]) for name in names}
    kind, drift = joined["kind"], joined["drift"]
    summary = xarray.Dataset({"kind": ("mixed", kind)} | {name: ("pair", joined[name]) for name in names[2:4]})
    estimates: dict[str, Sequence[Any]] = {}
    # The published selection may keep none of a few seeds.
    if len(kind):
        summary["drift"] = float(np.median(drift))
        shares = {"determined": kind == 0, "not unique": kind == 2, "settled": drift < _SETTLED}
        estimates = {name: proportion(hits)[:3] for name, hits in shares.items()}
    # A seed is a different instance in every run.
    run_of_pair = np.concatenate([np.full(run.sizes["pair"], k) for k, run in enumerate(own)])
    _, instance = np.unique(np.stack([run_of_pair, joined["pair_seed"]]), axis=1, return_inverse=True)
    if len(np.unique(instance)) > 2:
        estimates |= _line(joined["predicted"], joined["descended"], instance, key)
    for name, values in estimates.items():
        ends = zip(("", "_low", "_high"), values, strict=True)
        summary = summary.assign({f"{name}{end}": float(value) for end, value in ends})
    for name in ("fitted", "foretold") if len(joined["fitted"]) else ():
        summary[name] = joined[name].mean()
    counts = [counts_of_part(run, part) for run in runs]
    sums = {name: sum(count[name] for count in counts) for name in counts[0]}
    return summary.assign_attrs(sums, steps=runs[0].attrs["steps"])


def _line(
    predicted: np.ndarray, descended: np.ndarray, instance: np.ndarray, key: PRNGKeyArray
) -> dict[str, Sequence[Any]]:
    """Fit `descended = slope predicted + intercept`; return both and the rms difference, with intervals over runs."""
    one, square = np.ones_like(predicted), (descended - predicted) ** 2
    terms = (one, predicted, descended, predicted**2, predicted * descended, square)
    sums = np.stack([np.bincount(instance, weights=term) for term in terms], axis=1)
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    drawn = generator.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=_SAMPLES)
    n, x, y, xx, xy, square = np.concatenate([sums.sum(axis=0)[None], drawn @ sums]).T
    slope = (n * xy - x * y) / np.maximum(n * xx - x * x, np.finfo(float).tiny)
    fits = {"slope": slope, "intercept": (y - slope * x) / n, "rms": np.sqrt(square / n)}
    return {name: (values[0], *np.quantile(values[1:], [0.025, 0.975])) for name, values in fits.items()}


def _judge(head: str, runs: Datasets) -> Judgement:
    own = {f"{head}{suffix}": runs[f"{head}{suffix}"] for suffix in PARTS.values()}
    numbers: dict[str, Number | float] = {}
    for name, run in own.items():
        numbers |= {f"{name}, {estimate}": number(run, estimate) for estimate in _WITH if estimate in run}
        numbers |= {f"{name}, {estimate}": float(run[estimate]) for estimate in _ALONE if estimate in run}
    remark = (
        "The statistics are over inputs that select several tokens. The line is a fit of the logarithms of the ratios "
        "at the end of descent to those of the best distribution. A token that the best distribution on the set leaves "
        "out has no finite ratio: such a set, of the tokens before a gap of 1e-3 at the last step, is not final. "
    )
    not_unique = [number_or_nan(run, "not unique").mean for run in own.values()]
    if any(share > 1 - _NEARLY_ALL for share in not_unique):
        shares = " and ".join(f"{share:.0%}" for share in not_unique)
        remark += (
            f"For {shares} of the inputs (with the published selection and without it) many distributions are equally "
            "good, for example where all units of the head are off. Such an input has no gradient, and its ratios "
            "depend on the start and on how the other inputs change W. "
        )
    has_lines = all("slope" in run for run in own.values())
    return Judgement(
        list(chain(*starmap(_criteria, own.items()))),
        remark=f"{remark}Settled: no log ratio of the input changes by {_SETTLED} or more in the second half of "
        "training. Drift: the median change. Fitted and foretold: mean 1 - cos of W with W_SVMeq, with the finite part "
        "fitted to W or predicted, over runs whose sets are all determined.",
        numbers=numbers,
        expected={f"{name}, {fit}": value for name in own for fit, value in (("slope", 1.0), ("intercept", 0.0))},
        counts={name: counts for run in own.values() for name, counts in run.attrs["of_runs"].items()},
        undecided="" if has_lines else "Ratios are predicted for fewer than three runs, too few to decide.",
    )


def _criteria(name: str, run: xarray.Dataset) -> tuple[Criterion, ...]:
    is_determined = f"{name}: share of inputs with a unique best distribution that mixes the set"
    return (
        above(f"{name}: share of inputs whose ratios settle", number_or_nan(run, "settled"), _NEARLY_ALL),
        above(is_determined, number_or_nan(run, "determined"), _NEARLY_ALL),
        between(f"{name}: slope", number_or_nan(run, "slope"), 1 - _AGREES, 1 + _AGREES),
        between(f"{name}: intercept", number_or_nan(run, "intercept"), -_AGREES, _AGREES),
    )


_CLAIMS = tuple(
    claim(
        f"finite-part:{head}",
        _SOURCE,
        f"Inside the selected sets, descent converges to finite attention ratios that the problem determines ({text}).",
        TRAINED,
    )(partial(_judge, head))
    for head, text in _HEADS.items()
)


_WRITTEN = {"quadratic": r"$v \cdot x - \lambda \|x\|^2$", "ReLU": "ReLU head"}
# For each part: colour, label, and size of the dots.
_LOOKS = {"published": (palette.TEAL, "published selection", 3), "every": (palette.GUIDE, "no selection", 2)}
_SHADES = (palette.TEAL, palette.SKY, palette.WINE)
# Why runs are excluded, in words.
_WORDS = {
    "labels": "have only labels +1",
    "ambiguous": "have a probability between the published thresholds",
    "finite": "mask no token",
}
_RATIOS = (
    "(a), (b): ratios of attention within sets that the best distribution mixes. (c): that distribution mixes the "
    "selected set or only part of it, or is not unique."
)


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the scatter of each head, with and without a selection, and of what kind the inputs are."""
    with page.style():
        figure = page.full(4.0)
        verdicts = {head: judgements[f"finite-part:{head}"].verdict for head in _HEADS}
        figure.suptitle(
            "Inside the selected sets attention converges to ratios that the problem determines:\n"
            f"quadratic head {verdicts['quadratic']}, ReLU head {verdicts['ReLU']}"
        )
        *panels, kinds = figure.subplots(1, 3)
        ratios = [run[name].values for run in summaries.values() for name in ("predicted", "descended")]
        limit = 1.05 * float(np.abs(np.concatenate(ratios)).max(initial=1.0))
        for axes, head, letter in zip(panels, _HEADS, "ab", strict=True):
            parts = {part: summaries[f"{head}{suffix}"] for part, suffix in PARTS.items()}
            _scatter(axes, parts, limit)
            settled = page.span((float(run["settled"]) for run in parts.values() if "settled" in run), ".0%")
            axes.set(title=f"({letter}) {_WRITTEN[head]}: {settled} of inputs settle", xlabel="log ratio predicted")
        panels[0].set_ylabel("log ratio at the end of descent")
        _bars(kinds, summaries)
        page.note(figure, " ".join([*(_kept(part, summaries) for part in PARTS), _RATIOS]))
    return figure


def _kept(part: str, summaries: Datasets) -> str:
    counts = total({head: summaries[f"{head}{PARTS[part]}"] for head in _HEADS})
    excluded = ", ".join(
        f"{counts[reason] / counts['attempted']:.0%} {words}" for reason, words in _WORDS.items() if counts.get(reason)
    )
    return f"{_LOOKS[part][1].capitalize()}: {counts['kept']:,} of {counts['attempted']:,} runs kept ({excluded})."


def _scatter(axes: Axes, parts: Datasets, limit: float) -> None:
    axes.plot([-limit, limit], [-limit, limit], color=palette.INK, linewidth=0.7, linestyle=":")
    for part in reversed(_LOOKS):
        (colour, _, size), run = _LOOKS[part], parts[part]
        axes.plot(run["predicted"], run["descended"], ".", color=colour, markersize=size, linewidth=0, rasterized=True)
    corners = ((0.03, 0.98, "left", "top"), (0.97, 0.02, "right", "bottom"))
    for (part, (colour, label, _)), (x, y, ha, va) in zip(_LOOKS.items(), corners, strict=True):
        run = parts[part]
        has_line = "slope" in run
        fit = f"slope {float(run['slope']):.3f}, rms {float(run['rms']):.2f}" if has_line else "too few for a line"
        look = {"color": colour, "fontsize": page.SMALLEST, "transform": axes.transAxes}
        axes.text(x, y, f"{label}:\n{fit}", ha=ha, va=va, multialignment="left", **look)
    axes.set(xlim=(-limit, limit), ylim=(-limit, limit))


def _bars(axes: Axes, summaries: Datasets) -> None:
    """Draw the shares of the kinds as one bar per head and part; each kind is named where its share is largest."""
    names, mixing = [], []
    largest = [0.0] * len(KINDS)
    places = [(0.0, 0)] * len(KINDS)
    for head in _HEADS:
        for part, suffix in PARTS.items():
            run, left = summaries[f"{head}{suffix}"], 0.0
            shares = np.bincount(run["kind"].values, minlength=len(KINDS)) / max(run.sizes["mixed"], 1)
            for kind, (share, shade) in enumerate(zip(shares, _SHADES, strict=True)):
                axes.barh(len(names), share, left=left, color=shade)
                if share > largest[kind]:
                    largest[kind], places[kind] = share, (left + share / 2, len(names))
                left += share
            names.append(f"{head},\n{_LOOKS[part][1]},\n{run.sizes['mixed']:,} inputs")
            mixing.append(f"{100 * shares[0]:.1f}%")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="share of the inputs", xlim=(0, 1), title=f"(c) {', '.join(mixing)} mix the set")
    axes.invert_yaxis()
    for kind, at in zip(KINDS, places, strict=True):
        axes.text(*at, kind, ha="center", va="center", color="white", fontsize=page.SMALLEST)


EXPERIMENT = Experiment(measure, claims=_CLAIMS, summarize=summarize, draw=draw)
