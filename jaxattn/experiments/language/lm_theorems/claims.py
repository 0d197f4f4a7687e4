"""Plain descent on texts: the two theorems from any start, the losses they could be about, and their limits."""

from __future__ import annotations

from collections.abc import Mapping

import xarray

from jaxattn.experiments.language import PAPER
from jaxattn.experiments.language.arrival import elsewhere
from jaxattn.study.claims import Datasets, Judgement, Needs, Setting, Source, claim, counts_of
from jaxattn.study.claims.criteria import Criterion, Number, below
from jaxattn.study.estimates import number

# Needed of runs from W = 0, where the logarithm is fitted to the last decade; of runs from other starts, of which only
# the end is judged; and the number of texts of a kind.
_PATHS, _STARTS, _TEXTS = Needs(20, 30_000), Needs(10), 10
# Thresholds for 1 - cos at the end, and for its exponent in ||W||, if it falls faster than 1 / ||W||.
_CLOSE, _EXPONENT = 0.02, -1.0
# The largest step of Theorem 3.14 in units of 1 / L; that of Theorem 3.15 is half as large.
_EQUAL, _HALF = 1.0, 0.5
# What is needed depends on the start, and is checked by the rules.
_ANY = Needs(seeds=0)
_UNSERVED = "starts that leave inputs unserved (interval: up to all that have not converged)"
_AT_END = "1 - cos with the solution at the end"


def paths(runs: Datasets) -> dict[str, xarray.Dataset]:
    """Return the runs from W = 0, which are followed along their steps."""
    return {name: run for name, run in runs.items() if "weights.radius" not in run.attrs}


def starts(runs: Datasets, *losses: str) -> dict[str, xarray.Dataset]:
    """Return the runs from other starts, of which only the end is judged; those with some losses, if any are given."""
    return {
        name: run
        for name, run in runs.items()
        if "weights.radius" in run.attrs and (not losses or run.attrs["loss"] in losses)
    }


def furthest(runs: Datasets) -> dict[str, xarray.Dataset]:
    """Return the runs with the largest step."""
    largest = max(run.attrs["optimizer.step_size"] for run in runs.values())
    return {name: run for name, run in runs.items() if run.attrs["optimizer.step_size"] == largest}


def delta(run: xarray.Dataset) -> float:
    """Return the bound of the scores of other words, 0 in the text of two inputs."""
    return run.attrs.get("data.delta", 0.0)


def _tends(runs: Datasets, error: str) -> list[Criterion]:
    """Ask that an error falls faster than 1 / ||W|| in every run and ends small for the largest step."""
    falls = [
        below(f"exponent of ||W|| in 1 - cos, {name},", number(run, f"{error}_exponent"), _EXPONENT)
        for name, run in runs.items()
    ]
    arrives = [
        below(f"1 - cos at step {int(run['snapshot'][-1])}, {name},", number(run, error, at=-1), _CLOSE)
        for name, run in furthest(runs).items()
    ]
    return [*falls, *arrives]


def _none(what: str, runs: Datasets, count: str) -> list[Criterion]:
    return [below(f"number of {what}, {name},", Number.exact(int(run[count])), 0) for name, run in runs.items()]


def _near(runs: Datasets, error: str, what: str) -> list[Criterion]:
    """Ask for a small final direction error in every run."""
    at = -1 if error == "off" else None
    return [below(f"{what}, {name},", number(run, error, at), _CLOSE) for name, run in runs.items()]


def _too_few(runs: Datasets, kind: str) -> str:
    """Return why these runs from W = 0 decide nothing about texts of a kind; empty if they do."""
    fewest = min((int(run[f"{kind}_texts"]) for run in runs.values()), default=0)
    few = f"{fewest} {kind} texts are too few; at least {_TEXTS} are needed." if fewest < _TEXTS else ""
    return _PATHS.missing(runs) or few


def _at_end(runs: Datasets) -> dict[str, Number]:
    return {f"1 - cos at the end, {name}": number(run, "off", at=-1) for name, run in runs.items()}


