"""Does training W reach W_mm from any start, and how fast by plain, normalized and Polyak's steps (2402.05738)?"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import partial

import jax
import numpy as np
import xarray
from jaxtyping import Float, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.rates.ngd_global.measure import measure
from jaxattn.study.claims import LEAST_STEPS, Datasets, Experiment, Judgement, Judgements, claim, family, total
from jaxattn.study.claims.claim import Kind, Needs, Setting, Source
from jaxattn.study.claims.criteria import Criterion, Number, Outcome, above, below
from jaxattn.study.estimates import estimated, mean, number, quantiles, read_at, share
from jaxattn.study.style import page, palette

# The runs that are compared, by the names of their rules, in the order in which they are drawn.
RULES = {rule: f"{rule}, d = 128" for rule in ("plain", "normalized", "Polyak")}
# Plain steps, those shorter than .1 or .05 taken together.
_MERGED, _HALVED = "merged up to 0.1, d = 128", "merged up to 0.05, d = 128"
# The runs of normalized steps in all dimensions.
NORMALIZED = {"optimizer": "scale_free_gd", "optimizer.step_size": 1.0}
# Fixed beforehand. A start has converged if the final 1 - cos with W_mm is at most NEAR, and nearly all have if a share
# of ALL has. 1 - cos falls like a power of the step if its exponent over the last decade of steps is at most POWER: 1 /
# log(k)^2 looks like k^-0.25 there. A rule is faster if its exponent is smaller by MORE. The probability of non-optimal
# tokens falls exponentially in the path length if the slope of its logarithm is at most FALLS and at least STAYS times
# its earlier value in size; for a power of the path length this share is 0.32. Steps may be taken together if on paths
# of the same length the mean difference of 1 - cos is at most ALIKE.
NEAR, ALL, POWER, MORE, FALLS, STAYS, ALIKE = 0.01, 0.95, -0.5, 0.1, -0.1, 0.8, 0.01
# The starts of descent, in words.
STARTS = {"zero": "W = 0", "small": "small random W", "large": "large random W", "wrong": "wrong tokens"}
_SOURCE = Source(
    "arXiv 2402.05738", "abstract, and theorems on global convergence and rates (as recalled)", Setting.PROXY
)
_OURS = Source("arXiv 2402.05738", "abstract: that the known convergence is local", Setting.OURS)
_NEEDS = Needs(steps=LEAST_STEPS)
_claim = partial(claim, source=_SOURCE, needs=_NEEDS)


def summarize(runs: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate each run, and how far plain steps taken together are from those that they stand for.

    For the steps merged up to .1 `from_plain` is the mean absolute difference of 1 - cos to the last plain step after a
    path of the same length, and `from_halved` the largest such difference to the steps merged up to .05.
    """
    keys = jax.random.split(key, len(runs) + 1)
    summaries = {name: estimate(run, keys[k]) for k, (name, run) in enumerate(runs.items())}
    if {RULES["plain"], _MERGED, _HALVED} <= set(runs):
        merged = runs[_MERGED]
        from_plain = mean(_apart(runs[RULES["plain"]].isel(snapshot=[-1]), merged))
        from_halved = mean(_apart(merged, runs[_HALVED]))
        apart = estimated(merged, keys[-1], from_plain=from_plain, from_halved=from_halved)
        summaries[_MERGED] = summaries[_MERGED].assign(apart)
    return summaries


