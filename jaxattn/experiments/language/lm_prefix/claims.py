"""Attention to the prefix, read by a fixed head: estimates of where starts end, and judges of the two theorems."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
import xarray
from jaxtyping import Float, PRNGKeyArray

from jaxattn.experiments.language import PAPER
from jaxattn.experiments.language.arrival import NEAR, elsewhere, late, outcomes
from jaxattn.experiments.language.lm_prefix import examples
from jaxattn.statistics import Estimate, bootstrap, derive_key, pooled, variables
from jaxattn.study.claims import (
    Claim,
    Criterion,
    Datasets,
    Judgement,
    Number,
    Setting,
    Source,
    above,
    below,
    counts_of,
    number,
    too_short,
)

# Fixed beforehand: thresholds for the mean 1 - cos and the mean margin ratio along the exact gradient direction; for
# the growth of the norm with plain steps, where theory predicts 1; for the attention that selects a token; and for the
# number of feasible texts.
CLOSE, _MARGIN, _GROWS, SELECTS, _TEXTS = 0.02, 0.95, 0.5, 0.999, 10
# The largest step of Theorem 3.14 in units of 1 / L; that of Theorem 3.15 is half as large.
_EQUAL, _HALF = 1.0, 0.5
_KEPT = "the solution of the kept tokens"


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate for each run how many starts converge to the solution, and how closely.

    The starts of one text are not independent, so whole texts are resampled.

    Args:
        datasets: of `measure`.
        key: of the bootstrap.

    Returns:
        For each run: the numbers of `texts` and `starts`; the numbers of starts that have `arrived`, have `left`
        prefixes unserved, are `moving`, or are `unexplained`, as defined in `arrival.outcomes`, and the number of the
        last that are `astray`, near the solution of what they keep; the number that have `selected` all optimal tokens;
        the shares `share`, `share_left` and `share_selected`. Means over the snapshots: `off`, and `reached`, the same
        for starts that leave nothing unserved (for all if there are none). Other means: `margin`, `off_kept` and
        `margin_kept`; `drift`, the change of `off` in the last two decades of steps where nothing is left unserved;
        `rate`, the slope of the norm of W over that of W_mm in the logarithm of the steps, over the last decade. And
        the largest `within`.

    Raises:
        ValueError: a run of which no start was kept.
    """
    if empty := [run for run, one in datasets.items() if not one.sizes["seed"]]:
        raise ValueError(f"lm-prefix: expected a kept seed in each run, found none in {empty}")
    keys = jax.random.split(key, len(datasets))
    return {run: _estimated(one, k) for (run, one), k in zip(datasets.items(), keys, strict=True)}


