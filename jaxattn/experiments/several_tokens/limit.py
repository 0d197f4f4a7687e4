"""What the experiments on several selected tokens share: distances from the descriptions of W, and the limit of W."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import jax
import numpy as np
import xarray
from jaxtyping import Float, PRNGKeyArray

from jaxattn.statistics import Estimate, bootstrap, proportion
from jaxattn.study.claims import EXCLUDED, LEAST_SEEDS, TRAINED, Claim, Datasets, Judgement, Setting, Source
from jaxattn.study.claims.criteria import Criterion, Number, above, below, between
from jaxattn.study.estimates import number
from jaxattn.study.measuring.growth import AT_REST
from jaxattn.study.style import palette

# The runs that the published selection keeps, and all of the first 500, with the suffix of their summaries.
PARTS = {"published": "", "every": ", no selection"}
# Distances of a matrix from itself can differ by this much through rounding.
ROUNDING = 1e-9
# W is compared with these, from the nearest to the farthest according to the paper.
RANKED = ("W_SVMeq", "W_mm", "W_1token")
# Why the fitted W_SVMeq is not compared with W_mm, for the remarks.
IDENTITY = (
    "If W_fin is taken from the run itself, W_SVMeq is the projection of W on the span of W_fin and W_mm, which are "
    "orthogonal, so it is at least as near to any W as W_mm: an identity, which is not judged."
)
# For each of `descriptions.SOLUTIONS`: its label, colour, dashes and marker.
LOOKS = {
    "W_SVMeq": (r"$W_{\mathrm{fin}} + C\,W_{\mathrm{mm}}$", palette.TEAL, "-", "o"),
    "W_mm": (r"$W_{\mathrm{mm}}$", palette.WINE, "--", "s"),
    "W_1token": ("single token", palette.AMBER, "-.", "^"),
    "W_fin": (r"$W_{\mathrm{fin}}$, fitted to $W$", palette.EXCLUDED, ":", ""),
}
# For below the figures that draw these.
FITTED = (
    r"$W_{\mathrm{fin}}$ is fitted to $W$: its sum with $C\,W_{\mathrm{mm}}$ is by construction no farther than "
    r"$W_{\mathrm{mm}}$."
)
_SOURCE = Source("arXiv 2308.16898", "general SVM of nonlinear heads (eq. 9; the poster)", Setting.OURS)
# Derived from the key of the other estimates of a run.
_OWN = 3
# Fixed beforehand: the largest share of runs that may have stopped growing if the norm is to diverge. Under the
# published rule the mean exponent was 0.2 although half of the runs had stopped.
_AT_MOST = 0.05
# Where no run selects several tokens, nothing is decided.
NONE_SELECTS = Criterion("runs that select several tokens", Number.exact(math.nan))
# The range of an exponent of -2, as in rate.
_SQUARE = (-2.2, -1.8)
# The rounding error of 1 - cos in double precision for equal directions.
_SAME = 1e-16


def ahead(run: xarray.Dataset) -> Float[np.ndarray, "whole 2"]:
    """Return the final distances of W_mm and W_1token from W, minus that of W_SVMeq with the predicted finite part."""
    others = run["off"].sel(solution=list(RANKED[1:]), seed=run["whole_seed"].values).isel(snapshot=-1).values
    return others - run["foretold"].values[:, None]


def counts_of_part(run: xarray.Dataset, part: str) -> dict[str, int]:
    """Return attempted, kept and excluded seeds of one of PARTS; those of the second have the prefix `every_`."""
    prefix = "every_" if part == "every" else ""
    names = (name for name in ("attempted", "kept", *EXCLUDED) if prefix + name in run.attrs)
    return {name: int(run.attrs[prefix + name]) for name in names}


def number_or_nan(summary: xarray.Dataset, name: str, **index: int) -> Number:
    """Return an estimate, at an index along its axes; NaN if too few seeds were kept for it."""
    return number(summary.isel(index), name) if name in summary else Number.exact(math.nan)


def estimates(run: xarray.Dataset, key: PRNGKeyArray) -> dict[str, tuple[tuple[str, ...], Estimate]]:
    """Estimate how W moves in the second half of training, for kept seeds that select several tokens.

    Returns:
        `growth`, p in ||W|| ~ k^p; `rest`, the share of seeds with an exponent below AT_REST; `approach`, the change of
        the logarithm of (1 - cos(W, W_mm)) ||W||, which is negative where 1 - cos falls faster than 1 / ||W||;
        `power`, p in 1 - cos ~ ||W||^p, the ratio of the mean changes of both logarithms, if the norm grows; and
        `nearer`, the share of seeds in which 1 - cos falls. Empty for fewer than LEAST_SEEDS seeds or for one snapshot.
    """
    several, steps = run["several"].values, run["snapshot"].values
    middle = int(np.abs(steps - steps[-1] / 2).argmin())
    if several.sum() < LEAST_SEEDS or steps[middle] == steps[-1]:
        return {}
    ends = run.isel(seed=several, snapshot=[middle, -1])
    rise = np.diff(np.log(ends["size"].values))[:, 0]
    fall = np.diff(np.log(np.maximum(ends["off"].sel(solution="W_mm").values, _SAME)))[:, 0]
    growth = rise / math.log(steps[-1] / steps[middle])
    keys = jax.random.split(jax.random.fold_in(key, _OWN))
    found = {
        "growth": ((), bootstrap(growth, keys[0])),
        "rest": ((), proportion(growth < AT_REST)),
        "approach": ((), bootstrap(fall + rise, keys[1])),
        "nearer": ((), proportion(fall < 0)),
    }
    if rise.mean() > 0:
        power = fall.mean() / rise.mean()
        # To first order the ratio of two means is a mean.
        found["power"] = ((), bootstrap(power + (fall - power * rise) / rise.mean(), jax.random.fold_in(keys[1], 1)))
    return found


def claims(experiment: str, head: str, *names: str, ratios: str = "") -> tuple[Claim, ...]:
    """Return three claims on the named runs, or on all, under a nonlinear head; `ratios` is added to a remark."""

    def judged(rule: Callable[[Datasets], Judgement], runs: Datasets) -> Judgement:
        several = {name: run for name in names or runs if (run := runs[name]).attrs["several"]}
        return rule(several)

    statements = {
        "norm": ("the norm of W diverges", _judge_norm),
        "direction": ("W converges to the direction of W_mm", partial(_judge_direction, ratios)),
        "form": (
            "W is W_fin + ||W|| W_mm / ||W_mm|| with a finite W_fin, so that 1 - cos(W, W_mm) falls like 1 / ||W||^2",
            _judge_form,
        ),
    }
    where = f"Where descent under a nonlinear head ({head}) selects several tokens,"
    return tuple(
        Claim(f"{experiment}:{name}", _SOURCE, f"{where} {statement}.", partial(judged, rule), TRAINED)
        for name, (statement, rule) in statements.items()
    )


def _judge_norm(several: Datasets) -> Judgement:
    """In every run the norm must grow, and nearly no seed may have stopped growing."""
    counted = [run for run in several.values() if "rest" in run]
    seeds = sum(run.attrs["several"] for run in counted)
    resting = sum(round(float(run["rest"]) * run.attrs["several"]) for run in counted)
    share = Number(*map(float, proportion(np.arange(seeds) < resting)[:3])) if seeds else Number.exact(math.nan)
    grows = [above(f"{name}: p in ||W|| ~ k^p", number_or_nan(run, "growth"), AT_REST) for name, run in several.items()]
    return Judgement(
        [*grows, below(f"share of the {seeds} seeds whose norm no longer grows", share, _AT_MOST)],
        remark="The numbers are over the second half of training, for seeds that select several tokens. Rest: the "
        f"share of seeds with an exponent below {AT_REST}; a norm that grows like the logarithm of the steps has an "
        "exponent of about 0.1.",
        numbers=_numbers(several, "growth", "rest"),
    )


def _judge_direction(ratios: str, several: Datasets) -> Judgement:
    return Judgement(
        [
            below(f"{name}: change of log((1 - cos) ||W||)", number_or_nan(run, "approach"), -ROUNDING)
            for name, run in several.items()
        ]
        or [NONE_SELECTS],
        remark="The numbers are over the second half of training, for seeds that select several tokens. The criterion "
        "asks that 1 - cos(W, W_mm) falls faster than 1 / ||W||. Nearer: the share of seeds that are nearer to W_mm at "
        f"the end than half way.{ratios}",
        numbers=_numbers(several, "approach", "nearer"),
    )


def _judge_form(several: Datasets) -> Judgement:
    return Judgement(
        [
            between(f"{name}: p in 1 - cos ~ ||W||^p", number_or_nan(run, "power"), *_SQUARE)
            for name, run in several.items()
        ]
        or [NONE_SELECTS],
        remark="The numbers are over the second half of training, for seeds that select several tokens: the ratio of "
        "the mean changes of log(1 - cos) and log ||W||. Above -2, the part of W across W_mm still grows.",
        numbers=_numbers(several, "power", "growth"),
        expected={f"{name}, power": -2.0 for name, run in several.items() if "power" in run},
    )


def _numbers(runs: Datasets, *names: str) -> dict[str, Number]:
    return {f"{run}, {name}": number_or_nan(one, name) for run, one in runs.items() for name in names if name in one}
