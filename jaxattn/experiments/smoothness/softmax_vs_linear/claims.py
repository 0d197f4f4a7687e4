"""Whether softmax attention is more stable than linear attention, by the scale of the embeddings (causal LM)."""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.smoothness.softmax_vs_linear import scales
from jaxattn.experiments.smoothness.softmax_vs_linear.measure import BEYOND, LOSSES, STEPS
from jaxattn.experiments.smoothness.softmax_vs_linear.scales import Correction
from jaxattn.statistics import bootstrap, derive_key, proportion, variables
from jaxattn.study.claims import Claim, Datasets, Judgement, Setting, Source
from jaxattn.study.claims.criteria import Number, above, below
from jaxattn.study.estimates import estimated, exact, mean, number, share

_PAPER = "withdrawn ICLR 2024 submission on attention and SVM in causal language modelling"
_STABILITY = "section 1, last contribution: softmax attention is more stable than linear attention"
# The paper says that it compares Lipschitz constants, but gives none for linear attention; steps and divergence are our
# reading of "stable".
_STABLE_CURVATURE, _STABLE_STEPS = (Source(_PAPER, _STABILITY, setting) for setting in (Setting.PROXY, Setting.OURS))
# Fixed beforehand: a statement about any text may have exceptions in one of five, like the search for steps; a
# statement about some texts must be true for more than half; and the logarithm of a ratio of equal numbers.
_MOST, _HALF, _EQUAL = 4 / 5, 0.5, 0.0
# Texts in which no word has two successors, and the others.
_KINDS = {"plain": "texts in which no word has two successors", "forked": "texts in which some word has two successors"}
_EXACT = {
    "squared": "The squared risk with embeddings s E is s^2 times that with E at s^2 W, for both attentions: all "
    "steps scale as s^-6, and their ratio does not depend on s.",
    "logistic": "With linear attention the score is linear in W and unbounded.",
}


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Compare the two attentions over scales and losses."""
    run = runs["texts"]
    softmax, linear = (run.sel(attention=name, drop=True) for name in ("softmax", "linear"))
    curvature = run[["at_zero", "drawn", "path"]].to_dataarray("where").max("where")
    # With linear attention the curvature is largest at 0: the squared risk is quadratic, and the logistic loss, of a
    # score linear in W, has its largest curvature where the score is 0.
    at_least, largest = curvature.sel(attention="softmax", drop=True), linear["at_zero"]
    at_most = np.maximum(at_least, run["bound"])
    logs = xarray.Dataset(
        {
            "curvature": curvature,
            "at_zero": run["at_zero"],
            "bound": run["bound"],
            "smoother": largest / at_least,
            "smoother_surely": largest / at_most,
        }
    ).map(np.log10)
    larger = softmax["step"] > linear["step"]
    # If both are at the end of the search interval, neither counts as larger, and either may be.
    perhaps = larger | run["beyond"].all("attention") | run["below"].all("attention")
    of_kinds = {}
    for kind, chosen in (("forked", run["forked"]), ("plain", ~run["forked"])):
        if chosen.any():
            of_kinds[f"larger_{kind}"] = share(larger[chosen.values])
            of_kinds[f"larger_perhaps_{kind}"] = share(perhaps[chosen.values])
    estimates = estimated(
        run,
        key,
        **{name: mean(logs[name]) for name in ("curvature", "at_zero", "bound", "smoother")},
        larger=share(larger),
        larger_perhaps=share(perhaps),
        smaller=share(softmax["step"] < linear["step"]),
        exceeds=share(run["exceeds"]),
        rougher_proved=share(at_least > largest),
        smoother_proved=share(run["bound"] < largest),
        beyond=share(run["beyond"]),
        below=exact(run["below"].sum("seed")),
        again=exact(run["again"].sum("seed")),
        **of_kinds,
    )
    surely = bootstrap(logs["smoother_surely"].values, derive_key(key))
    # For every text, for the figure and for the thresholds found.
    each = {f"each_{name}": run[name] for name in ("at_zero", "step", "beyond")}
    arrays = variables({"smoother_surely": (("scale", "loss"), surely)}) | _spared(run["exceeds"])
    return {"texts": estimates.assign({**arrays, **each, "forked": run["forked"]})}


def _spared(exceeds: xarray.DataArray) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """Return, among the texts in which linear attention exceeds its start, the share in which softmax does not.

    If there are no such texts, the share is NaN.
    """
    softmax, linear = (exceeds.sel(attention=name).values for name in ("softmax", "linear"))
    parts = np.full((3, *linear.shape[1:]), np.nan)
    for place in np.argwhere(linear.any(axis=0)):
        at = (slice(None), *place)
        parts[at] = proportion(~softmax[at][linear[at]])[:3]
    names = ("spared", "spared_low", "spared_high")
    return {name: (("scale", "loss"), part) for name, part in zip(names, parts, strict=True)}


def _over_scales(one: xarray.Dataset, name: str) -> list[Number]:
    return [number(one, name, scale=s) for s in one["scale"].values]


def _at_scales(one: xarray.Dataset, name: str, label: str) -> dict[str, Number]:
    scale = one["scale"].values
    return {f"{label}, scale {float(s):g}": each for s, each in zip(scale, _over_scales(one, name), strict=True)}


def _shares(one: xarray.Dataset, kind: str = "") -> list[Number]:
    """Return at each scale the share of texts with a larger step; its upper bound includes all undecided texts."""
    pairs = zip(_over_scales(one, f"larger{kind}"), _over_scales(one, f"larger_perhaps{kind}"), strict=True)
    return [Number(surely.mean, surely.low, perhaps.high) for surely, perhaps in pairs]


def _steps(runs: Datasets, loss: str) -> Judgement:
    """The step must be larger in most texts at every scale; as corrected, from some scale, or for one kind of text."""
    summary = runs["texts"]
    one, scale = summary.sel(loss=loss), summary["scale"].values
    label = "share of texts in which the largest step is"
    measured = _at_scales(one, "larger", f"{label} larger with softmax")
    measured |= _at_scales(one, "smaller", f"{label} smaller with softmax")
    asked = "share of texts with a larger step with softmax"
    corrections = [scales.from_some_scale(asked, scale, _shares(one), _MOST)]
    for name, kind in _KINDS.items():
        if f"larger_{name}" in one:
            shares = _over_scales(one, f"larger_{name}")
            measured[f"larger with softmax, {kind}, smallest over scales"] = min(shares)
            measured[f"larger with softmax, {kind}, largest over scales"] = max(shares)
            of_kind = scales.least(_shares(one, f"_{name}"))
            criterion = above(f"share of {kind} with a larger step with softmax, smallest over scales,", of_kind, _MOST)
            sentence = f"only for {kind}, at every scale: in at least {of_kind.low:.0%} of them."
            corrections.append(Correction(sentence, (criterion,)))
    for name in one["attention"].values:
        each = one.sel(attention=name)
        found = ~(each["each_beyond"].values.astype(bool))
        if found.any():
            edges = np.log10((each["each_step"] * each["each_at_zero"] / 2).values[found])
            edge = f"log10 of the largest step over 2 / curvature at 0, {name}, median over those found"
            measured[edge] = Number.exact(float(np.median(edges)))
        measured |= _at_scales(each, "beyond", f"share of texts in which all steps tried descend, {name}")
    correction = scales.best(corrections)
    return Judgement(
        numbers=measured,
        stated=(above(f"{asked}, smallest over scales,", scales.least(_shares(one)), _MOST),),
        corrected=correction.criteria,
        correction=correction.sentence,
        remark=f"{_steps_remark(one)} {_EXACT[loss]} {_sums(summary)}",
    )


def _steps_remark(one: xarray.Dataset) -> str:
    """Say what a larger step is, and where the search is inconclusive."""
    again, ends = int(one.sel(attention="softmax")["again"].sum()), int(one["below"].sum())
    kept, cases = int(one.attrs["kept"]), int(one.attrs["kept"]) * one.sizes["scale"]
    perhaps = float((one["larger_perhaps"] - one["larger"]).max())
    kinds = [
        f" For {kind} the share with a larger step with softmax is {float(share.min()):.0%} to "
        f"{float(share.max()):.0%}."
        for name, kind in _KINDS.items()
        if (share := one.get(f"larger_{name}")) is not None
    ]
    return (
        f"A step is allowed if none of {STEPS} steps from W = 0 raises the risk, and the same is true for all smaller "
        f"steps tried. If all steps tried descend with both attentions, up to {BEYOND:g} times 2 / curvature at 0, we "
        f"do not know which step is larger. This is the case in up to {perhaps:.0%} of the {kept} texts at a scale, "
        f"and widens the intervals of the criteria.{''.join(kinds)} After a first look, the two kinds of texts were "
        f"distinguished, and shares were used instead of a mean ratio. With softmax, in {again} of {cases} cases some "
        f"larger steps descend again beyond the first that does not; in {ends} of all cases the threshold is below "
        "all steps tried."
    )


def _sums(summary: xarray.Dataset) -> str:
    """Say how the comparison changes if linear attention is normalized differently."""
    return (
        "Linear attention is a mean, with logits divided by the number of words V. As a sum its curvature is V^2 "
        f"times as large, and its largest step smaller by the same factor, {2 * np.log10(summary.attrs['words']):.2f} "
        "decades."
    )


def _curvature(runs: Datasets, loss: str) -> Judgement:
    """The constant with linear attention must exceed any with softmax; as corrected, from some scale."""
    summary = runs["texts"]
    one, scale = summary.sel(loss=loss), summary["scale"].values
    measured = _at_scales(one, "smoother", "log10 of the largest curvature, linear over softmax")
    measured |= _at_scales(
        one, "rougher_proved", "share of texts in which softmax is proved to have a larger curvature"
    )
    most = one.isel(scale=int(np.argmax(one["smoother_proved"].values)))
    proved = number(most, "smoother_proved")
    measured["share of texts in which it is proved to have a smaller one, largest over scales"] = proved
    # The curve of the upper ends crosses first.
    first, middle, last = (scales.crossing(scale, one[f"smoother{end}"].values) for end in ("_high", "", "_low"))
    if middle is not None:
        ends = (first, last) if first is not None and last is not None and first < last else (middle, middle)
        measured["scale at which the curvatures are equal"] = Number(middle, *ends)
    # The curvature found with softmax is a lower bound, so this ratio is an upper bound; the proved bound gives a lower
    # one.
    found, surely = _over_scales(one, "smoother"), _over_scales(one, "smoother_surely")
    ratios = [Number(up.mean, down.low, up.high) for up, down in zip(found, surely, strict=True)]
    asked = "log10 of the Lipschitz constants, linear over softmax"
    of_mean = scales.least(ratios)
    summed = 2 * np.log10(summary.attrs["words"])
    of_sum = Number(of_mean.mean + summed, of_mean.low + summed, of_mean.high + summed)
    conventions = [
        above(f"{asked}, smallest over scales, linear attention as a {word}", each, _EQUAL)
        for word, each in (("mean", of_mean), ("sum", of_sum))
    ]
    differs = (
        "Linear attention can be a mean over the words, or a sum; the source does not say which. As a mean this "
        f"logarithm is {of_mean.mean:.3g}, as a sum {of_sum.mean:.3g}, and the statement holds for one of them only."
    )
    correction = scales.from_some_scale(asked, scale, ratios, _EQUAL)
    start = scales.from_where(scale, one["smoother_low"].values > _EQUAL)
    from_start = "has no smaller curvature at the largest scale"
    if start is not None:
        from_start = f"has a smaller curvature from scale {start:g} on"
    opposite = [f"{float(s):g}" for s in scale[one["rougher_proved_low"].values > _HALF]]
    return Judgement(
        numbers=measured,
        stated=conventions,
        corrected=correction.criteria,
        correction=correction.sentence,
        undecided=differs if len({one.outcome for one in conventions}) > 1 else "",
        remark="With linear attention the constant is exactly the curvature at 0. With softmax the largest curvature "
        "found, at 0, at drawn W and along descent, is a lower bound, and that of jaxattn.language.smoothness "
        f"an upper bound; the intervals of the criteria reach from one to the other. At {len(opposite)} of "
        f"{len(scale)} scales the opposite is proved for most texts, a larger curvature with softmax: "
        f"{', '.join(opposite) or 'none'}. According to the lower bounds, softmax {from_start}; "
        f"according to its upper bound, it has one in {proved.mean:.0%} of the texts, largest over scales. "
        f"{_sums(summary)}",
    )


def _divergence(runs: Datasets) -> Judgement:
    """With softmax fewer texts must exceed their start, few of those with linear; as corrected, for one loss."""
    summary = runs["texts"]
    measured: dict[str, Number] = {}
    corrections, reversals = [], []
    for loss in (str(name) for name in summary["loss"].values):
        one = summary.sel(loss=loss)
        shares = []
        for name in ("softmax", "linear"):
            each = one.sel(attention=name)
            measured |= _at_scales(each, "exceeds", f"share of texts, {loss} loss, {name}")
            shares.append(_over_scales(each, "exceeds"))
        # Both shares are over the same texts: the extreme ends bound the difference whatever the dependence.
        more = [a.apart_from(b) for a, b in zip(*shares, strict=True)]
        reversals += [
            f" With the {loss} loss the opposite is true at scale {float(s):g}, by the intervals: {a.mean:.0%} of the "
            f"texts with softmax, {b.mean:.0%} with linear attention."
            for s, a, b in zip(one["scale"].values, *shares, strict=True)
            if a.low > b.high
        ]
        cases = [each for each in _over_scales(one, "spared") if not np.isnan(each.mean)]
        spared = scales.least(cases) if cases else Number.exact(np.nan)
        criteria = (
            below(
                f"share that exceeds, {loss} loss, softmax minus linear, largest over scales,", scales.most(more), 0.0
            ),
            above(
                f"share of texts that exceed with linear but not with softmax, {loss} loss, smallest over scales,",
                spared,
                _HALF,
            ),
        )
        sentence = (
            f"only for the {loss} loss: at every scale, at least {spared.low:.0%} of the texts that exceed their "
            "start with linear attention do not with softmax."
        )
        corrections.append(Correction(sentence, criteria))
    correction = scales.best(corrections)
    return Judgement(
        numbers=measured,
        stated=tuple(criterion for one in corrections for criterion in one.criteria),
        corrected=correction.criteria,
        correction=correction.sentence,
        remark="The numbers are shares of texts for which some of the steps tried takes the risk above its start "
        f"within {STEPS} steps. At every scale the interval with softmax must be below that with linear "
        "attention, and most of the texts that exceed their start with linear attention must not with "
        f"softmax.{''.join(reversals)}",
    )


CLAIMS = (
    *(
        Claim(
            f"softmax-vs-linear:{loss}",
            _STABLE_STEPS,
            f"Descent on the {loss} risk allows larger steps with softmax attention than with linear attention, for "
            "any text and any scale of its embeddings.",
            partial(_steps, loss=loss),
        )
        for loss in LOSSES
    ),
    *(
        Claim(
            f"softmax-vs-linear:curvature-{loss}",
            _STABLE_CURVATURE,
            f"The gradient of the {loss} risk has a smaller Lipschitz constant with softmax attention than with "
            "linear attention, for any scale of the embeddings.",
            partial(_curvature, loss=loss),
        )
        for loss in LOSSES
    ),
    Claim(
        "softmax-vs-linear:divergence",
        _STABLE_STEPS,
        "If a large step takes descent with linear attention above the risk of its start, it does not with softmax.",
        _divergence,
    ),
)
