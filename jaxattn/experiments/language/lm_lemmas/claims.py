"""The second paper's lemmas on its loss: gradient, slope of the logistic function, basic bounds."""

from __future__ import annotations

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.language import PAPER
from jaxattn.study.claims import Datasets, Judgement, Kind, Setting, Source, claim
from jaxattn.study.claims.criteria import Number, below
from jaxattn.study.estimates import estimated, exact

# Fixed beforehand: relative differences of two forms of a gradient up to this are rounding.
SAME = 1e-10
# Fixed beforehand: a ratio may exceed 1 by rounding.
_ROUNDING = 1e-9
# The largest second derivative of the logistic function, hence the sharp constant of Lemma 3.12.
SHARP = 1 / (6 * np.sqrt(3))


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Return the largest differences, slopes and ratios over all seeds, and the means of the ratios' logarithms."""
    most = {f"{part}_most": exact(run[part].max("seed")) for part in ("printed", "mended", "slope", "share")}
    return estimated(run, key, share=exact(run["share"].mean("seed")), **most)


@claim(
    "lm-lemmas:gradient",
    Source(PAPER, "Lemma 3.11, Definition 3.6", Setting.EXACT),
    "For every real label b the gradient of g(<f, h> b) is g(s) (1 - g(s)) b (<f o A_i, h> - <f, h> <f, A_i>), "
    "with s = <f, h>.",
)
def _gradient(runs: Datasets) -> Judgement:
    printed, mended = (runs["texts"][f"{form}_most"] for form in ("printed", "mended"))
    unit = np.abs(printed["label"].values) == 1
    what = "largest relative difference from the gradient"
    numbers = {
        f"{what} {form}, b = {float(b):g}": float(errors.sel(label=b))
        for form, errors in (("as printed", printed), ("with b inside g'", mended))
        for b in errors["label"]
    }
    return Judgement(
        stated=[below(f"{what}, as printed, all labels,", Number.exact(float(printed.max())), SAME)],
        corrected=[
            below(f"{what}, with b inside g', all labels,", Number.exact(float(mended.max())), SAME),
            below(f"{what}, as printed, labels +-1,", Number.exact(float(printed.values[unit].max())), SAME),
        ],
        correction="with g(s b) (1 - g(s b)) in place of g(s) (1 - g(s)). The printed form is right for labels +-1, "
        "since g' is even.",
        numbers=numbers,
        expected=dict.fromkeys(numbers, 0.0),
    )


@claim(
    "lm-lemmas:slope",
    Source(PAPER, "Lemma 3.12", Setting.EXACT),
    "The derivative of the logistic function has the Lipschitz constant 1.",
    kind=Kind.CHECK,
)
def _slope(runs: Datasets) -> Judgement:
    what, largest = "largest |g'(x) - g'(x')| / |x - x'|", float(runs["texts"]["slope_most"].max())
    return Judgement(
        stated=[below(what, Number.exact(largest), 1.0)],
        remark=f"The sharp constant is the largest |g''|, 1 / (6 sqrt 3) = {SHARP:.4g}.",
        expected={what: 1.0},
    )


@claim(
    "lm-lemmas:bounds",
    Source(PAPER, "section 3.3", Setting.PROXY),
    "If all norms are at most R, R >= 4, each of the seven basic functions has its listed Lipschitz constant.",
    kind=Kind.CHECK,
)
def _bounds(runs: Datasets) -> Judgement:
    summary = runs["texts"]
    largest = {str(name): float(10 ** summary["share_most"].sel(bound=name).max()) for name in summary["bound"].values}
    average = summary["share"].mean("radius")
    slack = ", ".join(f"{-float(average.sel(bound=name)):.2g} ({name})" for name in largest)
    return Judgement(
        stated=[
            below(f"largest difference over its bound, {name},", Number.exact(share), 1 + _ROUNDING)
            for name, share in largest.items()
        ],
        remark="Three letters of the list are not defined in the paper: we take beta as the smaller alpha of the "
        "two, the smallest choice that makes the bounds true, R_f as that of the paper's own diag f, and c as "
        f"<f, h> - b. Mean decades between the largest difference of a text and its bound: {slack}.",
        numbers={f"largest difference over its bound, {name}": share for name, share in largest.items()},
    )


CLAIMS = (_gradient, _slope, _bounds)