def _theorem(from_zero: Datasets, ends: Datasets, scores: str, longest: float) -> Judgement:
    """Paths from W = 0 must approach the solution, and no start may lead elsewhere."""
    exact = {name: run for name, run in ends.items() if run.attrs["optimizer"] == "scale_free_gd"}
    if not from_zero or not exact:
        return Judgement.withheld(f"There is no run with {scores} from {'W = 0' if exact else 'drawn starts'}.")
    if few := _too_few(from_zero, "feasible"):
        return Judgement.withheld(few)
    within = [float(run["within"]) for run in from_zero.values()]
    numbers: dict[str, Number] = {}
    for name, run in from_zero.items():
        numbers[f"1 - cos at step {int(run['snapshot'][-1])}, {name}"] = number(run, "feasible_off", at=-1)
        numbers[f"exponent of ||W|| in 1 - cos, {name}"] = number(run, "feasible_off_exponent")
        numbers[f"slope of ||W|| / ||W_mm|| in log k, {name}"] = number(run, "feasible_slope")
        numbers[f"share of texts with all next words selected, {name}"] = number(run, "feasible_all_chosen")
    expected = {label: 0.0 for label in numbers if label.startswith("1 - ")}
    expected |= {label: 1.0 for label in numbers if label.startswith("share")}
    for name, run in ends.items():
        label = f"starts that leave inputs unserved, of {int(run['texts'])}, {name}"
        numbers[label], expected[label] = Number.exact(int(run["left"])), 0.0
    on_paths = [
        *_tends(from_zero, "feasible_off"),
        *_none("texts in which a next word is not selected", furthest(from_zero), "feasible_unchosen"),
    ]
    left = ", ".join(f"{int(run['left'])} of {int(run['texts'])} ({name})" for name, run in exact.items())
    texts = sorted({int(run["feasible_texts"]) for run in from_zero.values()})
    too_long = f"The smallest step is {min(within):.4g} / L, but the claim is about steps of at most {longest:g} / L."
    return Judgement(
        stated=[elsewhere(_UNSERVED, ends), *on_paths],
        corrected=[
            *on_paths,
            *_near(exact, "off_kept", "1 - cos with the solution of the kept tokens"),
            below(
                "starts with unserved inputs that are at most the margin behind, exact direction",
                Number.exact(sum(int(run["unexplained"]) for run in exact.values())),
                0,
            ),
        ],
        correction="W converges in direction to the max-margin solution of the inputs that descent serves (selects "
        "the optimal token of), or, if the other scores differ, of all tokens that it selects. The optimal token of "
        "every other input is behind by more than 1, the margin of the served inputs, along that "
        f"solution, so that its share of the gradient vanishes. Texts with such inputs: {left}.",
        remark="The counter-example with two inputs is proved for any step size "
        "(jaxattn.experiments.language.lm_theorems.crossed). From W = 0 at d = 100, "
        f"{' to '.join(map(str, dict.fromkeys((texts[0], texts[-1]))))} texts per run, the norm grows logarithmically "
        f"in the steps. The steps are {min(within):.2g} / L to {max(within):.2g} / L.",
        numbers=numbers,
        expected=expected,
        counts=counts_of({**from_zero, **ends}),
        undecided=_STARTS.missing(exact) or (too_long if min(within) > longest else ""),
    )


@claim(
    "lm-theorems:equal",
    Source(PAPER, "Theorem 3.14 (equal scores)", Setting.PROXY),
    "If all other words have equal scores, and the step is at most 1 / L, the direction of W converges to the "
    "hard-margin solution from any start.",
    needs=_ANY,
)
def _equal(runs: Datasets) -> Judgement:
    equal = {name: run for name, run in runs.items() if delta(run) == 0}
    return _theorem(paths(equal), starts(equal, "logistic"), "equal scores", _EQUAL)


@claim(
    "lm-theorems:close",
    Source(PAPER, "Theorem 3.15 (close scores)", Setting.PROXY),
    "For any start there is a sufficiently small delta such that, if the scores of all other words are within "
    "delta and the step is at most 1 / (2 L), the norm of W diverges and its direction converges to the "
    "hard-margin solution.",
    needs=_ANY,
)
def _close(runs: Datasets) -> Judgement:
    """Judge paths with close scores, and starts with arbitrarily close scores, including equal ones."""
    close = {name: run for name, run in paths(runs).items() if delta(run) > 0}
    return _theorem(close, starts(runs, "logistic"), "close scores", _HALF)