def _apart(run: xarray.Dataset, course: xarray.Dataset) -> xarray.DataArray:
    """Return the largest difference of 1 - cos at a run's snapshots to a course at the same path, (seed, start)."""
    seeds = np.intersect1d(run["seed"].values, course["seed"].values)
    run, course = run.sel(seed=seeds), course.sel(seed=seeds)
    same = read_at(run["path"].values, course["path"].values, course["off"].values)
    return abs(run["off"] - same).max("snapshot")


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate for each start rates, shares of seeds that converge, and how the attention sparsifies.

    `exponent` is that of 1 - cos over the last decade of steps; `early` and `late` are slopes of `log_rest` along the
    path / ||W_mm||, in the two halves of these steps; `lost` is the share of seeds that converge from W = 0, but not
    from this start.
    """
    off, rest, path, steps = run["off"], run["log_rest"].values, run["path"].values, run["snapshot"].values
    since = int(np.argmax(steps >= steps[-1] / 10))
    middle = (since + len(steps) - 1) // 2
    last = off.isel(snapshot=-1, drop=True)
    x = np.log(steps[since:]) - np.log(steps[since:]).mean()
    return estimated(
        run,
        key,
        exponent=mean(last.copy(data=np.log(off.values[..., since:]) @ x / (x @ x))),
        early=mean(last.copy(data=_chords(path, rest, since, middle))),
        late=mean(last.copy(data=_chords(path, rest, middle, -1))),
        arrived=share(last <= NEAR),
        lost=share((last > NEAR) & (last.sel(start="zero", drop=True) <= NEAR)),
        selects=share(run["selects"]),
        overflowed=share(run["overflowed"]),
        off=quantiles(off, 10, 50, 90),
        log_rest=quantiles(run["log_rest"], 50),
        path=quantiles(run["path"], 50),
    )


def _chords(
    path: Float[np.ndarray, "seed start k"], rest: Float[np.ndarray, "seed start k"], first: int, last: int
) -> Float[np.ndarray, "seed start"]:
    """Return the slope of log_rest along the path between two snapshots; 0 if W does not move."""
    gone = path[..., last] - path[..., first]
    return np.where(gone > 0, (rest[..., last] - rest[..., first]) / np.where(gone > 0, gone, 1.0), 0.0)


def _at(runs: Datasets, rule: str, name: str) -> dict[str, Number]:
    """Return an estimate for a rule from each start, by the names of the starts; every claim reads all rules."""
    summaries = {each: runs[run] for each, run in RULES.items()}
    return {label: number(summaries[rule], name, start=start) for start, label in STARTS.items()}


@_claim(
    "ngd-global:any-start",
    statement="On data with nearly orthogonal tokens gradient descent on W converges in direction to W_mm from any "
    "start.",
)
def _any_start(runs: Datasets) -> Judgement:
    """Nearly all seeds must converge by plain steps, taken together where that changes nothing."""
    arrived, plainly = (
        {label: number(runs[run], "arrived", start=start) for start, label in STARTS.items()}
        for run in (_MERGED, RULES["plain"])
    )
    changes = {
        f"{difference}, from {label}": number(runs[_MERGED], name, start=start)
        for name, difference in _DIFFERENCES.items()
        for start, label in STARTS.items()
    }
    changed = [
        f"{label}, is {change.mean:.2g}"
        for label, change in changes.items()
        if below(label, change, ALIKE).outcome is not Outcome.MET
    ]
    most = max(change.high for change in changes.values())
    plain = runs[RULES["plain"]]
    shares = ", ".join(f"{start}: {share.mean:.0%}" for start, share in plainly.items())
    lengths = ", ".join(
        f"{float(plain['path_50'].isel(snapshot=-1).sel(start=start)):.2g} ({label})" for start, label in STARTS.items()
    )
    unknown = f"The merging of steps is not known to change less than {ALIKE}: {'; '.join(changed)}."
    return Judgement(
        _all_arrive(arrived, "by plain steps, merged up to .1, "),
        undecided=unknown if changed else "",
        remark="From far starts the gradient is exponentially small, so plain steps would have to be exponentially "
        "many. Those shorter than .1 are therefore taken together, along the same direction, and longer ones singly. "
        f"{plain.attrs['steps']:,} single steps make, in the median, paths of {lengths} times ||W_mm||, and converge "
        f"in these shares of seeds: {shares}. Up to there both are compared, and everywhere with merging "
        f"up to .05: on average 1 - cos changes by at most {most:.2g}.",
        numbers={f"share that converges from {start}": share for start, share in arrived.items()}
        | {f"share that converges by single plain steps from {start}": share for start, share in plainly.items()},
    )


# What the merging of plain steps changes, by the names of the estimates.
_DIFFERENCES = {
    "from_plain": "1 - cos, merged, minus that after the last plain step, size",
    "from_halved": "1 - cos, merged up to .1, minus merged up to .05, size",
}


@_claim(
    "ngd-global:any-start-normalized",
    statement="On data with nearly orthogonal tokens normalized steps on W converge in direction to W_mm from any "
    "start.",
)
def _any_start_normalized(runs: Datasets) -> Judgement:
    arrived = _at(runs, "normalized", "arrived")
    return Judgement(
        _all_arrive(arrived),
        remark="Normalized steps have the direction of plain ones, without their logarithmic slowness, but are longer, "
        "so they say nothing about plain ones.",
        numbers={f"share that converges from {start}": share for start, share in arrived.items()},
    )


def _all_arrive(arrived: Mapping[str, Number], how: str = "") -> list[Criterion]:
    label = f"share of seeds with 1 - cos <= {NEAR} {how}from"
    return [above(f"{label} {start}", share, ALL) for start, share in arrived.items()]


def _all_fall(exponents: Mapping[str, Number]) -> list[Criterion]:
    return [below(f"exponent of 1 - cos from {start}", exponent, POWER) for start, exponent in exponents.items()]


@_claim(
    "ngd-global:normalized-rate",
    statement="Normalized steps reach the direction of W_mm at a finite-time rate, from any start.",
)
def _normalized(runs: Datasets) -> Judgement:
    exponents = _at(runs, "normalized", "exponent")
    return Judgement(
        _all_fall(exponents),
        remark="1 - cos is half the squared distance of the directions. A faster decrease agrees with an upper bound.",
        numbers={f"exponent from {start}": exponent for start, exponent in exponents.items()},
    )


@_claim(
    "ngd-global:polyak-rate",
    statement="Polyak's steps reach the direction of W_mm at a finite-time rate, from any start.",
)
def _polyak(runs: Datasets) -> Judgement:
    exponents, arrived, overflowed = (_at(runs, "Polyak", name) for name in ("exponent", "arrived", "overflowed"))
    pairs = zip(_all_arrive(arrived), _all_fall(exponents), strict=True)
    criteria = list(itertools.chain.from_iterable(pairs))
    far = [f"{start}: {arrived[start].mean:.0%} ({overflowed[start].mean:.0%})" for start in list(arrived)[2:]]
    return Judgement(
        criteria,
        criteria[:4],  # Those of the first two starts.
        "only from W = 0 and from small weights. Where wrong tokens are selected with high probability, the gradient "
        "is tiny while L - L* is not, so the first steps overshoot, and later ones are too short to change the "
        "direction of W. Share of seeds that converge (that take a step too long for the number range): "
        f"{', '.join(far)}.",
        remark="The step is (L - L*) / ||gradient||^2 * gradient, without a cap. This does not refute a bound whose "
        "constant depends on the start, but such a bound says nothing for any feasible number of steps.",
        numbers={f"exponent from {start}": exponent for start, exponent in exponents.items()}
        | {f"share that converges from {start}": share for start, share in arrived.items()},
    )


@_claim(
    "ngd-global:faster",
    statement="Normalized steps and Polyak's steps approach the direction of W_mm faster than plain gradient descent.",
)
def _faster(runs: Datasets) -> Judgement:
    plain = _at(runs, "plain", "exponent")
    lead = {
        f"{rule} steps from {start}": plain[start].minus(exponent)
        for rule in ("normalized", "Polyak")
        for start, exponent in _at(runs, rule, "exponent").items()
    }
    return Judgement(
        [above(f"exponent of plain steps minus that of {name}", less, MORE) for name, less in lead.items()],
        remark="Plain and normalized steps have step size 1. Starts that do not move count with exponent 0.",
        numbers={f"exponent of plain steps from {start}": exponent for start, exponent in plain.items()} | lead,
    )


@_claim(
    "ngd-global:sparsity",
    statement="The attention map sparsifies exponentially fast: the probability of non-optimal tokens falls "
    "exponentially in the length of the path.",
    kind=Kind.CHECK,
)
def _sparsity(runs: Datasets) -> Judgement:
    late, early, polyak = (
        _at(runs, rule, name) for rule, name in (("normalized", "late"), ("normalized", "early"), ("Polyak", "late"))
    )
    slower = {start: late[start].minus(Number(*(STAYS * part for part in early[start]))) for start in late}
    slopes = {f"slope from {start}": slope for start, slope in late.items()}
    falls, stays = "slope of log(1 - s) in the path / ||W_mm||", f"late slope minus {STAYS} times the early slope"
    return Judgement(
        (
            *(below(f"{falls} from {start}", slope, FALLS) for start, slope in late.items()),
            *(below(f"{stays} from {start}", slope, 0.0) for start, slope in slower.items()),
        ),
        remark="Nearly an identity: logits are linear in the norm of W, so once its direction has settled 1 - s falls "
        "exponentially in the path, with slope -1 along W_mm; and normalized steps have a prescribed length, so the "
        "same holds in steps. s is the probability of the optimal token, for the input where it is smallest.",
        numbers=slopes | {f"slope of Polyak's steps from {start}": slope for start, slope in polyak.items()},
        expected=dict.fromkeys(slopes, -1.0),
    )


@claim(
    "ngd-global:condition",
    _OURS,
    "Without conditions on the data, convergence in direction to W_mm is local: it depends on the start.",
    _NEEDS,
)
def _condition(runs: Datasets) -> Judgement:
    normalized = {summary.attrs["data.d"]: summary for summary in family(runs, NORMALIZED).values()}
    least = min(normalized)
    tokens = normalized[least].attrs["data.n"] * normalized[least].attrs["data.T"]
    label = f"share of seeds that converge from {STARTS['zero']}, but not from"

    def shares(label: str, name: str, *starts: str) -> dict[str, Number]:
        return {
            f"{label} {STARTS[start]}, d = {d}": number(summary, name, start=start)
            for d, summary in normalized.items()
            for start in starts
        }

    lost = shares(label, "lost", "large", "wrong")
    far = [name for name in lost if name.endswith(f"d = {least}")]
    return Judgement(
        [above(name, lost[name], 1 - ALL) for name in far],
        remark="A seed has the same problem from all starts. Tokens are less orthogonal in smaller dimensions; n T = "
        f"{tokens}. Steps are normalized.",
        numbers=lost | shares("share that converges from", "arrived", "zero", "large", "wrong"),
    )


CLAIMS = (_any_start, _any_start_normalized, _normalized, _polyak, _faster, _sparsity, _condition)

_RULES = {"plain": (palette.GUIDE, ":"), "normalized": (palette.TEAL, "-"), "Polyak": (palette.WINE, "--")}
_STARTS = {
    "zero": (palette.INK, "-"),
    "small": (palette.SKY, "--"),
    "large": (palette.AMBER, "-."),
    "wrong": (palette.ROSE, ":"),
}
_WRITTEN = {start: words.replace("W", "$W$") for start, words in STARTS.items()}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a panel for each of three starts, and the shares that arrive by dimension."""
    runs = {rule: summaries[run] for rule, run in RULES.items()}
    sizes, exponents = runs["plain"].attrs, runs["normalized"]["exponent"]
    powers = " to ".join(f"$k^{{{float(end):.1f}}}$" for end in (exponents.min(), exponents.max()))
    normalized, polyak = (judgements[f"ngd-global:{name}-rate"].verdict for name in ("normalized", "polyak"))
    with page.style():
        figure = page.full(5.0)
        (zero, large), (wrong, share) = figure.subplots(2, 2)
        for axes, letter, start in ((zero, "a", "zero"), (large, "b", "large"), (wrong, "c", "wrong")):
            _rates(axes, runs, start)
            axes.set_title(f"({letter}) from {_WRITTEN[start]}")
            axes.set_ylabel("direction error, $1 - \\cos$")
        zero.legend(loc="lower left", title="medians, 10th to 90th percentile")
        _shares(share, summaries)
        figure.suptitle(f"Rates from any start. Normalized steps, {powers}: {normalized}; Polyak's steps: {polyak}")
        page.add_counts(
            figure,
            {"all rules and dimensions": xarray.Dataset(attrs=total(summaries))},
            f"(a) to (c): n = {sizes['data.n']}, T = {sizes['data.T']}, d = {sizes['data.d']}; from small random W as "
            f"in (a). Percentages and (d): share of seeds with 1 - cos <= {NEAR} in the end; (d): normalized steps.",
        )
    return figure


