"""Plain descent on texts: the two theorems from any start, the losses they could be about, and their limits."""

from __future__ import annotations

from collections.abc import Iterable

import xarray

from jaxattn.experiments.language import PAPER
from jaxattn.experiments.language.arrival import elsewhere, few
from jaxattn.experiments.language.every_run import all_below, labelled
from jaxattn.study.claims import Datasets, Judgement, Kind, Needs, Runs, Setting, Source, claim, counts_of, family
from jaxattn.study.claims.claim import MissingRunError
from jaxattn.study.claims.criteria import Criterion, Number, below
from jaxattn.study.estimates import added, number
from jaxattn.study.style import page

# Needed of runs from W = 0, where the logarithm is fitted to the last decade; of runs from other starts, of which only
# the end is judged; and the number of texts of a kind. Claims about both kinds of runs check this in their rules.
_PATHS, _STARTS, _ANY, _TEXTS = Needs(20, 30_000), Needs(10), Needs(seeds=0), 10
# Thresholds for 1 - cos at the end, and for its exponent in ||W||, if it falls faster than 1 / ||W||.
_CLOSE, _EXPONENT = 0.02, -1.0
# The largest step of Theorem 3.14 in units of 1 / L; that of Theorem 3.15 is half as large.
_EQUAL, _HALF = 1.0, 0.5
_UNSERVED = "starts that leave inputs unserved (interval: up to all that have not converged)"
_AT_END = "1 - cos with the solution at the end"
# The numbers that a claim predicts, by a part of their labels.
_EXPECTED = {" at step ": 0.0, "at the end": 0.0, "that leave": 0.0, "all next words": 1.0, "least risk": 1.0}


def paths(runs: Datasets) -> dict[str, xarray.Dataset]:
    """Return the runs from W = 0, which are followed along their steps. Only these count as read.

    Raises:
        MissingRunError: there are none.
    """
    every = runs.unread if isinstance(runs, Runs) else runs
    names = [name for name, run in every.items() if "loss" not in run.attrs]
    if not names:
        raise MissingRunError("from W = 0")
    return {name: runs[name] for name in names}


def delta(run: xarray.Dataset) -> float:
    """Return the bound of the scores of other words, 0 in the text of two inputs."""
    return run.attrs.get("data.delta", 0.0)


def furthest(runs: Datasets) -> dict[str, xarray.Dataset]:
    """Return the runs with the largest step."""
    return family(runs, {"optimizer.step_size": max(run.attrs["optimizer.step_size"] for run in runs.values())})


def _expected(labels: Iterable[str]) -> dict[str, float]:
    return {label: value for label in labels for part, value in _EXPECTED.items() if part in label}


def _tends(runs: Datasets, error: str) -> list[Criterion]:
    """Ask that an error falls faster than 1 / ||W|| in every run and ends small for the largest step."""
    falls = all_below("exponent of ||W|| in 1 - cos", runs, f"{error}_exponent", _EXPONENT)
    return falls + all_below("1 - cos at step {}", furthest(runs), error, _CLOSE)


def _theorem(from_zero: Datasets, ends: Datasets, longest: float) -> Judgement:
    """Paths from W = 0 must approach the solution, and no start may lead elsewhere."""
    if reason := few(from_zero, "feasible_texts", _TEXTS, "feasible"):
        return Judgement.withheld(reason)
    exact = family(ends, {"optimizer": "scale_free_gd"})
    labels = {
        "1 - cos at step {}": "feasible_off",
        "exponent of ||W|| in 1 - cos": "feasible_off_exponent",
        "slope of ||W|| / ||W_mm|| in log k": "feasible_slope",
        "share of texts with all next words selected": "feasible_all_chosen",
    }
    numbers = labelled(from_zero, labels) | {
        f"starts that leave inputs unserved, of {int(run['texts'])}, {name}": number(run, "left")
        for name, run in ends.items()
    }
    unchosen = "number of texts in which a next word is not selected"
    on_paths = _tends(from_zero, "feasible_off") + all_below(unchosen, furthest(from_zero), "feasible_unchosen", 0)
    left = ", ".join(f"{int(run['left'])} of {int(run['texts'])} ({name})" for name, run in exact.items())
    within = [float(run["within"]) for run in from_zero.values()]
    too_long = f"The smallest step is {min(within):.4g} / L, but the claim is about steps of at most {longest:g} / L."
    return Judgement(
        stated=[elsewhere(_UNSERVED, ends), *on_paths],
        remark=f"Texts with unserved inputs: {left}. For what W converges to see lm-theorems:served. The "
        "counter-example with two inputs is proved for any step size "
        "(jaxattn.experiments.language.lm_theorems.crossed). From W = 0 at d = 100, "
        f"{page.span(int(run['feasible_texts']) for run in from_zero.values())} texts per run, the norm grows "
        f"logarithmically in the steps. The steps are {min(within):.2g} / L to {max(within):.2g} / L.",
        numbers=numbers,
        expected=_expected(numbers),
        counts=counts_of({**from_zero, **ends}),
        undecided=_PATHS.missing(from_zero) or _STARTS.missing(exact) or (too_long if min(within) > longest else ""),
    )