def _estimated(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    found, text = outcomes(one)._asdict(), one["text"].values
    if not np.all((one["attention"] >= 0) & (one["attention"] <= 1 + 1e-9)):
        raise ValueError(f"attention: expected probabilities, found {one['attention'].values}")
    selected = one["attention"].values >= SELECTS
    hits = {"share": found["arrived"], "share_left": found["left"], "share_selected": selected}
    values = {name: one[name].values for name in ("off", "margin", "off_kept", "margin_kept")}
    values |= {"drift": np.where(found["left"], 0.0, late(one)), "rate": _rate(one)}
    keys = jax.random.split(key, len(hits) + len(values))
    estimates: dict[str, tuple[tuple[str, ...], Estimate]] = {}
    for (name, each), k in zip(hits.items(), keys[: len(hits)], strict=True):
        estimates[name] = (), pooled(each, text, k)
    for (name, each), k in zip(values.items(), keys[len(hits) :], strict=True):
        estimates[name] = ("snapshot",)[: each.ndim - 1], bootstrap(_of_texts(each, text), k)
    rest = ~found["left"] | found["left"].all()
    estimates["reached"] = ("snapshot",), bootstrap(_of_texts(one["off"].values[rest], text[rest]), derive_key(key))
    counts = {name: int(each.sum()) for name, each in (found | {"selected": selected}).items()}
    counts["astray"] = int((found["unexplained"] & (one["off_kept"].values <= NEAR)).sum())
    counts |= {"texts": len(np.unique(text)), "starts": len(text)}
    numbers = {name: ((), value) for name, value in (counts | {"within": float(one["within"].max())}).items()}
    return xarray.Dataset(variables(estimates) | numbers, {"snapshot": one["snapshot"].values}, one.attrs)


def _rate(one: xarray.Dataset) -> Float[np.ndarray, " seed"]:
    """Return the slope of `growth` in the logarithm of the steps, over the last decade."""
    steps = one["snapshot"].values
    first = int(np.flatnonzero(steps * 10 >= steps[-1])[0])
    return (one["growth"].values[:, -1] - one["growth"].values[:, first]) / np.log(steps[-1] / steps[first])


def _of_texts(values: Float[np.ndarray, "seed *along"], text: np.ndarray) -> Float[np.ndarray, "text *along"]:
    """Return the mean over the starts of each text."""
    return np.stack([values[text == each].mean(axis=0) for each in np.unique(text)])


def _judge_equal(summaries: Datasets) -> Judgement:
    """Theorem 3.14, on the runs with equal scores."""
    return _theorem(_with(summaries, delta=False), {}, _EQUAL)


def _judge_close(summaries: Datasets) -> Judgement:
    """Theorem 3.15: no start may end elsewhere if the scores are arbitrarily close, including equal ones."""
    close = _with(summaries, delta=True)
    if not _by(close, "exact direction") or not _by(close, "plain"):
        return Judgement.withheld(
            "Expected runs with close scores, along the exact gradient direction and with plain steps."
        )
    return _theorem(_with(summaries, delta=False), close, _HALF)


def _theorem(equal: dict[str, xarray.Dataset], close: dict[str, xarray.Dataset], longest: float) -> Judgement:
    """No start may end elsewhere; along the exact direction all must come near, and plain steps must approach."""
    runs = equal | close
    exact, plain = (_by(runs, rule) for rule in ("exact direction", "plain"))
    if undecided := _undecided(_by(equal, "exact direction"), _by(equal, "plain"), *runs.values()):
        return Judgement.withheld(undecided)
    within = max(float(one["within"]) for one in plain.values())
    if within > longest:
        return Judgement.withheld(
            f"A plain step is {within:.4g} / L, but the claim is about steps of at most {longest:g} / L."
        )
    measured: dict[str, Number] = {}
    for run, one in runs.items():
        measured[f"share of starts at the solution, {run}"] = number(one, "share")
        measured[f"share of starts that leave prefixes unserved, {run}"] = number(one, "share_left")
        measured[f"1 - cos at the end, {run}"] = number(one.isel(snapshot=-1), "off")
        measured[f"margin ratio at the end, {run}"] = number(one, "margin")
        if run in plain:
            measured[f"slope of ||W|| / ||W_mm|| in log k, {run}"] = number(one, "rate")
    goes = (
        *(below(f"1 - cos with {_KEPT}, {run},", number(one, "off_kept"), CLOSE) for run, one in exact.items()),
        *(above(f"margin ratio, {_KEPT}, {run},", number(one, "margin_kept"), _MARGIN) for run, one in exact.items()),
        *(below(f"late change of 1 - cos, {run},", number(one, "drift"), 0) for run, one in plain.items()),
        # Steps along the exact direction have a constant length, so only plain ones show whether the norm grows.
        *(
            above(f"slope of ||W|| / ||W_mm|| in log k, {run},", number(one, "rate"), _GROWS)
            for run, one in _by(close, "plain").items()
        ),
    )
    left = Number.exact(sum(int(one["left"]) for one in _by(equal, "plain").values()))
    # A start that fails with close scores may not fail with closer ones.
    missing = sum(int(one["starts"]) - int(one["arrived"]) for one in _by(close, "exact direction").values())
    astray, open_ = (sum(int(one[name]) for one in exact.values()) for name in ("astray", "unexplained"))
    return _judgement(
        runs,
        measured,
        stated=(
            elsewhere(
                "starts that leave prefixes unserved (interval: up to all that have not converged), equal scores, "
                "exact direction",
                _by(equal, "exact direction"),
            ),
            below("starts that leave prefixes unserved, equal scores, plain steps", left, 0),
            *([below("starts that may need a smaller delta", Number(0, 0, missing), 0)] if close else ()),
            *goes,
        ),
        corrected=(
            *goes,
            below(
                "starts with unserved prefixes that are at most the margin behind, exact direction (interval: those "
                f"near {_KEPT}, to all)",
                Number(astray, astray, open_),
                0,
            ),
        ),
        correction="W converges in direction to the max-margin solution of the prefixes that descent serves "
        "(selects the optimal token of), or, if the other scores differ, of all tokens that it selects. The "
        "optimal token of every other prefix is behind by more than 1, the margin of the served prefixes, along that "
        "solution, so that its share of the gradient vanishes.",
        remark=f"Each text has {_numbers(runs, 'starts')} starts per run. {_left(runs)}. {_moving(runs)}. {astray} "
        "starts are near the solution of what they keep although an unserved prefix is at most 1 behind along "
        "it; more steps may still serve a prefix that is exactly 1 behind. The exact direction takes "
        "normalized steps along the path of small plain ones, without their logarithmic slowness. The plain "
        f"steps are at most {within:.2g} / L. The late change is over their last two decades, for starts that "
        "leave no prefix unserved.",
    )


def _judge_selection(summaries: Datasets) -> Judgement:
    """From every start each prefix must end with almost all its attention on its optimal token."""
    exact, plain = (_by(summaries, rule) for rule in ("exact direction", "plain"))
    if undecided := _undecided(exact, plain, *summaries.values()):
        return Judgement.withheld(undecided)
    measured = {
        f"share of starts that select all optimal tokens, {run}": number(one, "share_selected")
        for run, one in summaries.items()
    }
    # Unserved prefixes never select their optimal token; for others that have not done so yet, it is open.
    never = sum(int(one["left"]) for one in exact.values())
    not_yet = sum(int(one["starts"]) - int(one["selected"]) for one in exact.values())
    what = f"starts without an attention of {SELECTS:g} to every optimal token, exact direction"
    return _judgement(
        summaries,
        measured,
        stated=(below(what, Number(never, never, max(never, not_yet)), 0),),
        remark=f"{not_yet} of {sum(int(one['starts']) for one in exact.values())} starts along the exact direction do "
        f"not select all optimal tokens; for {never} of them a prefix remains unserved. {_left(exact)}. Plain "
        "steps are not judged: with them the norm of W grows only logarithmically, and so does the attention.",
    )


def _undecided(exact: Datasets, plain: Datasets, *runs: xarray.Dataset) -> str:
    """Return why these runs decide nothing, or nothing if they do."""
    if not exact or not plain or not any(one.attrs["scale"] for one in exact.values()):
        return (
            "Expected runs from drawn starts along the exact gradient direction and one with plain steps; one of them "
            "is missing."
        )
    fewest = min(int(one["texts"]) for one in runs)
    if fewest < _TEXTS:
        return f"{fewest} feasible texts are too few; at least {_TEXTS} are needed."
    return too_short(min(int(one["snapshot"][-1]) for one in runs))


def _judgement(
    runs: Datasets,
    measured: Mapping[str, Number],
    stated: tuple[Criterion, ...],
    corrected: tuple[Criterion, ...] = (),
    correction: str = "",
    remark: str = "",
) -> Judgement:
    expected = {label: 0.0 if label.startswith(("1 -", "share of starts that leave")) else 1.0 for label in measured}
    return Judgement(
        numbers=measured,
        expected=expected,
        counts=counts_of(runs),
        stated=stated,
        corrected=corrected,
        correction=correction,
        remark=remark,
    )


def _by(runs: Datasets, rule: str) -> dict[str, xarray.Dataset]:
    return {run: one for run, one in runs.items() if one.attrs["rule"] == rule}


def _with(runs: Datasets, delta: bool) -> dict[str, xarray.Dataset]:
    """Return the runs with close scores, or with equal ones."""
    return {run: one for run, one in runs.items() if (one.attrs["delta"] > 0) == delta}


def _left(runs: Datasets) -> str:
    """Say for every run how many starts leave prefixes unserved."""
    parts = [f"{int(one['left'])} of {int(one['starts'])} ({run})" for run, one in runs.items() if int(one["left"])]
    return f"Starts that leave prefixes unserved: {', '.join(parts) or 'none'}{', none in other runs' * bool(parts)}"


def _moving(runs: Datasets) -> str:
    """Say how many starts have not converged to a solution."""
    parts = [f"{int(one['moving'])} ({run})" for run, one in runs.items() if int(one["moving"])]
    return f"Starts that are not yet near a solution: {', '.join(parts) or 'none'}"


def _numbers(runs: Datasets, name: str) -> str:
    return " or ".join(map(str, sorted({int(one.attrs[name]) for one in runs.values()})))


CLAIMS = (
    Claim(
        "lm-prefix:equal",
        Source(PAPER, "Theorem 3.14, Assumption 3.10 (equal scores)", Setting.PROXY),
        "If the optimal token of every input is unique and all its other tokens have equal scores, descent with a "
        "step of at most 1 / L from any start converges in direction to the hard-margin solution.",
        _judge_equal,
        examples.of_equal,
    ),
    Claim(
        "lm-prefix:close",
        Source(PAPER, "Theorem 3.15 (close scores)", Setting.PROXY),
        "For any start there is a sufficiently small delta such that, if the scores of non-optimal tokens are within "
        "delta and the step is at most 1 / (2 L), the norm of W diverges and its direction converges to the "
        "hard-margin solution.",
        _judge_close,
        examples.of_close,
    ),
    Claim(
        "lm-prefix:selection",
        Source(PAPER, "section 1 (token separation and selection), Theorems 3.14 and 3.15", Setting.PROXY),
        "Training separates the tokens of every prefix: from any start, its attention converges to the optimal token.",
        _judge_selection,
        examples.of_selection,
    ),
)
