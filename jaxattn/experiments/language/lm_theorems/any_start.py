"""Judges of the two theorems as stated, from any start, and of the losses that they could be about."""

from __future__ import annotations

from collections.abc import Callable

import xarray

from jaxattn.experiments.language.arrival import elsewhere
from jaxattn.experiments.language.lm_theorems import paths
from jaxattn.study.claims import Criterion, Datasets, Judgement, Number, below, number

# The largest step of Theorem 3.14 in units of 1 / L; that of Theorem 3.15 is half as large.
_EQUAL, _CLOSE = 1.0, 0.5


def equal(summaries: Datasets) -> Judgement:
    """Theorem 3.14, on the runs with equal scores."""
    return _theorem(summaries, "equal scores", lambda delta: delta == 0, lambda delta: delta == 0, _EQUAL)


def close(summaries: Datasets) -> Judgement:
    """Theorem 3.15: paths with close scores, and starts with arbitrarily close scores, including equal ones."""
    return _theorem(summaries, "close scores", lambda delta: delta > 0, lambda delta: True, _CLOSE)


def _theorem(
    summaries: Datasets,
    scores: str,
    of_paths: Callable[[float], bool],
    of_starts: Callable[[float], bool],
    longest: float,
) -> Judgement:
    """Paths from W = 0 must approach the solution, and no start may lead elsewhere."""
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
            both, f"The smallest step is {least:.4g} / L, but the claim is about steps of at most {longest:g} / L."
        )
    measured: dict[str, Number] = {}
    for run, one in from_zero.items():
        end = one.isel(snapshot=-1)
        measured[f"1 - cos at step {int(end['snapshot'])}, {run}"] = number(end, "feasible_off")
        measured[f"exponent of ||W|| in 1 - cos, {run}"] = number(one, "feasible_off_exponent")
        measured[f"slope of ||W|| / ||W_mm|| in log k, {run}"] = number(one, "feasible_slope")
        measured[f"share of texts with all next words selected, {run}"] = number(one, "feasible_all_chosen")
    expected = {label: 0.0 for label in measured if label.startswith("1 - ")}
    expected |= {label: 1.0 for label in measured if label.startswith(("growth", "share"))}
    for run, one in ends.items():
        label = f"starts that leave inputs unserved, of {int(one['texts'])}, {run}"
        measured[label], expected[label] = Number.exact(int(one["left"])), 0.0
    selected = paths.none("texts in which a next word is not selected", paths.furthest(from_zero), "feasible_unchosen")
    behind = elsewhere("starts that leave inputs unserved (interval: up to all that have not converged)", ends)
    on_paths = (*paths.tends(from_zero, "feasible_off"), *selected)
    return paths.judgement(
        both,
        measured,
        expected,
        stated=(behind, *on_paths),
        corrected=(
            *on_paths,
            *(near(run, one, "off_kept", "1 - cos with the solution of the kept tokens") for run, one in exact.items()),
            below(
                "starts with unserved inputs that are at most the margin behind, exact direction",
                Number.exact(sum(int(one["unexplained"]) for one in exact.values())),
                0,
            ),
        ),
        correction="W converges in direction to the max-margin solution of the inputs that descent serves (selects "
        "the optimal token of), or, if the other scores differ, of all tokens that it selects. The optimal token of "
        "every other input is behind by more than 1, the margin of the served inputs, along that "
        f"solution, so that its share of the gradient vanishes. {_left(exact)}.",
        remark="The counter-example with two inputs is proved for any step size "
        "(jaxattn.experiments.language.lm_theorems.crossed). From W = 0 at d = 100, "
        f"{paths.texts(from_zero, 'feasible')} texts per run, the norm grows logarithmically in the steps. The "
        f"steps are {least:.2g} / L to {paths.largest(from_zero):.2g} / L.",
    )


def cross_entropy(summaries: Datasets) -> Judgement:
    """Every start must converge to the solution."""
    ends = _of_loss(summaries, "cross_entropy")
    texts = {run: one for run, one in ends.items() if one.attrs["text"] != "two inputs"}
    if undecided := _few(texts):
        return paths.withheld(ends, undecided)
    return paths.judgement(
        ends,
        {f"1 - cos at the end, {run}": _last(one) for run, one in ends.items()},
        {f"1 - cos at the end, {run}": 0.0 for run in ends},
        stated=(
            elsewhere("starts that leave inputs unserved (interval: up to all that have not converged)", ends),
            *(near(run, one, "off", "1 - cos with the solution at the end") for run, one in texts.items()),
        ),
        remark="Cross entropy is convex in W, and an input that is behind has a slope near 1, which does not vanish. "
        "From starts where the logistic loss leaves an input unserved, including the two inputs, cross entropy "
        "serves all.",
    )


def printed(summaries: Datasets) -> Judgement:
    """The printed loss must converge to the solution; as corrected, the one with the opposite sign."""
    as_printed, turned = (_of_loss(summaries, loss) for loss in ("printed", "turned"))
    both = as_printed | turned
    if undecided := _few(as_printed) or _few(turned):
        return paths.withheld(both, undecided)
    what = "1 - cos with the solution at the end"
    return paths.judgement(
        both,
        {f"1 - cos at the end, {run}": _last(one) for run, one in both.items()},
        {f"1 - cos at the end, {run}": 0.0 for run in as_printed},
        stated=tuple(near(run, one, "off", what) for run, one in as_printed.items()),
        corrected=tuple(near(run, one, "off", what) for run, one in turned.items()),
        correction="for the same function of minus the margin. The printed loss rises with the margin, so descent "
        "moves W away from the optimal tokens.",
    )


def near(run: str, one: xarray.Dataset, name: str, what: str) -> Criterion:
    """Ask for a small final direction error."""
    return below(f"{what}, {run},", _last(one) if name == "off" else number(one, name), paths.CLOSE)


def _last(one: xarray.Dataset) -> Number:
    return number(one.isel(snapshot=-1), "off")


def _of_loss(summaries: Datasets, loss: str) -> dict[str, xarray.Dataset]:
    return {run: one for run, one in paths.started(summaries).items() if one.attrs["loss"] == loss}


def _few(ends: Datasets) -> str:
    """Return why there are too few texts to decide, or nothing if every run has enough."""
    fewest = min((int(one["texts"]) for one in ends.values()), default=0)
    return f"{fewest} feasible texts from drawn starts are too few; at least {paths.TEXTS} are needed." * (
        fewest < paths.TEXTS
    )


def _left(exact: Datasets) -> str:
    """Say for every run how many texts have unserved inputs."""
    parts = (f"{int(one['left'])} of {int(one['texts'])} ({run})" for run, one in exact.items())
    return f"Texts with such inputs: {', '.join(parts)}"