@claim(
    "lm-theorems:equal",
    Source(PAPER, "Theorem 3.14 (equal scores)", Setting.PROXY),
    "If all other words have equal scores, and the step is at most 1 / L, the direction of W converges to the "
    "hard-margin solution from any start.",
    needs=_ANY,
)
def _equal(runs: Datasets) -> Judgement:
    from_zero, ends = (
        {name: run for name, run in chosen.items() if delta(run) == 0}
        for chosen in (paths(runs), family(runs, {"loss": "logistic"}))
    )
    return _theorem(from_zero, ends, _EQUAL)


@claim(
    "lm-theorems:close",
    Source(PAPER, "Theorem 3.15 (close scores)", Setting.PROXY),
    "For any start there is a sufficiently small delta such that, if the scores of all other words are within "
    "delta and the step is at most 1 / (2 L), the norm of W diverges and its direction converges to the "
    "hard-margin solution.",
    needs=_ANY,
)
def _close(runs: Datasets) -> Judgement:
    close = {name: run for name, run in paths(runs).items() if delta(run) > 0}
    return _theorem(close, family(runs, {"loss": "logistic"}), _HALF)


@claim(
    "lm-theorems:served",
    Source("jaxattn", "what descent on a bounded loss converges to from any start", Setting.OURS),
    "From any start W converges in direction to the max-margin solution of the inputs that descent serves (selects the "
    "optimal token of), or, if the other scores differ, of all tokens that it selects. The optimal token of every "
    "other input is behind by more than 1, the margin of the served inputs, along that solution.",
    needs=_STARTS,
)
def _served(runs: Datasets) -> Judgement:
    exact = family(runs, {"loss": "logistic", "optimizer": "scale_free_gd"})
    kept = "1 - cos with the solution of the kept tokens"
    return Judgement(
        [
            *all_below(kept, exact, "off_kept", _CLOSE),
            below(
                "starts with unserved inputs that are at most the margin behind, exact direction",
                Number.exact(added(exact, "unexplained")),
                0,
            ),
        ],
        remark="So the share of the gradient of an unserved input vanishes. Texts with such inputs: "
        f"{added(exact, 'left')}.",
        numbers=labelled(exact, {f"{kept} at the end": "off_kept"}),
    )


@claim(
    "lm-theorems:cross-entropy",
    Source(PAPER, "section 1 (logistic loss or cross entropy), Theorem 3.14", Setting.PROXY),
    "With cross entropy of the next word the direction of W converges to the hard-margin solution from any start.",
    needs=_ANY,
)
def _cross_entropy(runs: Datasets) -> Judgement:
    ends = family(runs, {"loss": "cross_entropy"})
    texts = family(ends, {"data": "scored_language"})
    numbers = labelled(ends, {"1 - cos at the end": "off"})
    return Judgement(
        stated=[elsewhere(_UNSERVED, ends), *all_below(_AT_END, texts, "off", _CLOSE)],
        remark="Cross entropy is convex in W, and an input that is behind has a slope near 1, which does not vanish. "
        "From starts where the logistic loss leaves an input unserved, including the two inputs, cross entropy "
        "serves all.",
        numbers=numbers,
        expected=_expected(numbers),
        undecided=_STARTS.missing(texts),
    )


@claim(
    "lm-theorems:printed",
    Source(PAPER, "Definitions 3.5 to 3.7, Theorem 3.14", Setting.PROXY),
    "Descent on the logistic function 1 / (1 + exp(-x)) of the label times the attended score converges in "
    "direction to the hard-margin solution of the optimal tokens.",
    needs=_STARTS,
)
def _printed(runs: Datasets) -> Judgement:
    printed, turned = (family(runs, {"loss": loss}) for loss in ("printed", "turned"))
    of_printed, of_turned = (labelled(ends, {"1 - cos at the end": "off"}) for ends in (printed, turned))
    return Judgement(
        stated=all_below(_AT_END, printed, "off", _CLOSE),
        corrected=all_below(_AT_END, turned, "off", _CLOSE),
        correction="for the same function of minus the margin. The printed loss rises with the margin, so descent "
        "moves W away from the optimal tokens.",
        numbers=of_printed | of_turned,
        expected=_expected(of_printed),
    )


