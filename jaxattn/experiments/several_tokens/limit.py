"""The general SVM of nonlinear heads: the norm of W diverges, and its direction tends to W_mm."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.several_tokens.alignment import ROUNDING, number_or_nan
from jaxattn.statistics import Estimate, bootstrap, proportion
from jaxattn.study.claims import LEAST_SEEDS, TRAINED, Claim, Datasets, Judgement, Setting, Source
from jaxattn.study.claims.criteria import Criterion, Number, above, below, between
from jaxattn.study.measuring.growth import AT_REST

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
    """Return three claims on runs under a nonlinear head.

    Args:
        experiment: its id.
        head: in words.
        names: of the runs; all if there are none.
        ratios: a remark on the ratios inside the selected sets.
    """

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