@claim(
    "lm-theorems:cross-entropy",
    Source(PAPER, "section 1 (logistic loss or cross entropy), Theorem 3.14", Setting.PROXY),
    "With cross entropy of the next word the direction of W converges to the hard-margin solution from any start.",
    needs=_ANY,
)
def _cross_entropy(runs: Datasets) -> Judgement:
    ends = starts(runs, "cross_entropy")
    texts = {name: run for name, run in ends.items() if run.attrs["data"] != "crossed"}
    if not texts:
        return Judgement.withheld("There is no run with cross entropy from drawn starts.")
    return Judgement(
        stated=[elsewhere(_UNSERVED, ends), *_near(texts, "off", _AT_END)],
        remark="Cross entropy is convex in W, and an input that is behind has a slope near 1, which does not vanish. "
        "From starts where the logistic loss leaves an input unserved, including the two inputs, cross entropy "
        "serves all.",
        numbers=_at_end(ends),
        expected=dict.fromkeys(_at_end(ends), 0.0),
        counts=counts_of(ends),
        undecided=_STARTS.missing(texts),
    )


@claim(
    "lm-theorems:printed",
    Source(PAPER, "Definitions 3.5 to 3.7, Theorem 3.14", Setting.PROXY),
    "Descent on the logistic function 1 / (1 + exp(-x)) of the label times the attended score converges in "
    "direction to the hard-margin solution of the optimal tokens.",
    needs=_ANY,
)
def _printed(runs: Datasets) -> Judgement:
    """The printed loss must converge to the solution; as corrected, the one with the opposite sign."""
    printed, turned = starts(runs, "printed"), starts(runs, "turned")
    if not printed or not turned:
        return Judgement.withheld("There is no run with the printed loss, or none with its sign reversed.")
    both = printed | turned
    return Judgement(
        stated=_near(printed, "off", _AT_END),
        corrected=_near(turned, "off", _AT_END),
        correction="for the same function of minus the margin. The printed loss rises with the margin, so descent "
        "moves W away from the optimal tokens.",
        numbers=_at_end(both),
        expected=dict.fromkeys(_at_end(printed), 0.0),
        counts=counts_of(both),
        undecided=_STARTS.missing(both),
    )


@claim(
    "lm-theorems:soft",
    Source(PAPER, "section 4 (experiments, Definition 4.1)", Setting.PROXY),
    "If no W separates all next words, the direction of W converges to the soft-margin solution.",
    needs=_ANY,
)
def _soft(runs: Datasets) -> Judgement:
    """On infeasible texts the error from the soft solution must fall in every run and end near 0."""
    runs = paths(runs)
    if few := _too_few(runs, "infeasible"):
        return Judgement.withheld(few)
    numbers: dict[str, Number] = {}
    for name, run in runs.items():
        numbers[f"1 - cos at step {int(run['snapshot'][-1])}, {name}"] = number(run, "infeasible_off_soft", at=-1)
        numbers[f"exponent of ||W|| in 1 - cos, {name}"] = number(run, "infeasible_off_soft_exponent")
        numbers[f"1 - cos of soft and tied hard margin, {name}"] = number(run, "infeasible_apart")
        numbers[f"share of texts where these differ, {name}"] = number(run, "infeasible_differ")
    differ = [float(run["infeasible_differ"]) for run in runs.values()]
    return Judgement(
        stated=_tends(runs, "infeasible_off_soft"),
        remark="The texts are those in which one word has different next words. The logistic loss of an attended "
        "score is bounded. At its minimum it gives up the rarer of two next words, or mixes both, whereas the "
        "soft margin ranks the rarer second, above all others. The soft solution differs from the one for the "
        f"kept words in {min(differ):.0%} to {max(differ):.0%} of these texts.",
        numbers=numbers,
        expected=_zero_at_steps(numbers),
        counts=counts_of(runs),
    )


