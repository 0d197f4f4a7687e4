"""Growth and direction of plain descent on texts: estimates, and judges of the two theorems and of their limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.language import PAPER
from jaxattn.experiments.language.lm_theorems import examples
from jaxattn.experiments.language.lm_theorems.growth import along
from jaxattn.study.claims import (
    Claim,
    Criterion,
    Datasets,
    Judgement,
    Number,
    Setting,
    Source,
    below,
    counts_of,
    number,
    too_few,
)

# The logarithm is read from the last decade of a run that has taken at least so many steps, on so many texts of a kind.
_LONG, _TEXTS = 30_000, 10
# Of 1 - correlation at the end, if it is to have gone far enough; and its exponent in ||W||, if it falls faster than
# 1 / ||W||.
_CLOSE, _EXPONENT = 0.02, -1.0


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate growth and direction along the time, of feasible texts and of others apart.

    Args:
        datasets: of `measure`, of runs with different steps and deltas.
        key: of the bootstrap.

    Returns:
        For each run a dataset over the snapshots, whose variables begin with the kind of text that they are about, if
        it has such texts.

    Raises:
        ValueError: a run of which no seed was kept.
    """
    if empty := [run for run, one in datasets.items() if not one.sizes["seed"]]:
        raise ValueError(f"lm-theorems: expected a kept seed in each run, found none in {empty}")
    keys = jax.random.split(key, len(datasets))
    return {run: along(one, k) for (run, one), k in zip(datasets.items(), keys, strict=True)}


def _judge_equal(summaries: Datasets) -> Judgement:
    """The theorem on the runs with equal scores."""
    return _theorem({run: one for run, one in summaries.items() if one.attrs["delta"] == 0}, "equal scores")


def _judge_close(summaries: Datasets) -> Judgement:
    """The theorem on the runs with close scores."""
    return _theorem({run: one for run, one in summaries.items() if one.attrs["delta"] > 0}, "close scores")


def _theorem(runs: Datasets, scores: str) -> Judgement:
    """On feasible texts the error has to fall in every run; where it gets furthest, it ends near with all selected."""
    if undecided := _undecided(runs, "feasible") if runs else f"There is no run with {scores}.":
        return _withheld(runs, undecided)
    least = min(float(one["within"]) for one in runs.values())
    if least > 1:
        return _withheld(runs, f"The smallest step is {least:.4g} / L, but the claim is of steps of at most 1 / L.")
    measured: dict[str, Number] = {}
    for run, one in runs.items():
        end = one.isel(snapshot=-1)
        measured[f"1 - correlation at step {int(end['snapshot'])}, {run}"] = number(end, "feasible_off")
        measured[f"exponent of 1 - correlation in ||W||, {run}"] = number(one, "feasible_off_exponent")
        measured[f"growth of ||W|| / ||W_mm|| by log k, {run}"] = number(one, "feasible_slope")
        measured[f"share of texts with all next words selected, {run}"] = number(one, "feasible_all_chosen")
    expected = {label: 0.0 for label in measured if label.startswith("1 - ")}
    expected |= {label: 1.0 for label in measured if label.startswith(("growth", "share"))}
    selected = _none("texts in which a next word is not selected", _furthest(runs), "feasible_unchosen")
    return _judgement(
        runs,
        measured,
        expected,
        stated=(*_tends(runs, "feasible_off"), *selected),
        remark=f"Of the texts that some W separates, {_texts(runs, 'feasible')} a run. The norm grows like a logarithm "
        "of the steps, so that the direction is reached slowly. The steps are "
        f"{least:.2g} / L to {_largest(runs):.2g} / L.",
    )