def _rates(axes: Axes, runs: Datasets, start: str) -> None:
    for rule, (colour, dashes) in _RULES.items():
        run = runs[rule].sel(start=start)
        curve = (run[f"off_{q}"].values for q in (50, 10, 90))
        page.band(axes, run["snapshot"].values, *curve, color=colour, linestyle=dashes, label=rule)
    for rule, height in (("normalized", 0.58), ("Polyak", 0.49)):
        text = f"{rule}: {float(runs[rule]['arrived'].sel(start=start)):.0%}"
        axes.text(0.03, height, text, transform=axes.transAxes, color=_RULES[rule][0], fontsize=7, va="top")
    axes.axhline(NEAR, color=palette.GUIDE, linewidth=0.7)
    # No direction error exceeds 2.
    axes.set(xscale="log", yscale="log", xlabel="step", ylim=(1e-9, 2))


def _shares(axes: Axes, summaries: Datasets) -> None:
    runs = sorted(family(summaries, NORMALIZED).values(), key=lambda run: run.attrs["data.d"])
    d = [run.attrs["data.d"] for run in runs]
    tokens = runs[0].attrs["data.n"] * runs[0].attrs["data.T"]
    for start, (colour, dashes) in _STARTS.items():
        shares = ([float(run["arrived" + part].sel(start=start)) for run in runs] for part in ("", "_low", "_high"))
        page.band(axes, d, *shares, color=colour, linestyle=dashes, marker=".", label=_WRITTEN[start])
    axes.axvline(tokens, color=palette.GUIDE, linewidth=0.7)
    axes.text(tokens, 0.05, "d = n T ", color=palette.GUIDE, fontsize=7, ha="right")
    axes.set(xscale="log", xlabel="dimension d", ylabel="share of seeds that arrive", ylim=(0, 1.03))
    axes.set_xticks(d, [f"{size}" for size in d])
    axes.minorticks_off()
    axes.set_title("(d) less orthogonal tokens, in fewer dimensions")
    axes.legend(loc="lower right", title="share with its 95 % interval")


EXPERIMENT = Experiment(measure, claims=CLAIMS, summarize=summarize, draw=draw)
