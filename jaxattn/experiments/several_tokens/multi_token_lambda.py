"""Under the head v . x - lambda ||x||^2, how many tokens does descent select, and what describes its direction?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import svm
from jaxattn.experiments.several_tokens import limit, screening, stationary
from jaxattn.experiments.several_tokens.descriptions import described
from jaxattn.experiments.several_tokens.limit import FITTED, IDENTITY, LOOKS, RANKED, ROUNDING, ahead, number_or_nan
from jaxattn.statistics import LEAST_SEEDS, Estimate, bootstrap, derive_key, variables
from jaxattn.study.claims import TRAINED, Datasets, Experiment, Judgement, Judgements, Setting, Source, claim
from jaxattn.study.claims.counts import EXCLUDED, total
from jaxattn.study.claims.criteria import Criterion, Number, above
from jaxattn.study.estimates import number
from jaxattn.study.style import labels, page, palette

# The sizes of the published figure are not known to us.
_SOURCE = Source("arXiv 2308.16898", "multi-token figure over lambda", Setting.PROXY)


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Count the tokens that every run selects, and describe the runs that mask some.

    The record is of a `Screening` with a `Quadratic` head, its lambda the setting `head.penalty`.

    Returns:
        With an axis `attempt`: `tokens`, the mean number selected per input; `best`, the number that the best attention
        of each input mixes; `diverged`. With the axes `seed` and `whole` what `descriptions.described` returns, without
        the selected tokens.

    Raises:
        ValueError: tokens that are not orthonormal.
    """
    runs, penalty = screening.runs_of(record), float(record.attrs["head.penalty"])
    reason = screening.unselected(runs)
    seeds = np.flatnonzero(reason < 0)
    kept, reason[seeds] = described(runs, seeds, penalty, solver)
    best, _ = stationary.quadratic(runs.problems, penalty, np.ones(runs.logits[:, -1].shape, bool))
    return (
        kept.drop_vars("selected")
        .assign(
            tokens=(("attempt",), screening.selected_sets(runs).sum(axis=2).mean(axis=1)),
            best=(("attempt",), (best > 0).sum(axis=2).mean(axis=1)),
            diverged=(("attempt",), reason == EXCLUDED.index("diverged")),
        )
        .assign_attrs(screening.counts(reason))
    )


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Estimate both panels, and how they change from one lambda to the next; all runs have the same seeds.

    Returns:
        For each run its means with intervals: `tokens`, `best`, and `off` at the end; `order`, the distance of W_1token
        from W minus that of W_mm; `ahead`, of `limit.ahead`; what `limit.estimates` returns; and `rise`, the
        increase in selected tokens from the previous lambda. The attributes `several` and `determined` count the seeds
        that select several tokens, and those whose finite part is predicted.
    """
    summaries = {name: _summary(run, jax.random.fold_in(key, k + 1)) for k, (name, run) in enumerate(runs.items())}
    # The same seeds have the same problems and initial weights under every lambda.
    finite = ~np.any([run["diverged"].values for run in runs.values()], axis=0)
    tokens = np.stack([run["tokens"].values[finite] for run in runs.values()], axis=1)
    rises = bootstrap(np.diff(tokens, axis=1), jax.random.fold_in(key, 0))
    for k, name in enumerate(list(runs)[1:]):
        rise = Estimate(*(part[k] for part in rises))
        summaries[name] = summaries[name].assign(variables({"rise": ((), rise)}))
    return summaries


def _summary(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    finite, ranked = ~run["diverged"].values, run["off"].sel(solution=list(RANKED)).values[..., -1]
    estimates = {
        "tokens": ((), bootstrap(run["tokens"].values[finite], key)),
        "best": ((), bootstrap(run["best"].values[finite], key)),
        "off": (("solution",), bootstrap(ranked, key)),
        "order": ((), bootstrap(ranked[:, 2] - ranked[:, 1], key)),
        **limit.estimates(run, key),
    }
    if run.sizes["whole"] >= LEAST_SEEDS:
        estimates["ahead"] = (("other",), bootstrap(ahead(run), derive_key(key)))
    coordinates = {"solution": np.array(RANKED, dtype=object), "snapshot": run["snapshot"].values}
    counts = {"several": int(run["several"].sum()), "determined": run.sizes["whole"]}
    return xarray.Dataset(variables(estimates), coordinates, run.attrs | counts)


@claim("multi-token-lambda:tokens", _SOURCE, "The larger lambda is, the more tokens descent selects.", needs=TRAINED)
def _tokens(runs: Datasets) -> Judgement:
    return Judgement(
        [
            above(f"tokens for {larger} minus tokens for {smaller}", number(runs[larger], "rise"), ROUNDING)
            for smaller, larger in pairwise(runs)
        ]
        or [Criterion("tokens from one lambda to the next", Number.exact(math.nan))],
        remark="A token counts as selected if it comes before the first gap of a factor of 1e-3 in the final "
        "attention. The expected number is how many tokens the best attention of an input mixes, which follows "
        "from head and tokens only.",
        numbers={name: number(run, "tokens") for name, run in runs.items()},
        expected={name: float(run["best"]) for name, run in runs.items()},
        undecided="" if len(runs) > 1 else "A trend needs two values of lambda, found one.",
    )


@claim(
    "multi-token-lambda:order",
    _SOURCE,
    "W_SVMeq describes the direction of descent at least as well as W_mm.",
    needs=TRAINED,
)
def _order(runs: Datasets) -> Judgement:
    mixing = {name: run for name, run in runs.items() if run.attrs["several"]}
    determined, several = (sum(run.attrs[name] for run in mixing.values()) for name in ("determined", "several"))
    nearer = [name for name, run in mixing.items() if number(run, "order").low >= -ROUNDING]
    stated = [
        above(
            f"{name}: W_mm minus W_SVMeq with the predicted W_fin, {run.attrs['determined']} runs",
            number_or_nan(run, "ahead", other=0),
            -ROUNDING,
        )
        for name, run in mixing.items()
    ]
    return Judgement(
        stated or [limit.NONE_SELECTS],
        remark=f"The numbers are 1 - cos at the end. {IDENTITY} What is judged is W_SVMeq with the predicted W_fin, "
        f"that of the best distributions on the selected sets, in the {determined} of {several} runs that select "
        f"several tokens and whose problem determines this W_fin. W_mm is nearer than W_1token for {len(nearer)} of "
        f"the {len(mixing)} values of lambda that select several tokens.",
        numbers={
            f"{name}, {solution}": number(run, "off", solution=solution)
            for name, run in runs.items()
            for solution in RANKED
        },
    )


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the numbers of tokens and the direction errors against lambda, means with 95 % intervals."""
    runs = list(summaries.values())
    penalties = [float(run.attrs["head.penalty"]) for run in runs]
    # Lambda doubles from place to place, from the second run on; lambda = 0 stands beyond a break of the axis.
    x = np.array([0.0, *(1 + np.log2(penalty / penalties[1]) for penalty in penalties[1:])])
    with page.style():
        figure = page.full(3.5)
        verdicts = {name: judgements[f"multi-token-lambda:{name}"].verdict for name in ("tokens", "direction")}
        figure.suptitle(
            f"The larger $\\lambda$, the more tokens descent selects: {verdicts['tokens']}. "
            f"$W$ turns to $W_{{\\mathrm{{mm}}}}$: {verdicts['direction']}"
        )
        left, right = figure.subplots(1, 2)
        most = 1.1 * max(float(run[f"{name}_high"]) for run in runs for name in ("tokens", "best"))
        first, last = runs[0], runs[-1]
        largest = f"for $\\lambda = {penalties[-1]:g}$"
        title = f"(a) tokens: {float(first['tokens']):.2g} for $\\lambda = 0$, {float(last['tokens']):.2g} {largest}"
        left.set(title=title, ylabel="mean number of tokens per input", ylim=(0, most))
        both, alone = (page.power(float(last["off"].sel(solution=name))) for name in ("W_SVMeq", "W_mm"))
        title = f"(b) {largest} {LOOKS['W_SVMeq'][0]} is off by {both}, {LOOKS['W_mm'][0]} alone by {alone}"
        right.set(title=title, ylabel="direction error at the end, 1 - cos", yscale="log")
        for axes in (left, right):
            # Room for the labels.
            axes.set(xlabel=r"$\lambda$", xlim=(-0.4, 1.45 * x[-1]))
            axes.set_xticks(x, [f"{penalty:g}" for penalty in penalties])
            _break(axes)
        selected = _curve(left, runs, x, "tokens", ("selected\nby descent", palette.TEAL, "-", "o"))
        mixed = _curve(left, runs, x, "best", ("mixed by the\nbest attention", palette.WINE, "--", "s"))
        labels.beside_ends(left, [selected, mixed], gap=0.13)
        ends = [_curve(right, [run.sel(solution=name) for run in runs], x, "off", LOOKS[name]) for name in RANKED]
        labels.beside_ends(right, ends)
        kept = min(int(run.attrs["kept"]) for run in runs)
        page.add_counts(
            figure,
            {f"{len(runs)} values of $\\lambda$": xarray.Dataset(attrs=total(summaries))},
            f"Means with 95 % intervals, (a) over all runs that did not diverge, (b) over {kept} or more kept runs. "
            f"{FITTED}",
            "runs",
        )
    return figure