def _judge_soft(summaries: Datasets) -> Judgement:
    """On infeasible texts the error from the soft solution has to fall in every run and to end near."""
    if undecided := _undecided(summaries, "infeasible"):
        return _withheld(summaries, undecided)
    measured: dict[str, Number] = {}
    for run, one in summaries.items():
        end = one.isel(snapshot=-1)
        label = f"1 - correlation at step {int(end['snapshot'])}, {run}"
        measured[label] = number(end, "infeasible_off_soft")
        measured[f"exponent of 1 - correlation in ||W||, {run}"] = number(one, "infeasible_off_soft_exponent")
        measured[f"1 - correlation of soft and tied hard margin, {run}"] = number(one, "infeasible_apart")
        measured[f"share of texts where these differ, {run}"] = number(one, "infeasible_differ")
    differ = [float(one["infeasible_differ"]) for one in summaries.values()]
    return _judgement(
        summaries,
        measured,
        {label: 0.0 for label in measured if " at step " in label},
        stated=_tends(summaries, "infeasible_off_soft"),
        remark="Of the texts that ask one word for different next words. The logistic loss of an attended score is "
        "bounded: its least value gives up the rarer of two next words, or mixes both, whereas the soft margin ranks "
        "the rarer second, before all others. The soft solution differs from that of the words kept in "
        f"{min(differ):.0%} to {max(differ):.0%} of these texts.",
    )


def _judge_tied(summaries: Datasets) -> Judgement:
    """The error from the solution of the words kept has to fall, and these have to be the words of least risk."""
    if undecided := _undecided(summaries, "infeasible"):
        return _withheld(summaries, undecided)
    measured: dict[str, Number] = {}
    for run, one in summaries.items():
        end = one.isel(snapshot=-1)
        measured[f"1 - correlation at step {int(end['snapshot'])}, {run}"] = number(end, "infeasible_off")
        measured[f"exponent of 1 - correlation in ||W||, {run}"] = number(one, "infeasible_off_exponent")
        measured[f"share of texts that keep the words of least risk, {run}"] = number(one, "infeasible_least")
        measured[f"share of next words selected, {run}"] = number(one, "infeasible_chosen")
    expected = {label: 0.0 for label in measured if " at step " in label}
    expected |= {label: 1.0 for label in measured if "least risk" in label}
    tends, furthest = _tends(summaries, "infeasible_off"), _furthest(summaries)
    astray, texts = (sum(int(one[f"infeasible_{name}"]) for one in furthest.values()) for name in ("astray", "texts"))
    return _judgement(
        summaries,
        measured,
        expected,
        stated=(*tends, *_none("texts that keep other words than those of least risk", furthest, "infeasible_astray")),
        corrected=tends,
        correction="the limit is the tied hard margin of the words that the run keeps attending to. With the largest "
        f"step, {astray} of {texts} texts keep other words than those of least risk. Such words are locally best: the "
        "better word is so far behind along their direction that its part of the gradient dies out.",
        remark="1 - correlation is with the hard margin of the words that a run keeps attending to.",
    )


def _judge_step(summaries: Datasets) -> Judgement:
    """The recorded risk must not rise in a run of the smallest step, if that is within 1 / L of every text."""
    smallest = min(one.attrs["step_size"] for one in summaries.values())
    first = {run: one for run, one in summaries.items() if one.attrs["step_size"] == smallest}
    rises = {f"rises of the recorded risk, {run}": int(one["rises"]) for run, one in summaries.items()}
    measured = {"largest step size times L, smallest step": _largest(first), **rises}
    undecided = _short(summaries)
    if not undecided and _largest(first) > 1:
        undecided = f"The smallest step is {_largest(first):.4g} / L, but the claim is of steps of at most 1 / L."
    if not undecided and not all(int(one["compared"]) for one in first.values()):
        undecided = "The risk is recorded at one step only; a rise needs two."
    compared = sum(int(one["compared"]) for one in first.values())
    beyond = {run: one for run, one in summaries.items() if float(one["within"]) > 1}
    return _judgement(
        summaries,
        {name: Number.exact(value) for name, value in measured.items()},
        {f"rises of the recorded risk, {run}": 0.0 for run in first},
        stated=_none("rises of the recorded risk", first, "rises"),
        undecided=undecided,
        remark="L is ours, `language.score_bound`; the largest over all texts is meant. The risk is compared over "
        f"{compared} pairs of recorded steps. In the {len(beyond)} runs with a step beyond 1 / L it rises "
        f"{sum(int(one['rises']) for one in beyond.values())} times.",
    )


