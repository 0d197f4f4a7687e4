"""Growth and direction of plain descent on texts: estimates, and judges of the two theorems and of their limits."""

from __future__ import annotations

import jax
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.language import PAPER
from jaxattn.experiments.language.lm_theorems import any_start, examples, paths, start_examples
from jaxattn.experiments.language.lm_theorems.growth import along
from jaxattn.experiments.language.lm_theorems.starts import ends
from jaxattn.study.claims import Claim, Datasets, Judgement, Number, Setting, Source, number


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate growth and direction over time, separately for feasible texts and others.

    Args:
        datasets: of `measure`, of runs with different steps and deltas.
        key: of the bootstrap.

    Returns:
        For each run from W = 0 a dataset over the snapshots, whose variables have the kind of text as a prefix, if it
        has such texts; for each run from drawn starts what `starts.ends` returns.

    Raises:
        ValueError: a run of which no seed was kept.
    """
    if empty := [run for run, one in datasets.items() if not one.sizes["seed"]]:
        raise ValueError(f"lm-theorems: expected a kept seed in each run, found none in {empty}")
    keys = jax.random.split(key, len(datasets))
    return {
        run: (ends if "radius" in one.attrs else along)(one, k)
        for (run, one), k in zip(datasets.items(), keys, strict=True)
    }


def _judge_soft(summaries: Datasets) -> Judgement:
    """On infeasible texts the error from the soft solution must fall in every run and end near 0."""
    summaries = paths.plain(summaries)
    if undecided := paths.undecided(summaries, "infeasible"):
        return paths.withheld(summaries, undecided)
    measured: dict[str, Number] = {}
    for run, one in summaries.items():
        end = one.isel(snapshot=-1)
        label = f"1 - cos at step {int(end['snapshot'])}, {run}"
        measured[label] = number(end, "infeasible_off_soft")
        measured[f"exponent of ||W|| in 1 - cos, {run}"] = number(one, "infeasible_off_soft_exponent")
        measured[f"1 - cos of soft and tied hard margin, {run}"] = number(one, "infeasible_apart")
        measured[f"share of texts where these differ, {run}"] = number(one, "infeasible_differ")
    differ = [float(one["infeasible_differ"]) for one in summaries.values()]
    return paths.judgement(
        summaries,
        measured,
        {label: 0.0 for label in measured if " at step " in label},
        stated=paths.tends(summaries, "infeasible_off_soft"),
        remark="The texts are those in which one word has different next words. The logistic loss of an attended "
        "score is bounded. At its minimum it gives up the rarer of two next words, or mixes both, whereas the "
        "soft margin ranks the rarer second, above all others. The soft solution differs from the one for the "
        f"kept words in {min(differ):.0%} to {max(differ):.0%} of these texts.",
    )


def _judge_tied(summaries: Datasets) -> Judgement:
    """The error from the solution of the kept words must fall, and these must be the words of least risk."""
    summaries = paths.plain(summaries)
    if undecided := paths.undecided(summaries, "infeasible"):
        return paths.withheld(summaries, undecided)
    measured: dict[str, Number] = {}
    for run, one in summaries.items():
        end = one.isel(snapshot=-1)
        measured[f"1 - cos at step {int(end['snapshot'])}, {run}"] = number(end, "infeasible_off")
        measured[f"exponent of ||W|| in 1 - cos, {run}"] = number(one, "infeasible_off_exponent")
        measured[f"share of texts that keep the words of least risk, {run}"] = number(one, "infeasible_least")
        measured[f"share of next words selected, {run}"] = number(one, "infeasible_chosen")
    expected = {label: 0.0 for label in measured if " at step " in label}
    expected |= {label: 1.0 for label in measured if "least risk" in label}
    tends, furthest = paths.tends(summaries, "infeasible_off"), paths.furthest(summaries)
    astray, texts = (sum(int(one[f"infeasible_{name}"]) for one in furthest.values()) for name in ("astray", "texts"))
    return paths.judgement(
        summaries,
        measured,
        expected,
        stated=(
            *tends,
            *paths.none("texts that keep other words than those of least risk", furthest, "infeasible_astray"),
        ),
        corrected=tends,
        correction="the limit is the tied hard margin of the words that continue to receive attention. With the "
        f"largest step, {astray} of {texts} texts keep other words than those of least risk. Such words "
        "are locally optimal: the better word is so far behind along their direction that its share of "
        "the gradient vanishes.",
        remark="1 - cos is with the hard margin of the words that continue to receive attention.",
    )


def _judge_step(summaries: Datasets) -> Judgement:
    """The recorded risk must not rise in runs with the smallest step, if this is within 1 / L for every text."""
    summaries = paths.plain(summaries)
    smallest = min(one.attrs["step_size"] for one in summaries.values())
    first = {run: one for run, one in summaries.items() if one.attrs["step_size"] == smallest}
    rises = {f"increases of the recorded risk, {run}": int(one["rises"]) for run, one in summaries.items()}
    measured = {"largest step size times L, smallest step": paths.largest(first), **rises}
    undecided = paths.short(summaries)
    if not undecided and paths.largest(first) > 1:
        undecided = (
            f"The smallest step is {paths.largest(first):.4g} / L, but the claim is about steps of at most 1 / L."
        )
    if not undecided and not all(int(one["compared"]) for one in first.values()):
        undecided = "The risk is recorded at one step only; an increase needs two."
    compared = sum(int(one["compared"]) for one in first.values())
    beyond = {run: one for run, one in summaries.items() if float(one["within"]) > 1}
    return paths.judgement(
        summaries,
        {name: Number.exact(value) for name, value in measured.items()},
        {f"increases of the recorded risk, {run}": 0.0 for run in first},
        stated=paths.none("increases of the recorded risk", first, "rises"),
        undecided=undecided,
        remark=f"L is our bound, `language.score_bound`, largest over all texts. The risk is compared over {compared} "
        f"pairs of recorded steps. In the {len(beyond)} runs with a step beyond 1 / L it rises "
        f"{sum(int(one['rises']) for one in beyond.values())} times.",
    )


CLAIMS = (
    Claim(
        "lm-theorems:equal",
        Source(PAPER, "Theorem 3.14 (equal scores)", Setting.PROXY),
        "If all other words have equal scores, and the step is at most 1 / L, the direction of W converges to the "
        "hard-margin solution from any start.",
        any_start.equal,
        start_examples.of_equal,
    ),
    Claim(
        "lm-theorems:close",
        Source(PAPER, "Theorem 3.15 (close scores)", Setting.PROXY),
        "For any start there is a sufficiently small delta such that, if the scores of all other words are within "
        "delta and the step is at most 1 / (2 L), the norm of W diverges and its direction converges to the "
        "hard-margin solution.",
        any_start.close,
        start_examples.of_close,
    ),
    Claim(
        "lm-theorems:cross-entropy",
        Source(PAPER, "section 1 (logistic loss or cross entropy), Theorem 3.14", Setting.PROXY),
        "With cross entropy of the next word the direction of W converges to the hard-margin solution from any start.",
        any_start.cross_entropy,
        start_examples.of_cross_entropy,
    ),
    Claim(
        "lm-theorems:printed",
        Source(PAPER, "Definitions 3.5 to 3.7, Theorem 3.14", Setting.PROXY),
        "Descent on the logistic function 1 / (1 + exp(-x)) of the label times the attended score converges in "
        "direction to the hard-margin solution of the optimal tokens.",
        any_start.printed,
        start_examples.of_printed,
    ),
    Claim(
        "lm-theorems:soft",
        Source(PAPER, "section 4 (experiments, Definition 4.1)", Setting.PROXY),
        "If no W separates all next words, the direction of W converges to the soft-margin solution.",
        _judge_soft,
        examples.of_soft,
    ),
    Claim(
        "lm-theorems:tied",
        Source(PAPER, "Theorems 3.14 and 3.15; this limit is ours", Setting.OURS),
        "If no W separates all next words, the direction converges to the hard margin of the words of least risk, "
        "tied.",
        _judge_tied,
        examples.of_tied,
    ),
    Claim(
        "lm-theorems:step",
        Source(PAPER, "assumption of Theorems 3.14 and 3.15", Setting.PROXY),
        "A step of at most 1 / L never raises the risk.",
        _judge_step,
        examples.of_step,
    ),
)
