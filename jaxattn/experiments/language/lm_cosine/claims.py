"""Direction of descent on texts compared with max-margin solutions, over m, n and d (second paper, figure 1)."""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.language import PAPER
from jaxattn.experiments.language.every_run import all_above, all_below, labelled
from jaxattn.experiments.language.subsets import over
from jaxattn.statistics import derive_key
from jaxattn.study.claims import LEAST_SEEDS, TRAINED, Claim, Datasets, Judgement, Setting, Source, claim, family
from jaxattn.study.claims.claim import MissingRunError
from jaxattn.study.estimates import estimated, exact, geometric_mean, mean, number, share

# The published figure has this many runs; they are the first of ours.
_PUBLISHED_RUNS = 5
# Fixed beforehand. A correlation within this distance of 1 has converged (the direction still moves at step 10000); one
# whose distance from 1 has fallen to at most this fraction over the last decade of steps is still converging.
THERE, _FALLING = 0.001, 0.9
# A smaller rise of a correlation, or a ratio nearer to 1, counts as no change.
_CHANGE = 0.001
# Also fixed beforehand: a problem is often unsolvable if it is in at least one of ten texts; the soft margin works well
# if the mean cosine is at least .9, an angle of 26 degrees; and the share of pairs of subsequences that must have
# fundamentally different hyperplanes.
_OFTEN, WELL, _PAIRS = 0.1, 0.9, 0.95
# Smaller distances count as rounding.
_ROUNDING = 1e-15


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate the correlations along the steps for one size.

    Returns:
        For texts with (`_0`) and without (`_1`) a hard solution: their share, `feasible_0` and so on; over the
        snapshots geometric means of 1 - cos with the soft solution, `soft_0`, and with `W_fin + C W_sets`, `mixed_1`;
        `rise_0`, the rise of the correlation from the first snapshot to the last; `falls_0`, `soft_0` at the last over
        the same at a tenth of the steps; `falls`, the same of `mixed_1`; and `closer`, `mixed_1` over `soft_1` at the
        last. Ratios are paired by text. The mean correlation with the soft solution over all texts is `soft`, over the
        first five `five`; the mean shares of pairs of subsequences with different hyperplanes are `different` and
        `different_own`. The attributes `with_hard`, `without_hard`, `with_mixed`, `without_mixed` and `five` are
        numbers of texts.
    """
    kinds = {"0": run["feasible"], "1": ~run["feasible"]}
    has_mixed, five = run["has_mixed"], run["seed"] < _PUBLISHED_RUNS
    soft, mixed = (run[solution].clip(min=_ROUNDING) for solution in ("soft", "mixed"))
    courses = estimated(
        run,
        key,
        soft=mean(1 - run["soft"]),
        **{f"feasible_{kind}": share(texts) for kind, texts in kinds.items()},
        five=over(five, mean, 1 - run["soft"]),
        soft_0=over(kinds["0"], geometric_mean, soft),
        soft_1=over(kinds["1"], geometric_mean, soft),
        mixed_1=over(has_mixed, geometric_mean, mixed),
        apart=exact(run["apart"].max()),
        different=mean(run["different"]),
        different_own=mean(run["different_own"]),
    )
    steps = run["snapshot"].values
    earlier = int(np.argmin(np.abs(np.log(steps * 10 / steps[-1]))))
    first, tenth, last = (soft.isel(snapshot=at, drop=True) for at in (0, earlier, -1))
    mixed_tenth, mixed_last = (mixed.isel(snapshot=at, drop=True) for at in (earlier, -1))
    changes = {}
    for kind, texts in kinds.items():
        changes[f"rise_{kind}"] = over(texts, mean, first - last)
        changes[f"falls_{kind}"] = over(texts, geometric_mean, last / tenth)
    changes["closer"] = over(has_mixed, geometric_mean, mixed_last / last)
    changes["falls"] = over(has_mixed, geometric_mean, mixed_last / mixed_tenth)
    texts = {"with_hard": kinds["0"], "without_hard": kinds["1"], "with_mixed": has_mixed}
    texts |= {"without_mixed": kinds["1"] & ~has_mixed, "five": five}
    counts = {name: int(chosen.sum()) for name, chosen in texts.items()}
    return courses.assign(estimated(run, derive_key(key), **changes).data_vars).assign_attrs(counts)


# Of each kind of texts: the ending of its estimates, the attribute that counts them, and a remark.
_KINDS = {
    "with": (
        "0",
        "with_hard",
        "If there is a hard solution, the soft one differs from it only if slack is cheaper: the optimal values differ "
        "by at most {apart:.1g}, at {widest}.",
    ),
    "without": (
        "1",
        "without_hard",
        "A text has no hard solution if a word is followed by different words (a conflict), or if its dimension is too "
        "small. The paper introduces the soft margin for such texts.",
    ),
}


def _soft(texts: str, runs: Datasets) -> Judgement:
    """For a kind of text the correlation must rise and converge at every size; as corrected, it may be converging."""
    kind, count, about = _KINDS[texts]
    sizes = _with_enough(runs, count, f"{texts} a hard solution")
    falls = "1 - cos at the end over 1 - cos at a tenth of the steps"
    drawn = {name: run for name, run in runs.items() if f"soft_{kind}" in run}
    ends = labelled(drawn, {"1 - cos at the end": f"soft_{kind}"})
    numbers = ends | labelled(drawn, {falls: f"falls_{kind}"})
    numbers |= labelled(runs, {f"share of texts {texts} a hard solution": f"feasible_{kind}"})
    numbers |= labelled(runs, {"correlation at the end, all texts": "soft"})
    rises = all_above("rise of the correlation", sizes, f"rise_{kind}", _CHANGE)
    there = all_below("1 - cos at the end", sizes, f"soft_{kind}", THERE)
    falling = all_below(falls, sizes, f"falls_{kind}", _FALLING)
    lowest, highest = min(end.value.low for end in there), max(end.value.high for end in there)
    widest = max(runs, key=lambda name: float(runs[name]["apart"]))
    return Judgement(
        stated=[*rises, *there, *falling],
        corrected=[*rises, *falling],
        correction=f"it has not converged at the last step: 1 - cos is between {lowest:.2g} and {highest:.2g}, by the "
        "intervals of all sizes, and still falling.",
        remark="The numbers are geometric means of 1 - cos; by the intervals of all sizes it ends between "
        f"{lowest:.2g} and {highest:.2g}. {about.format(apart=float(runs[widest]['apart']), widest=widest)} Sizes "
        f"with fewer than {LEAST_SEEDS} texts of this kind decide nothing.",
        numbers=numbers,
        expected=dict.fromkeys(ends, 0.0),
    )


@claim(
    "lm-cosine:mixed",
    Source(PAPER, "section 4, Figure 1 (cosines); the limit is ours", Setting.OURS),
    "On a text with conflicts W is closer to W_fin + C W_sets than to the soft solution, and comes closer to it: "
    "between words that follow the same word the logits differ by log ratios of counts, and their margin over the "
    "other words grows.",
    needs=TRAINED,
)
def _mixed(runs: Datasets) -> Judgement:
    sizes = _with_enough(runs, "with_mixed", "with the limit W_fin + C W_sets")
    without = sum(run.attrs["without_mixed"] for run in runs.values())
    of_limit, of_soft = "1 - cos with W_fin + C W_sets", "1 - cos with the soft solution"
    drawn = {name: run for name, run in runs.items() if "mixed_1" in run}
    limits = labelled(drawn, {f"{of_limit} at the end": "mixed_1"})
    criteria = zip(
        all_below(f"{of_limit} over {of_soft}, at the end", sizes, "closer", 1 - _CHANGE),
        all_below(f"{of_limit} at the end over 1 - cos at a tenth of the steps", sizes, "falls", 1 - _CHANGE),
        strict=True,
    )
    least = min(number(run, "mixed_1", at=-1).low for run in sizes.values())
    away = (
        f"1 - cos ends at {least:.2g} or more, while a first threshold was {THERE}: between conflicting words the "
        "gradient does not vanish, so constant steps oscillate, and the norm grows only logarithmically. "
    )
    return Judgement(
        stated=[criterion for of_size in criteria for criterion in of_size],
        remark="The numbers are geometric means of 1 - cos. The limit is not in this paper: it is that of arXiv "
        "2308.16898 for several selected tokens, determined by the text except for C. "
        f"{away * (least > THERE)}Excluded: {without} texts with a conflict but without this limit, because "
        "their dimension is too small to tie the words.",
        numbers=limits | labelled(drawn, {f"{of_soft} at the end": "soft_1"}),
        expected=dict.fromkeys(limits, 0.0),
    )


@claim(
    "lm-cosine:unsolvable",
    Source(PAPER, "section 4 (experiments, before Definition 4.1)", Setting.PROXY),
    "The hard-margin problem of a text is often unsolvable, because its tokens are not linearly separable.",
    needs=TRAINED,
)
def _unsolvable(runs: Datasets) -> Judgement:
    """At every size the certified share of texts without a hard solution must be large enough."""
    return Judgement(
        all_above("share of texts without a hard solution", family(runs, {}), "feasible_1", _OFTEN),
        remark=f"Often means at least one text of {1 / _OFTEN:g}. That there is no solution is certified for each "
        "text.",
    )


@claim(
    "lm-cosine:works",
    Source(PAPER, "section 4 (C = 10, after Definition 4.1), Figure 1", Setting.PROXY),
    "The soft margin with C = 10 works well: over all texts, the cosine of W with its solution becomes large.",
    needs=TRAINED,
)
def _works(runs: Datasets) -> Judgement:
    """At every size the mean cosine over all texts, as Figure 1 draws it, must end large."""
    return Judgement(
        all_above("mean cosine at the end, all texts", family(runs, {}), "soft", WELL),
        remark=f"Well means a mean cosine of at least {WELL:g}, an angle of 26 degrees, at the last step. It is not "
        "convergence, which lm-cosine:conflict judges on texts without a hard solution.",
    )


@claim(
    "lm-cosine:hyperplanes",
    Source(PAPER, "section 1 (contributions, token separation)", Setting.PROXY),
    "The decision hyperplane of each subsequence is fundamentally different from those of the others.",
    needs=TRAINED,
)
def _hyperplanes(runs: Datasets) -> Judgement:
    """At every size nearly all pairs must differ; as corrected, those with different last and different next words."""
    sizes = family(runs, {})
    what = "share of pairs of subsequences with fundamentally different hyperplanes"
    return Judgement(
        stated=all_above(what, sizes, "different", _PAIRS),
        corrected=all_above(f"{what}, of those with other last and next words", sizes, "different_own", _PAIRS),
        correction="for subsequences that end with different words and have different next words. The query is the "
        "last word, so subsequences that end with the same word have the same hyperplane, whatever follows.",
        remark="A subsequence that ends with the word e selects the word t with the largest t^T W e, so W e is the "
        "normal of its hyperplane. Two hyperplanes are fundamentally different if the angle between their normals is "
        "at least 60 degrees, at the last step.",
    )


def _with_enough(runs: Datasets, count: str, kind: str) -> dict[str, xarray.Dataset]:
    """Return the sizes with enough texts of a kind, which is named by the attribute that counts them.

    Raises:
        MissingRunError: there are none.
    """
    sizes = {name: run for name, run in runs.items() if run.attrs[count] >= LEAST_SEEDS}
    if not sizes:
        raise MissingRunError(f"with {LEAST_SEEDS} texts {kind}")
    return sizes


CLAIMS = (
    *(
        Claim(
            f"lm-cosine:{name}",
            Source(PAPER, "section 4, Figure 1 (cosines)", Setting.PROXY),
            "The cosine of W with the soft-margin solution (C = 10) rises towards 1 for all m, n and d: texts where "
            f"{some} W separates all next words.",
            partial(_soft, texts),
            TRAINED,
        )
        for name, texts, some in (("feasible", "with", "some"), ("conflict", "without", "no"))
    ),
    _mixed,
    _unsolvable,
    _works,
    _hyperplanes,
)
