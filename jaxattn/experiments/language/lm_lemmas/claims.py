"""Judges of the second paper's lemmas on its loss: gradient, slope of the logistic function, basic bounds."""

from __future__ import annotations

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.language import PAPER
from jaxattn.experiments.language.lm_lemmas import examples
from jaxattn.statistics import bootstrap, variables
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
    too_few,
)

# Fixed beforehand: relative differences of two forms of a gradient up to this are rounding.
SAME = 1e-10
# Fixed beforehand: a ratio may exceed 1 by rounding.
_ROUNDING = 1e-9
# The largest second derivative of the logistic function, hence the sharp constant of Lemma 3.12.
SHARP = 1 / (6 * np.sqrt(3))


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Gather the largest differences, slopes and ratios over all seeds, and the means of the last two.

    Args:
        datasets: of `measure`; one run.
        key: of the bootstrap.

    Raises:
        ValueError: not one run, no kept seed, or negative differences or slopes.
    """
    if len(datasets) != 1:
        raise ValueError(f"lm-lemmas: expected one run, found {sorted(datasets)}")
    ((run, one),) = datasets.items()
    if not one.sizes["seed"]:
        raise ValueError(f"lm-lemmas: expected a kept seed, found counts {counts_of(datasets)}")
    for name in ("printed", "mended", "slope"):
        if (least := float(one[name].min())) < 0:
            raise ValueError(f"{name}: expected sizes of at least 0, found {least:.3g}")
    keys = jax.random.split(key)
    arrays = variables(
        {
            "slope": (("distance",), bootstrap(one["slope"].values, keys[0])),
            "share": (("radius", "bound"), bootstrap(one["share"].values, keys[1])),
        }
    )
    most = {f"{name}_most": one[name].max("seed") for name in ("printed", "mended", "slope", "share")}
    axes = {name: one[name].values for name in ("label", "distance", "radius", "bound")}
    return {run: xarray.Dataset(arrays | most, axes, one.attrs)}


def _judge_gradient(summaries: Datasets) -> Judgement:
    """The printed gradient must be that of the loss for every label; as corrected, with the label inside g'."""
    (one,) = summaries.values()
    unit = np.abs(one["label"].values) == 1
    printed, mended = one["printed_most"], one["mended_most"]
    what = "largest relative difference from the gradient"
    measured = {f"{what} as printed, b = {float(b):g}": float(printed.sel(label=b)) for b in one["label"]}
    measured |= {f"{what} with b inside g', b = {float(b):g}": float(mended.sel(label=b)) for b in one["label"]}
    return _judgement(
        one,
        measured,
        dict.fromkeys(measured, 0.0),
        stated=(below(f"{what}, as printed, all labels,", Number.exact(float(printed.max())), SAME),),
        corrected=(
            below(f"{what}, with b inside g', all labels,", Number.exact(float(mended.max())), SAME),
            below(f"{what}, as printed, labels +-1,", Number.exact(float(printed.values[unit].max())), SAME),
        ),
        correction="with g(s b) (1 - g(s b)) in place of g(s) (1 - g(s)). The printed form is right for labels +-1, "
        "since g' is even.",
    )


def _judge_slope(summaries: Datasets) -> Judgement:
    """No drawn pair may exceed the constant 1."""
    (one,) = summaries.values()
    largest = float(one["slope_most"].max())
    return _judgement(
        one,
        {"largest |g'(x) - g'(x')| / |x - x'|": largest},
        {"largest |g'(x) - g'(x')| / |x - x'|": 1.0},
        stated=(below("largest |g'(x) - g'(x')| / |x - x'|", Number.exact(largest), 1.0),),
        remark=f"The sharp constant is the largest |g''|, 1 / (6 sqrt 3) = {SHARP:.4g}.",
    )


def _judge_bounds(summaries: Datasets) -> Judgement:
    """No difference of a basic function may exceed its bound."""
    (one,) = summaries.values()
    largest = {str(name): float(10 ** one["share_most"].sel(bound=name).max()) for name in one["bound"].values}
    mean = one["share"].mean("radius")
    slack = ", ".join(f"{-float(mean.sel(bound=name)):.2g} ({name})" for name in one["bound"].values)
    return _judgement(
        one,
        {f"largest difference over its bound, {name}": share for name, share in largest.items()},
        {},
        stated=tuple(
            below(f"largest difference over its bound, {name},", Number.exact(share), 1 + _ROUNDING)
            for name, share in largest.items()
        ),
        remark="Three letters of the list are not defined in the paper: we take beta as the smaller alpha of the "
        "two, the smallest choice that makes the bounds true, R_f as that of the paper's own diag f, and c as "
        f"<f, h> - b. Mean decades between the largest difference of a text and its bound: {slack}.",
    )


def _judgement(
    one: xarray.Dataset,
    numbers: dict[str, float],
    expected: dict[str, float],
    stated: tuple[Criterion, ...],
    corrected: tuple[Criterion, ...] = (),
    correction: str = "",
    remark: str = "",
) -> Judgement:
    return Judgement(
        numbers=numbers,
        expected=expected,
        counts=counts_of({str(one.attrs["run"]): one}),
        stated=stated,
        corrected=corrected,
        correction=correction,
        undecided=too_few(int(one.attrs["kept"])),
        remark=remark,
    )


CLAIMS = (
    Claim(
        "lm-lemmas:gradient",
        Source(PAPER, "Lemma 3.11, Definition 3.6", Setting.EXACT),
        "For every real label b the gradient of g(<f, h> b) is g(s) (1 - g(s)) b (<f o A_i, h> - <f, h> <f, A_i>), "
        "with s = <f, h>.",
        _judge_gradient,
        examples.of_gradient,
    ),
    Claim(
        "lm-lemmas:slope",
        Source(PAPER, "Lemma 3.12", Setting.EXACT),
        "The derivative of the logistic function has the Lipschitz constant 1.",
        _judge_slope,
        examples.of_slope,
    ),
    Claim(
        "lm-lemmas:bounds",
        Source(PAPER, "section 3.3", Setting.PROXY),
        "If all norms are at most R, R >= 4, each of the seven basic functions has its listed Lipschitz constant.",
        _judge_bounds,
        examples.of_bounds,
    ),
)