def _curve(
    axes: Axes, runs: Sequence[xarray.Dataset], x: np.ndarray, name: str, look: tuple[str, str, str, str]
) -> labels.End:
    """Draw the means, joined where lambda > 0, and return where the label stands."""
    label, colour, dashes, marker = look
    mean, low, high = (np.array([float(run[name + part]) for run in runs]) for part in ("", "_low", "_high"))
    for part, dash in ((slice(0, 1), "none"), (slice(1, None), dashes)):
        line = {"color": colour, "linestyle": dash, "marker": marker}
        page.bars(axes, x[part], mean[part], low[part], high[part], **line)
    return labels.End(label, float(x[-1]), float(mean[-1]), colour)


def _break(axes: Axes) -> None:
    """Mark the break of the axis between lambda = 0 and the next."""
    slash = {"marker": [(-0.5, -1), (0.5, 1)], "markersize": 6, "color": palette.INK, "linestyle": "none"}
    axes.plot([0.45, 0.55], [0, 0], transform=axes.get_xaxis_transform(), clip_on=False, markeredgewidth=0.8, **slash)


_LIMIT = limit.claims("multi-token-lambda", "h(x) = v . x - lambda ||x||^2")
EXPERIMENT = Experiment(measure, claims=(_tokens, _order, *_LIMIT), summarize=summarize, draw=draw)
