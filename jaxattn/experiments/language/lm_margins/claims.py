"""Margins of the next word along descent on texts: estimates by kind of margin and of text, and claims."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.language import PAPER
from jaxattn.study import claims
from jaxattn.study.claims import Datasets, Judgement
from jaxattn.study.claims.criteria import Criterion, Number, above, below, between
from jaxattn.study.estimates import estimated, exact, mean, number

# Number of bins of a histogram, and the margin about which they turn from equal widths to widths in proportion.
_BINS, LINEAR = 80, 0.05
# Kinds of margins, and their titles.
RIVALS = "conflict: words that also follow"
KINDS = {
    "no conflict": "texts without a conflict",
    "conflict: other words": "texts with a conflict, over words that never follow",
    RIVALS: "texts with a conflict, between two words that follow the same word",
}
# A margin must exceed this to count as large: the other word then has e^-5 of the next word's probability.
_LARGE = 5.0
# How far from 0 a margin may start, and the share of margins that must be positive at the end.
_NEAR, _POSITIVE = 1.0, 0.99
# Fixed beforehand, of the smallest margin of a text over the norm of W: the share of its largest possible value that
# counts as maximal; where this value is 0, the distance from it that does; and a fall that counts as none.
_MAXIMAL, _AT_ZERO, _FALL = 0.95, 0.01, 0.001
# Texts by whether a hard solution exists.
SOLVED = ("without a conflict", "with a conflict")


def summarize(runs: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Count the margins of all texts in bins.

    Returns:
        Of the one run, over the shown snapshots: `count` of margins by kind and bin, with the `edges` of the bins in
        logits, the same for all snapshots; `not_positive`, the share of this count that is not positive, by kind;
        `texts`, the number with margins of a kind; `positive`, the mean over texts of the share of positive margins by
        kind, each prefix counted once, and `median`, the mean over texts of their medians. Over all snapshots, for both
        kinds of texts, the mean of `least`, of its `change` since the snapshot before (0 at the first), and of `short`,
        by how much it falls short of its largest value, in units of this where it is not 0; the mean of
        the `largest` value, and the number of such `texts`.
    """
    ((name, run),) = runs.items()
    margins, weight, masks = run["margins"], run["weight"], kinds_of(run)
    scaled = np.arcsinh(margins.values / LINEAR)
    low, high = min(scaled.min(), 0.0), max(scaled.max(), 0.0)
    room = 0.02 * (high - low) or 1.0
    edges = LINEAR * np.sinh(np.linspace(low - room, high + room, _BINS + 1))
    times = np.broadcast_to(weight.values[..., None], masks.shape[1:])
    count = [
        [np.histogram(at.values[mask], edges, weights=times[mask])[0] for mask in masks.values]
        for at in margins.transpose("shown", ...)
    ]
    each = ("seed", "prefix", "word")
    not_positive = (weight * masks * (margins <= 0)).sum(each) / np.maximum((weight * masks).sum(each), 1.0)
    has_kind = masks.any(("prefix", "word"))
    summary = xarray.Dataset(
        {
            "count": (("shown", "kind", "bin"), np.array(count)),
            "edges": ("edge", edges),
            "not_positive": not_positive.transpose("shown", "kind"),
            "texts": has_kind.sum("seed"),
        },
        attrs={**run.attrs, "no_conflict": int(run["feasible"].sum())},
    )
    for k, kind in enumerate(KINDS):
        texts = has_kind.sel(kind=kind, drop=True).values
        if texts.any():
            of_kind = margins.where(masks.sel(kind=kind, drop=True))[texts]
            positive = (of_kind > 0).sum(("prefix", "word")) / of_kind.notnull().sum(("prefix", "word"))
            estimates = {f"positive {kind}": mean(positive), f"median {kind}": mean(of_kind.median(("prefix", "word")))}
            summary = summary.assign(estimated(run, jax.random.fold_in(key, k), **estimates).data_vars)
    for k, (kind, chosen) in enumerate(zip(SOLVED, (run["feasible"], ~run["feasible"]), strict=True), len(KINDS)):
        if chosen.any():
            least, largest = (run[part][chosen.values] for part in ("least", "largest"))
            short = (largest - least) / xarray.where(largest > 0, largest, 1.0)
            change = least.copy(data=np.diff(least, axis=1, prepend=least[:, :1]))
            estimates = {f"least {kind}": mean(least), f"change {kind}": mean(change), f"short {kind}": mean(short)}
            estimates |= {f"texts {kind}": exact(chosen.sum()), f"largest {kind}": exact(largest.mean())}
            summary = summary.assign(estimated(run, jax.random.fold_in(key, k), **estimates).data_vars)
    return {name: summary}


def kinds_of(run: xarray.Dataset) -> xarray.DataArray:
    """Return which margins are of each kind, (kind, seed, prefix, word)."""
    others, follows, feasible = run["others"], run["follows"], run["feasible"]
    masks = [others & feasible, others & ~feasible & ~follows, others & ~feasible & follows]
    return xarray.concat(masks, xarray.DataArray(list(KINDS), dims="kind", name="kind"))


