"""Judges of the two theorems as they are stated, from any start, and of the losses that they could be about."""

from __future__ import annotations

from collections.abc import Callable

import xarray

from jaxattn.experiments.language.arrival import elsewhere
from jaxattn.experiments.language.lm_theorems import paths
from jaxattn.study.claims import Criterion, Datasets, Judgement, Number, below, number

# A step of Theorem 3.14 is at most this over L, one of Theorem 3.15 at most half as long.
_EQUAL, _CLOSE = 1.0, 0.5


def equal(summaries: Datasets) -> Judgement:
    """Theorem 3.14, on the runs with equal scores."""
    return _theorem(summaries, "equal scores", lambda delta: delta == 0, lambda delta: delta == 0, _EQUAL)


def close(summaries: Datasets) -> Judgement:
    """Theorem 3.15: paths with close scores, starts with scores as near each other as one likes, equal ones too."""
    return _theorem(summaries, "close scores", lambda delta: delta > 0, lambda delta: True, _CLOSE)


def _theorem(
    summaries: Datasets,
    scores: str,
    of_paths: Callable[[float], bool],
    of_starts: Callable[[float], bool],
    longest: float,
) -> Judgement:
    """Paths from W = 0 have to go on to the solution, and no start may lead elsewhere."""
    from_zero = {run: one for run, one in paths.plain(summaries).items() if of_paths(one.attrs["delta"])}
    ends = {run: one for run, one in _of_loss(summaries, "logistic").items() if of_starts(one.attrs["delta"])}
    exact = {run: one for run, one in ends.items() if one.attrs["rule"] == "exact direction"}
    both = from_zero | ends
    if not from_zero or not exact:
        return paths.withheld(both, f"There is no run with {scores} from {'W = 0' if exact else 'drawn starts'}.")
    if undecided := paths.undecided(from_zero, "feasible") or _few(exact):
        return paths.withheld(both, undecided)
    least = min(float(one["within"]) for one in from_zero.values())
    if least > longest:
        return paths.withheld(
            both, f"The smallest step is {least:.4g} / L, but the claim is of steps of at most {longest:g} / L."
        )
    measured: dict[str, Number] = {}
    for run, one in from_zero.items():
        end = one.isel(snapshot=-1)
        measured[f"1 - correlation at step {int(end['snapshot'])}, {run}"] = number(end, "feasible_off")
        measured[f"exponent of 1 - correlation in ||W||, {run}"] = number(one, "feasible_off_exponent")
        measured[f"growth of ||W|| / ||W_mm|| by log k, {run}"] = number(one, "feasible_slope")
        measured[f"share of texts with all next words selected, {run}"] = number(one, "feasible_all_chosen")
    expected = {label: 0.0 for label in measured if label.startswith("1 - ")}
    expected |= {label: 1.0 for label in measured if label.startswith(("growth", "share"))}
    for run, one in ends.items():
        label = f"starts that leave inputs behind, of {int(one['texts'])}, {run}"
        measured[label], expected[label] = Number.exact(int(one["left"])), 0.0
    selected = paths.none("texts in which a next word is not selected", paths.furthest(from_zero), "feasible_unchosen")
    behind = elsewhere("starts that leave inputs behind, up to all that have not arrived", ends)
    on_paths = (*paths.tends(from_zero, "feasible_off"), *selected)
    return paths.judgement(
        both,
        measured,
        expected,
        stated=(behind, *on_paths),
        corrected=(
            *on_paths,
            *(near(run, one, "off_kept", "1 - cos with the solution of what is kept") for run, one in exact.items()),
            below(
                "starts with inputs that are not served though at most the margin behind, exact direction",
                Number.exact(sum(int(one["unexplained"]) for one in exact.values())),
                0,
            ),
        ),
        correction="W tends to the max-margin solution of the inputs that descent serves (where other scores "
        "differ, of the tokens that it selects). The others are those whose optimal token is more than 1 "
        f"behind along that solution, the margin of the served: their share of the gradient dies out. {_left(exact)}.",
        remark="The counter-example of two inputs is proved for any step size (jaxattn.experiments.language.lm_theorems"
        f".crossed). From W = 0 at d = 100, {paths.texts(from_zero, 'feasible')} texts a run, the norm grows like a "
        f"logarithm of the steps. The steps are {least:.2g} / L to {paths.largest(from_zero):.2g} / L.",
    )


def cross_entropy(summaries: Datasets) -> Judgement:
    """Every start has to arrive."""
    ends = _of_loss(summaries, "cross_entropy")
    texts = {run: one for run, one in ends.items() if one.attrs["text"] != "two inputs"}
    if undecided := _few(texts):
        return paths.withheld(ends, undecided)
    return paths.judgement(
        ends,
        {f"1 - correlation at the end, {run}": _last(one) for run, one in ends.items()},
        {f"1 - correlation at the end, {run}": 0.0 for run in ends},
        stated=(
            elsewhere("starts that leave inputs behind, up to all that have not arrived", ends),
            *(near(run, one, "off", "1 - cos with the solution at the end") for run, one in texts.items()),
        ),
        remark="Cross entropy is convex in W, and an input that is behind has a slope near 1, not one that dies out. "
        "From where the logistic loss leaves an input behind, two inputs included, cross entropy serves all.",
    )


def printed(summaries: Datasets) -> Judgement:
    """The loss as printed has to arrive; with its sign turned it does."""
    as_printed, turned = (_of_loss(summaries, loss) for loss in ("printed", "turned"))
    both = as_printed | turned
    if undecided := _few(as_printed) or _few(turned):
        return paths.withheld(both, undecided)
    what = "1 - cos with the solution at the end"
    return paths.judgement(
        both,
        {f"1 - correlation at the end, {run}": _last(one) for run, one in both.items()},
        {f"1 - correlation at the end, {run}": 0.0 for run in as_printed},
        stated=tuple(near(run, one, "off", what) for run, one in as_printed.items()),
        corrected=tuple(near(run, one, "off", what) for run, one in turned.items()),
        correction="for the same function of minus the margin. As printed the loss rises with the margin, and descent "
        "turns W away from the optimal tokens.",
    )


def near(run: str, one: xarray.Dataset, name: str, what: str) -> Criterion:
    """Ask that a direction error is small in the end."""
    return below(f"{what}, {run},", _last(one) if name == "off" else number(one, name), paths.CLOSE)


def _last(one: xarray.Dataset) -> Number:
    return number(one.isel(snapshot=-1), "off")


def _of_loss(summaries: Datasets, loss: str) -> dict[str, xarray.Dataset]:
    return {run: one for run, one in paths.started(summaries).items() if one.attrs["loss"] == loss}


def _few(ends: Datasets) -> str:
    """Return why so few texts decide nothing, or nothing if there are enough in every run."""
    fewest = min((int(one["texts"]) for one in ends.values()), default=0)
    return f"{fewest} feasible texts from drawn starts are too few; at least {paths.TEXTS} are needed." * (
        fewest < paths.TEXTS
    )


def _left(exact: Datasets) -> str:
    """Say of every run how many texts have inputs left behind."""
    parts = (f"{int(one['left'])} of {int(one['texts'])} ({run})" for run, one in exact.items())
    return f"Texts with such inputs: {', '.join(parts)}"