@claim(
    "lm-theorems:tied",
    Source(PAPER, "Theorems 3.14 and 3.15; this limit is ours", Setting.OURS),
    "If no W separates all next words, the direction converges to the hard margin of the words of least risk, tied.",
    needs=_ANY,
)
def _tied(runs: Datasets) -> Judgement:
    """The error from the solution of the kept words must fall, and these must be the words of least risk."""
    runs = paths(runs)
    if few := _too_few(runs, "infeasible"):
        return Judgement.withheld(few)
    numbers: dict[str, Number] = {}
    for name, run in runs.items():
        numbers[f"1 - cos at step {int(run['snapshot'][-1])}, {name}"] = number(run, "infeasible_off", at=-1)
        numbers[f"exponent of ||W|| in 1 - cos, {name}"] = number(run, "infeasible_off_exponent")
        numbers[f"share of texts that keep the words of least risk, {name}"] = number(run, "infeasible_least")
        numbers[f"share of next words selected, {name}"] = number(run, "infeasible_chosen")
    tends, last = _tends(runs, "infeasible_off"), furthest(runs)
    astray, texts = (sum(int(run[f"infeasible_{count}"]) for run in last.values()) for count in ("astray", "texts"))
    return Judgement(
        stated=[*tends, *_none("texts that keep other words than those of least risk", last, "infeasible_astray")],
        corrected=tends,
        correction="the limit is the tied hard margin of the words that continue to receive attention. With the "
        f"largest step, {astray} of {texts} texts keep other words than those of least risk. Such words "
        "are locally optimal: the better word is so far behind along their direction that its share of "
        "the gradient vanishes.",
        remark="1 - cos is with the hard margin of the words that continue to receive attention.",
        numbers=numbers,
        expected=_zero_at_steps(numbers) | {label: 1.0 for label in numbers if "least risk" in label},
        counts=counts_of(runs),
    )


def _zero_at_steps(numbers: Mapping[str, Number]) -> dict[str, float]:
    return {label: 0.0 for label in numbers if " at step " in label}


@claim(
    "lm-theorems:step",
    Source(PAPER, "assumption of Theorems 3.14 and 3.15", Setting.PROXY),
    "A step of at most 1 / L never raises the risk.",
    needs=_ANY,
)
def _step(runs: Datasets) -> Judgement:
    """The recorded risk must not rise in runs with the smallest step, if this is within 1 / L for every text."""
    runs = paths(runs)
    if not runs:
        return Judgement.withheld("There is no run from W = 0.")
    smallest = min(run.attrs["optimizer.step_size"] for run in runs.values())
    first = {name: run for name, run in runs.items() if run.attrs["optimizer.step_size"] == smallest}
    largest = max(float(run["within"]) for run in first.values())
    beyond = [run for run in runs.values() if float(run["within"]) > 1]
    undecided = _PATHS.missing(runs)
    if largest > 1:
        undecided = (
            undecided or f"The smallest step is {largest:.4g} / L, but the claim is about steps of at most 1 / L."
        )
    if not all(int(run["compared"]) for run in first.values()):
        undecided = undecided or "The risk is recorded at one step only; an increase needs two."
    numbers = {"largest step size times L, smallest step": largest}
    numbers |= {f"increases of the recorded risk, {name}": int(run["rises"]) for name, run in runs.items()}
    return Judgement(
        stated=_none("increases of the recorded risk", first, "rises"),
        remark="L is our bound, `language.score_bound`, largest over all texts. The risk is compared over "
        f"{sum(int(run['compared']) for run in first.values())} "
        f"pairs of recorded steps. In the {len(beyond)} runs with a step beyond 1 / L it rises "
        f"{sum(int(run['rises']) for run in beyond)} times.",
        numbers={label: Number.exact(value) for label, value in numbers.items()},
        expected={f"increases of the recorded risk, {name}": 0.0 for name in first},
        counts=counts_of(runs),
        undecided=undecided,
    )


CLAIMS = (_equal, _close, _cross_entropy, _printed, _soft, _tied, _step)