@claims.claim(
    "lm-margins:positive",
    claims.Source(PAPER, "section 4, Figure 2 (margins)", claims.Setting.PROXY),
    "The margins of the next word over the other candidates start near 0 and become large and positive.",
    needs=claims.TRAINED,
)
def _positive(runs: Datasets) -> Judgement:
    summary = runs["texts"]
    first, last = summary["shown"].values[[0, -1]].tolist()
    kinds = [kind for kind in KINDS if f"median {kind}" in summary]
    numbers = {
        f"{words} at step {step}, {kind}": number(summary, f"{name} {kind}", shown=step)
        for kind in kinds
        for step in (first, last)
        for name, words in (("median", "median margin"), ("positive", "share of positive margins"))
    }
    become_large = {kind: _become_large(numbers, first, last, kind) for kind in kinds}
    few = [
        f"{texts} texts with margins of the kind {kind!r} are too few; at least {claims.LEAST_SEEDS} are needed."
        for kind in kinds
        if (texts := int(summary["texts"].sel(kind=kind))) < claims.LEAST_SEEDS
    ]
    return Judgement(
        stated=[criterion for kind in kinds for criterion in become_large[kind]],
        corrected=[criterion for kind in kinds if kind != RIVALS for criterion in become_large[kind]],
        correction="except for margins between two words that follow the same word in one text. Their median ends at "
        f"{at_end(summary, f'median {RIVALS}'):.2g}, and {at_end(summary, f'positive {RIVALS}'):.0%} are positive. "
        "Each of the two words is the next one somewhere, and the two margins are opposite numbers, so they cannot "
        "both be positive. Cross entropy is minimal where they are the log-odds of the two counts.",
        remark=f"Near 0: a median within {_NEAR:g}. Large: a median above {_LARGE:g}, and {_POSITIVE:.0%} of the "
        "margins positive.",
        numbers=numbers,
        expected={f"share of positive margins at step {last}, {kind}": 1.0 for kind in kinds},
        undecided=few[0] if few else "",
    )


def _become_large(numbers: Mapping[str, Number], first: int, last: int, kind: str) -> tuple[Criterion, ...]:
    start, end, positive = (
        f"median margin at step {first}, {kind}",
        f"median margin at step {last}, {kind}",
        f"share of positive margins at step {last}, {kind}",
    )
    return (
        between(f"{start},", numbers[start], -_NEAR, _NEAR),
        above(f"{end},", numbers[end], _LARGE),
        above(f"{positive},", numbers[positive], _POSITIVE),
    )


_THROUGHOUT = claims.Source(PAPER, "section 4, Figure 2 (margins throughout training)", claims.Setting.PROXY)
_OVER_NORM = "the smallest margin over the norm of W"


@claims.claim(
    "lm-margins:maximal",
    _THROUGHOUT,
    "Training maximizes the margin between the next word and the other candidates.",
    needs=claims.TRAINED,
)
def _maximal(runs: Datasets) -> Judgement:
    """At the end the smallest margin over the norm must be nearly as large as possible, for both kinds of texts."""
    summary = runs["texts"]
    most = dict(zip(SOLVED, (1 - _MAXIMAL, _AT_ZERO), strict=True))
    units = dict(zip(SOLVED, ("as a share of the largest value", "below the largest value, 0"), strict=True))
    stated = [
        below(
            f"shortfall of {_OVER_NORM} at the end, texts {kind}, {units[kind]},",
            number(summary, f"short {kind}", at=-1),
            most[kind],
        )
        for kind in SOLVED
    ]
    rise = float(summary[f"change {SOLVED[1]}"][-1])
    return Judgement(
        stated,
        corrected=stated[:1],
        correction="on texts without a conflict. On the others it falls short of the largest possible value by "
        f"{stated[1].value.mean:.2g}, and changes by {rise:.1g} from the last snapshot but one to the last.",
        remark="Margins themselves grow with the norm of W, so they are divided by it. On texts without a conflict the "
        "largest possible value is the inverse norm of the hard-margin solution. On texts with a conflict the margins "
        "between two words that follow the same word are opposite numbers, so it is 0.",
        numbers={f"{_OVER_NORM} at the end, texts {kind}": number(summary, f"least {kind}", at=-1) for kind in SOLVED},
        undecided=_few_of_a_kind(summary),
    )


@claims.claim(
    "lm-margins:throughout",
    _THROUGHOUT,
    "The margin between the next word and the other candidates increases throughout training.",
    needs=claims.TRAINED,
)
def _throughout(runs: Datasets) -> Judgement:
    """The mean of the smallest margin over the norm may fall between no two snapshots."""
    summary = runs["texts"]
    snapshots = range(1, summary.sizes["snapshot"])
    return Judgement(
        [
            above(f"smallest change of {_OVER_NORM} between snapshots, texts {kind},", smallest, -_FALL)
            for kind in SOLVED
            for smallest in [min(number(summary, f"change {kind}", at=at) for at in snapshots)]
        ],
        remark="Margins themselves grow with the norm of W, so they are divided by it. The change is the mean over "
        f"texts from one snapshot to the next; a fall of at most {_FALL:g} counts as none.",
        undecided=_few_of_a_kind(summary),
    )


def _few_of_a_kind(summary: xarray.Dataset) -> str:
    """Return why the texts cannot decide; empty if they can."""
    fewest = min(int(summary[f"texts {kind}"]) for kind in SOLVED)
    return f"{fewest} texts of a kind are too few; {claims.LEAST_SEEDS} are needed." * (fewest < claims.LEAST_SEEDS)


def at_end(summary: xarray.Dataset, name: str) -> float:
    """Return an estimate at the last snapshot, NaN if there are no such texts."""
    return float(summary[name][-1]) if name in summary else np.nan


CLAIMS = (_positive, _maximal, _throughout)