@claim(
    "lm-theorems:soft",
    Source(PAPER, "section 4 (experiments, Definition 4.1)", Setting.PROXY),
    "If no W separates all next words, the direction of W converges to the soft-margin solution.",
    needs=_PATHS,
)
def _soft(runs: Datasets) -> Judgement:
    runs = paths(runs)
    if reason := few(runs, "infeasible_texts", _TEXTS, "infeasible"):
        return Judgement.withheld(reason)
    numbers = labelled(
        runs,
        {
            "1 - cos at step {}": "infeasible_off_soft",
            "exponent of ||W|| in 1 - cos": "infeasible_off_soft_exponent",
            "1 - cos of soft and tied hard margin": "infeasible_apart",
            "share of texts where these differ": "infeasible_differ",
        },
    )
    differ = [float(run["infeasible_differ"]) for run in runs.values()]
    return Judgement(
        stated=_tends(runs, "infeasible_off_soft"),
        remark="The texts are those in which one word has different next words. The logistic loss of an attended "
        "score is bounded. At its minimum it gives up the rarer of two next words, or mixes both, whereas the "
        "soft margin ranks the rarer second, above all others. The soft solution differs from the one for the "
        f"kept words in {min(differ):.0%} to {max(differ):.0%} of these texts.",
        numbers=numbers,
        expected=_expected(numbers),
    )


@claim(
    "lm-theorems:tied",
    Source(PAPER, "Theorems 3.14 and 3.15; this limit is ours", Setting.OURS),
    "If no W separates all next words, the direction converges to the hard margin of the words of least risk, tied.",
    needs=_PATHS,
)
def _tied(runs: Datasets) -> Judgement:
    runs = paths(runs)
    if reason := few(runs, "infeasible_texts", _TEXTS, "infeasible"):
        return Judgement.withheld(reason)
    numbers = labelled(
        runs,
        {
            "1 - cos at step {}": "infeasible_off",
            "exponent of ||W|| in 1 - cos": "infeasible_off_exponent",
            "share of texts that keep the words of least risk": "infeasible_least",
            "share of next words selected": "infeasible_chosen",
        },
    )
    tends, last = _tends(runs, "infeasible_off"), furthest(runs)
    others = "number of texts that keep other words than those of least risk"
    astray, texts = (added(last, f"infeasible_{count}") for count in ("astray", "texts"))
    return Judgement(
        stated=tends + all_below(others, last, "infeasible_astray", 0),
        corrected=tends,
        correction="the limit is the tied hard margin of the words that continue to receive attention. With the "
        f"largest step, {astray} of {texts} texts keep other words than those of least risk. Such words are locally "
        "optimal: the better word is so far behind along their direction that its share of the gradient vanishes.",
        remark="1 - cos is with the hard margin of the words that continue to receive attention.",
        numbers=numbers,
        expected=_expected(numbers),
    )


@claim(
    "lm-theorems:step",
    Source(PAPER, "assumption of Theorems 3.14 and 3.15", Setting.PROXY),
    "A step of at most 1 / L never raises the risk.",
    needs=_PATHS,
    kind=Kind.CHECK,
)
def _step(runs: Datasets) -> Judgement:
    runs = paths(runs)
    first = family(runs, {"optimizer.step_size": min(run.attrs["optimizer.step_size"] for run in runs.values())})
    largest = max(float(run["within"]) for run in first.values())
    beyond = {name: run for name, run in runs.items() if float(run["within"]) > 1}
    undecided = ""
    if not all(int(run["compared"]) for run in first.values()):
        undecided = "The risk is recorded at one step only; an increase needs two."
    if largest > 1:
        undecided = f"The smallest step is {largest:.4g} / L, but the claim is about steps of at most 1 / L."
    rises = "increases of the recorded risk"
    return Judgement(
        stated=all_below(f"number of {rises}", first, "rises", 0),
        remark="L is our bound, `language.score_bound`, largest over all texts. The risk is compared over "
        f"{added(first, 'compared')} pairs of recorded steps. In the {len(beyond)} runs with a step beyond 1 / L it "
        f"rises {added(beyond, 'rises')} times.",
        numbers={"largest step size times L, smallest step": largest} | labelled(runs, {rises: "rises"}),
        expected=dict.fromkeys(labelled(first, {rises: "rises"}), 0.0),
        undecided=undecided,
    )


CLAIMS = (_equal, _close, _served, _cross_entropy, _printed, _soft, _tied, _step)