def _tends(runs: Datasets, name: str) -> tuple[Criterion, ...]:
    """Ask that an error falls faster than 1 / ||W|| in every run and ends near in those of the largest step."""
    falls = (
        below(f"exponent of 1 - cos in ||W||, {run},", number(one, f"{name}_exponent"), _EXPONENT)
        for run, one in runs.items()
    )
    arrives = (
        below(f"1 - cos at step {int(one['snapshot'][-1])}, {run},", number(one.isel(snapshot=-1), name), _CLOSE)
        for run, one in _furthest(runs).items()
    )
    return (*falls, *arrives)


def _none(what: str, runs: Datasets, name: str) -> tuple[Criterion, ...]:
    """Ask that a count is 0 in every run."""
    return tuple(below(f"number of {what}, {run},", Number.exact(int(one[name])), 0) for run, one in runs.items())


def _furthest(runs: Datasets) -> dict[str, xarray.Dataset]:
    largest = max(one.attrs["step_size"] for one in runs.values())
    return {run: one for run, one in runs.items() if one.attrs["step_size"] == largest}


def _largest(runs: Datasets) -> float:
    """Return the largest step size in units of 1 / L, over all texts."""
    return max(float(one["within"]) for one in runs.values())


def _texts(runs: Datasets, kind: str) -> str:
    numbers = sorted({int(one[f"{kind}_texts"]) for one in runs.values()})
    return f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _undecided(runs: Datasets, kind: str) -> str:
    """Return why these runs decide nothing on texts of a kind, or nothing if they do."""
    fewest = min(int(one[f"{kind}_texts"]) for one in runs.values())
    return _short(runs) or (f"{fewest} {kind} texts are too few; at least {_TEXTS} are needed." * (fewest < _TEXTS))


def _short(runs: Datasets) -> str:
    if min(int(one["snapshot"][-1]) for one in runs.values()) < _LONG:
        return f"Runs of less than {_LONG} steps are too short to tell a logarithm; the published size is 100000."
    return too_few(min(int(one.attrs["kept"]) for one in runs.values()))


def _withheld(runs: Datasets, undecided: str) -> Judgement:
    return dataclasses.replace(Judgement.withheld(undecided), counts=counts_of(runs))


def _judgement(
    runs: Datasets,
    measured: Mapping[str, Number],
    expected: Mapping[str, float],
    stated: tuple[Criterion, ...],
    corrected: tuple[Criterion, ...] = (),
    correction: str = "",
    undecided: str = "",
    remark: str = "",
) -> Judgement:
    return Judgement(
        measured={label: value.mean for label, value in measured.items()},
        interval={label: (value.low, value.high) for label, value in measured.items() if value.low < value.high},
        expected=expected,
        counts=counts_of(runs),
        stated=stated,
        corrected=corrected,
        correction=correction,
        undecided=undecided,
        remark=remark,
    )


CLAIMS = (
    Claim(
        "lm-theorems:equal",
        Source(PAPER, "Theorem 3.14 (equal scores)", Setting.PROXY),
        "With equal scores of all other words, and a step of at most 1 / L, the direction of W tends to the "
        "hard-margin solution.",
        _judge_equal,
        examples.of_equal,
    ),
    Claim(
        "lm-theorems:close",
        Source(PAPER, "Theorem 3.15 (close scores)", Setting.PROXY),
        "With scores of all other words within delta, and a step of at most 1 / L, the direction tends to the "
        "hard-margin solution.",
        _judge_close,
        examples.of_close,
    ),
    Claim(
        "lm-theorems:soft",
        Source(PAPER, "section 4 (experiments, Definition 4.1)", Setting.PROXY),
        "Where no W separates all next words, the direction of W tends to the soft-margin solution.",
        _judge_soft,
        examples.of_soft,
    ),
    Claim(
        "lm-theorems:tied",
        Source(PAPER, "Theorems 3.14 and 3.15; this limit is ours", Setting.OURS),
        "Where no W separates all next words, the direction tends to the hard margin of the words of least risk, tied.",
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
