"""Attention to the prefix, read by a fixed head: estimates of where starts end, and the two theorems."""

from __future__ import annotations

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.language import PAPER
from jaxattn.experiments.language.arrival import NEAR, elsewhere, outcomes
from jaxattn.experiments.language.every_run import all_above, all_below, labelled
from jaxattn.statistics import bootstrap, derive_key, pooled, variables
from jaxattn.study.claims import LEAST_STEPS, Datasets, Judgement, Needs, Setting, Source, claim, family
from jaxattn.study.claims.criteria import Number, below
from jaxattn.study.estimates import Estimator, estimated, exact, mean

# Fixed beforehand: thresholds for the mean 1 - cos and the mean margin ratio along the exact gradient direction; for
# the growth of the norm with plain steps, where theory predicts 1; for the attention that selects a token; and for the
# number of feasible texts.
_CLOSE, _MARGIN, _GROWS, SELECTS, _TEXTS = 0.02, 0.95, 0.5, 0.999, 10
# The largest step of Theorem 3.14 in units of 1 / L; that of Theorem 3.15 is half as large.
_EQUAL, _HALF = 1.0, 0.5
# Scores are equal, or within this of each other.
_DELTA = 0.01
_KEPT = "the solution of the kept tokens"
# The exact gradient direction, and plain steps.
EXACT, PLAIN = "scale_free_gd", "gd"
_NEEDS = Needs(_TEXTS, LEAST_STEPS)


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate how many starts converge to the solution, and how closely.

    The starts of one text are not independent, so whole texts are resampled.

    Returns:
        The numbers of `texts` and `starts`; the numbers of starts that have `arrived`, have `left` prefixes unserved,
        are `moving`, `unexplained` or `opposed`, as defined in `arrival.outcomes`, and the number of the last that are
        `astray`, near the solution of what they keep; the number that have `selected` all optimal tokens; the shares
        `share`, `share_left` and `share_selected`. Means over the snapshots: `off`, and `reached`, the same for starts
        that leave nothing unserved (for all if there are none). Other means: `margin`, `off_kept` and `margin_kept`;
        `drift`, the change of `off` in the last two decades of steps where nothing is left unserved; `rate`, the slope
        of the norm of W over that of W_mm in the logarithm of the steps, over the last decade. And the largest
        `within`.
    """
    text, ends, steps = run["text"].values, outcomes(run), run["snapshot"].values
    selected = run["attention"].values >= SELECTS
    counts = {name: int(hits.sum()) for name, hits in (ends._asdict() | {"selected": selected}).items()}
    counts["astray"] = int((ends.unexplained & (run["off_kept"].values <= NEAR)).sum())
    counts |= {"texts": len(np.unique(text)), "starts": len(text)}
    decade, two_decades = (int(np.flatnonzero(steps * part >= steps[-1])[0]) for part in (10, 100))
    growth, off = run["growth"].values, run["off"].values
    rate = (growth[:, -1] - growth[:, decade]) / np.log(steps[-1] / steps[decade])
    drift = np.where(ends.left, 0.0, off[:, -1] - off[:, two_decades])
    rest = ~ends.left | ends.left.all()
    reached = bootstrap(_of_texts(run["off"][rest], text[rest]).values, derive_key(key))
    return estimated(
        run,
        key,
        share=_share(ends.arrived, text),
        share_left=_share(ends.left, text),
        share_selected=_share(selected, text),
        **{name: mean(_of_texts(run[name], text)) for name in ("off", "margin", "off_kept", "margin_kept")},
        drift=mean(_of_texts(run["text"].copy(data=drift), text)),
        rate=mean(_of_texts(run["text"].copy(data=rate), text)),
        within=exact(run["within"].max()),
        **{name: exact(count) for name, count in counts.items()},
    ).assign(variables({"reached": (("snapshot",), reached)}))


def _share(hits: np.ndarray, text: np.ndarray) -> Estimator:
    """Return the share of starts, resampled by text."""

    def parts(key: PRNGKeyArray) -> dict[str, np.ndarray]:
        return dict(zip(("", "_low", "_high", "_error"), pooled(hits, text, key), strict=True))

    return Estimator(xarray.DataArray(0.0), parts)


def _of_texts(values: xarray.DataArray, text: np.ndarray) -> xarray.DataArray:
    """Return the mean over the starts of each text, with the texts in place of the seeds."""
    means = [values.values[text == each].mean(axis=0) for each in np.unique(text)]
    return values.isel(seed=slice(len(means))).copy(data=np.stack(means))


def _theorem(equal: Datasets, close: Datasets, longest: float) -> Judgement:
    """No start may end elsewhere; along the exact direction all must come near, and plain steps must approach."""
    runs = {**equal, **close}
    exact_runs, plain = _by(runs, EXACT), _by(runs, PLAIN)
    slope = "slope of ||W|| / ||W_mm|| in log k"
    labels = {
        "share of starts at the solution": "share",
        "share of starts that leave prefixes unserved": "share_left",
        "1 - cos at the end": "off",
        "margin ratio at the end": "margin",
    }
    numbers = labelled(runs, labels) | labelled(plain, {slope: "rate"})
    converges = [
        *all_below(f"1 - cos with {_KEPT}", exact_runs, "off_kept", _CLOSE),
        *all_above(f"margin ratio, {_KEPT}", exact_runs, "margin_kept", _MARGIN),
        *all_below("late change of 1 - cos", plain, "drift", 0),
        # Steps along the exact direction have a constant length, so only plain ones show whether the norm grows.
        *all_above(slope, _by(close, PLAIN), "rate", _GROWS),
    ]
    left = Number.exact(_total(_by(equal, PLAIN), "left"))
    # A start that fails with close scores may not fail with closer ones.
    missing = _total(_by(close, EXACT), "starts") - _total(_by(close, EXACT), "arrived")
    starts = " or ".join(map(str, sorted({int(run.attrs["weights.starts"]) for run in runs.values()})))
    moving = [f"{int(run['moving'])} ({name})" for name, run in runs.items() if int(run["moving"])]
    within = max(float(run["within"]) for run in plain.values())
    too_long = f"A plain step is {within:.4g} / L, but the claim is about steps of at most {longest:g} / L."
    return Judgement(
        stated=[
            elsewhere(
                "starts that leave prefixes unserved (interval: up to all that have not converged), equal scores, "
                "exact direction",
                _by(equal, EXACT),
            ),
            below("starts that leave prefixes unserved, equal scores, plain steps", left, 0),
            *([below("starts that may need a smaller delta", Number(0, 0, missing), 0)] if close else ()),
            *converges,
        ],
        remark=f"Each text has {starts} starts per run. {_left(runs)}. Starts that are not yet near a solution: "
        f"{', '.join(moving) or 'none'}. The exact direction takes "
        "normalized steps along the path of small plain ones, without their logarithmic slowness. The plain "
        f"steps are at most {within:.2g} / L. The late change is over their last two decades, for starts that "
        "leave no prefix unserved.",
        numbers=numbers,
        expected={label: 0.0 if label.startswith(("1 -", "share of starts that leave")) else 1.0 for label in numbers},
        undecided=_few_texts(runs) or (too_long if within > longest else ""),
    )


@claim(
    "lm-prefix:equal",
    Source(PAPER, "Theorem 3.14, Assumption 3.10 (equal scores)", Setting.PROXY),
    "If the optimal token of every input is unique and all its other tokens have equal scores, descent with a "
    "step of at most 1 / L from any start converges in direction to the hard-margin solution.",
    needs=_NEEDS,
)
def _equal(runs: Datasets) -> Judgement:
    return _theorem(family(runs, {"data.head.delta": 0.0}), {}, _EQUAL)


@claim(
    "lm-prefix:close",
    Source(PAPER, "Theorem 3.15 (close scores)", Setting.PROXY),
    "For any start there is a sufficiently small delta such that, if the scores of non-optimal tokens are within "
    "delta and the step is at most 1 / (2 L), the norm of W diverges and its direction converges to the "
    "hard-margin solution.",
    needs=_NEEDS,
)
def _close(runs: Datasets) -> Judgement:
    """No start may end elsewhere if the scores are arbitrarily close, including equal ones."""
    equal, close = (family(runs, {"data.head.delta": delta}) for delta in (0.0, _DELTA))
    return _theorem(equal, close, _HALF)


@claim(
    "lm-prefix:served",
    Source("jaxattn", "what descent on a bounded loss converges to from any start", Setting.OURS),
    "From any start W converges in direction to the max-margin solution of the prefixes that descent serves (selects "
    "the optimal token of), or, if the other scores differ, of all tokens that it selects. The optimal token of every "
    "other prefix is behind by more than 1, the margin of the served prefixes, along that solution.",
    needs=_NEEDS,
)
def _served(runs: Datasets) -> Judgement:
    exact_runs = family(runs, {"optimizer": EXACT})
    astray, unexplained = (_total(exact_runs, name) for name in ("astray", "unexplained"))
    labels = {f"1 - cos with {_KEPT}": "off_kept", f"margin ratio, {_KEPT}": "margin_kept"}
    return Judgement(
        [
            *all_below(f"1 - cos with {_KEPT}", exact_runs, "off_kept", _CLOSE),
            *all_above(f"margin ratio, {_KEPT}", exact_runs, "margin_kept", _MARGIN),
            below(
                "starts with unserved prefixes that are at most the margin behind, exact direction (interval: those "
                f"near {_KEPT}, to all)",
                Number(astray, astray, unexplained),
                0,
            ),
        ],
        remark=f"{_left(exact_runs)}. Starts near the solution of what they keep although an unserved prefix is at "
        f"most 1 behind along it: {astray}. More steps may still serve a prefix that is exactly 1 behind.",
        numbers=labelled(exact_runs, labels),
        undecided=_few_texts(exact_runs),
    )


@claim(
    "lm-prefix:selection",
    Source(PAPER, "section 1 (token separation and selection), Theorems 3.14 and 3.15", Setting.PROXY),
    "Training separates the tokens of every prefix: from any start, its attention converges to the optimal token.",
    needs=_NEEDS,
)
def _selection(runs: Datasets) -> Judgement:
    exact_runs = family(runs, {"optimizer": EXACT})
    # Unserved prefixes never select their optimal token; for others that have not done so yet, it is open.
    never, starts = _total(exact_runs, "left"), _total(exact_runs, "starts")
    not_yet = starts - _total(exact_runs, "selected")
    what = f"starts without an attention of {SELECTS:g} to every optimal token, exact direction"
    numbers = labelled(runs, {"share of starts that select all optimal tokens": "share_selected"})
    return Judgement(
        stated=[below(what, Number(never, never, max(never, not_yet)), 0)],
        remark=f"{not_yet} of {starts} starts along the exact direction do "
        f"not select all optimal tokens; for {never} of them a prefix remains unserved. {_left(exact_runs)}. Plain "
        "steps are not judged: with them the norm of W grows only logarithmically, and so does the attention.",
        numbers=numbers,
        expected=dict.fromkeys(numbers, 1.0),
        undecided=_few_texts(runs),
    )


def _few_texts(runs: Datasets) -> str:
    fewest = min(int(run["texts"]) for run in runs.values())
    return f"{fewest} feasible texts are too few; at least {_TEXTS} are needed." if fewest < _TEXTS else ""


def _by(runs: Datasets, optimizer: str) -> dict[str, xarray.Dataset]:
    return {name: run for name, run in runs.items() if run.attrs["optimizer"] == optimizer}


def _total(runs: Datasets, count: str) -> int:
    return sum(int(run[count]) for run in runs.values())


def _left(runs: Datasets) -> str:
    """Say for every run how many starts leave prefixes unserved."""
    parts = [f"{int(run['left'])} of {int(run['starts'])} ({name})" for name, run in runs.items() if int(run["left"])]
    return f"Starts that leave prefixes unserved: {', '.join(parts) or 'none'}{', none in other runs' * bool(parts)}"


CLAIMS = (_equal, _close, _served, _selection)
