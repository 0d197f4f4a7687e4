"""Is softmax attention more stable than linear attention, by curvature and by the largest step that descends?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.smoothness.softmax_vs_linear.measure import BEYOND, LINEAR, LOSSES, STEPS, measure
from jaxattn.statistics import bootstrap, derive_key, proportion, variables
from jaxattn.study.claims import Claim, Datasets, Experiment, Judgement, Judgements, Setting, Source
from jaxattn.study.claims.criteria import Criterion, Number, Outcome, above, below, together
from jaxattn.study.estimates import estimated, exact, mean, number, share
from jaxattn.study.style import page, palette
from jaxattn.study.style.labels import beside

_PAPER = "withdrawn ICLR 2024 submission on attention and SVM in causal language modelling"
_STABILITY = "section 1, last contribution: softmax attention is more stable than linear attention"
# The paper says that it compares Lipschitz constants, but gives none for linear attention; steps and divergence are our
# reading of "stable".
_STABLE_CURVATURE, _STABLE_STEPS = (Source(_PAPER, _STABILITY, setting) for setting in (Setting.PROXY, Setting.OURS))
# Fixed beforehand: a statement about any text has no exception; one about some texts must be true for more than half;
# and the logarithm of a ratio of equal numbers.
_NONE, _HALF, _EQUAL = 0, 0.5, 0.0
_PLAIN = "texts in which no word has two successors"
# The source does not say which linear attention it means, so the statement is about both; as corrected, about one.
_AS = {linear: f"linear attention as a {linear}" for linear in LINEAR}
_ONLY_AS = {
    "mean": "only if linear attention is divided by the number of candidates.",
    "sum": "only if linear attention is not divided by the number of candidates.",
}
_EXACT = {
    "squared": "The squared risk with embeddings s E is s^2 times that with E at s^2 W, for all attentions: all "
    "steps scale as s^-6, and their ratio does not depend on s.",
    "logistic": "With linear attention the score is linear in W and unbounded.",
}
_SUMS = (
    "Linear attention can be a mean over the candidates or a sum, and the source does not say which. Its curvature as "
    "a sum is V^2 times that as a mean for V candidates, and its largest step smaller by the same factor."
)


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Compare softmax with both linear attentions over scales and losses.

    Returns:
        `smoother`, the mean log10 of the ratio of the largest curvatures, linear over softmax, and `smoother_surely`,
        with the proved bound for softmax; the shares of texts `rougher_proved`, with a larger curvature with softmax,
        and `larger`, with a larger step with softmax; `spared`, among the texts in which linear attention exceeds its
        start, the share in which softmax does not, NaN if there are none. Over loss and linear attention: `exceptions`,
        the number of texts with a step that is not larger with softmax at some scale, and `open`, of those others in
        which it is unknown for some scale, as all or no steps tried descend with both; `exceptions_plain` and
        `open_plain`, of texts in which no word has two successors.
    """
    run = runs["texts"]
    softmax = run.sel(attention="softmax", drop=True)
    linear = run.sel(attention=list(LINEAR)).rename(attention="linear")
    curvature = softmax[["at_zero", "drawn", "path"]].to_dataarray("where").max("where")
    # With linear attention the curvature is largest at 0: the squared risk is quadratic, and the logistic loss, of a
    # score linear in W, has its largest curvature where the score is 0.
    largest, at_most = linear["at_zero"], np.maximum(curvature, run["bound"])
    logs = xarray.Dataset({"smoother": largest / curvature, "smoother_surely": largest / at_most}).map(np.log10)
    larger = softmax["step"] > linear["step"]
    # Both at the same end of the search interval.
    unknown = (softmax["beyond"] & linear["beyond"]) | (softmax["below"] & linear["below"])
    excepted = (~larger & ~unknown).any("scale")
    undecided = unknown.any("scale") & ~excepted
    plain = ~run["forked"]
    estimates = estimated(
        run,
        key,
        smoother=mean(logs["smoother"]),
        larger=share(larger),
        exceeds=share(run["exceeds"]),
        rougher_proved=share(curvature > largest),
        exceptions=exact(excepted.sum("seed")),
        open=exact(undecided.sum("seed")),
        exceptions_plain=exact((excepted & plain).sum("seed")),
        open_plain=exact((undecided & plain).sum("seed")),
        plain=exact(plain.sum()),
        beyond=share(run["beyond"]),
        again=exact(run["again"].sum("seed")),
    )
    surely = bootstrap(logs["smoother_surely"].values, derive_key(key))
    arrays = variables({"smoother_surely": (("scale", "loss", "linear"), surely)})
    return {"texts": estimates.assign(arrays | _spared(softmax["exceeds"], linear["exceeds"]))}


def _spared(softmax: xarray.DataArray, linear: xarray.DataArray) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    parts = np.full((3, *linear.shape[1:]), np.nan)
    for place in np.argwhere(linear.values.any(axis=0)):
        at = (slice(None), *place)
        parts[at] = proportion(~softmax.values[at[:-1]][linear.values[at]])[:3]
    names = ("spared", "spared_low", "spared_high")
    return {name: (("scale", "loss", "linear"), part) for name, part in zip(names, parts, strict=True)}


def _by_scale(one: xarray.Dataset, name: str, label: str = "") -> dict[str, Number]:
    return {f"{label}, scale {scale:g}": number(one, name, scale=scale) for scale in one["scale"].values.tolist()}


def best(corrections: Mapping[str, Sequence[Criterion]]) -> dict[str, Any]:
    """Return the first correction whose criteria are met; if there is none, the first unclear one; else the first.

    So it fails only if every one of them is clearly broken. They are fixed beforehand.
    """
    order = (Outcome.MET, Outcome.UNCLEAR, Outcome.BROKEN)
    sentence = min(corrections, key=lambda one: order.index(together(corrections[one])))
    return {"corrected": corrections[sentence], "correction": sentence}


def _exceptions(one: xarray.Dataset, kind: str, texts: str) -> list[Criterion]:
    """Ask for each linear attention that no text is an exception, up to those in which the larger step is unknown."""
    label = f"{texts} with a step that is not larger with softmax at some scale (interval: up to the unknown)"
    criteria = []
    for linear, name in _AS.items():
        n, unknown = (int(one[f"{count}{kind}"].sel(linear=linear)) for count in ("exceptions", "open"))
        criteria.append(below(f"{label}, {name}", Number(n, n, n + unknown), _NONE))
    return criteria


def _steps(runs: Datasets, loss: str) -> Judgement:
    """No text may be an exception; as corrected, for one kind of texts or one linear attention."""
    one = runs["texts"].sel(loss=loss)
    numbers: dict[str, Number] = {}
    for linear, name in _AS.items():
        label = f"share of texts in which the largest step is larger with softmax, {name}"
        numbers |= _by_scale(one.sel(linear=linear), "larger", label)
    for attention in one["attention"].values:
        label = f"share of texts in which all steps tried descend, {_AS.get(attention, attention)}"
        numbers |= _by_scale(one.sel(attention=attention), "beyond", label)
    stated = _exceptions(one, "", "texts")
    for_plain = {f"only for {_PLAIN}.": _exceptions(one, "_plain", _PLAIN)}
    kept, cases = int(one.attrs["kept"]), int(one.attrs["kept"]) * one.sizes["scale"]
    again = int(one.sel(attention="softmax")["again"].sum())
    return Judgement(
        stated,
        **best(for_plain | _for_one(stated)),
        numbers=numbers,
        remark=f"Of {kept} texts {int(one['plain'])} are {_PLAIN}. A step is allowed if none of {STEPS} steps from "
        "W = 0 raises the risk, and the same is true for all smaller steps tried. If all steps tried descend with both "
        f"attentions, up to {BEYOND:g} times 2 / curvature at 0, we do not know which step is larger. With softmax, in "
        f"{again} of {cases} cases some larger steps descend again beyond the first that does not. {_EXACT[loss]} "
        f"{_SUMS}",
    )


def _for_one(stated: Sequence[Criterion]) -> dict[str, list[Criterion]]:
    """Return the corrections to one linear attention, by their sentences, from a criterion of each."""
    return {_ONLY_AS[linear]: [criterion] for linear, criterion in zip(LINEAR, stated, strict=True)}


def _curvature(runs: Datasets, loss: str) -> Judgement:
    """The constant with linear attention must exceed any with softmax; as corrected, for one linear attention."""
    one = runs["texts"].sel(loss=loss)
    numbers: dict[str, Number] = {}
    stated = []
    for linear, name in _AS.items():
        each = one.sel(linear=linear)
        found = _by_scale(each, "smoother", f"log10 of the largest curvature, linear over softmax, {name}")
        label = f"share of texts in which softmax is proved to have a larger curvature, {name}"
        numbers |= found | _by_scale(each, "rougher_proved", label)
        # The curvature found with softmax is a lower bound, so this ratio is an upper bound; the proved bound gives a
        # lower one.
        surely = _by_scale(each, "smoother_surely").values()
        ratios = [(up.mean, low.low, up.high) for up, low in zip(found.values(), surely, strict=True)]
        label = f"log10 of the Lipschitz constants, linear over softmax, smallest over scales, {name}"
        stated.append(above(label, Number(*map(min, zip(*ratios, strict=True))), _EQUAL))
    return Judgement(
        stated,
        **best(_for_one(stated)),
        numbers=numbers,
        remark="With linear attention the constant is exactly the curvature at 0. With softmax the largest curvature "
        "found, at 0, at drawn W and along descent, is a lower bound, and that of jaxattn.language.smoothness "
        f"an upper bound; the intervals of the criteria reach from one to the other. {_SUMS}",
    )


def _divergence(runs: Datasets) -> Judgement:
    """With softmax fewer texts must exceed their start, few of those with linear; as corrected, for one case."""
    numbers: dict[str, Number] = {}
    criteria: dict[tuple[str, str], list[Criterion]] = {}
    for loss in LOSSES:
        one = runs["texts"].sel(loss=loss)
        softmax = _by_scale(one.sel(attention="softmax"), "exceeds", f"share of texts, {loss} loss, softmax")
        numbers |= softmax
        for linear, name in _AS.items():
            each, of_case = one.sel(attention=linear, linear=linear), f"{loss} loss, {name}"
            exceeds = _by_scale(each, "exceeds", f"share of texts, {of_case}")
            numbers |= exceeds
            # Both shares are over the same texts: the extreme ends bound the difference whatever the dependence.
            more = [a.apart_from(b) for a, b in zip(softmax.values(), exceeds.values(), strict=True)]
            cases = [spared for spared in _by_scale(each, "spared").values() if not np.isnan(spared.mean)]
            spared = Number(*map(min, zip(*cases, strict=True))) if cases else Number.exact(np.nan)
            label = f"share that exceeds, {of_case}, softmax minus linear, largest over scales,"
            of_spared = f"share of texts that exceed with linear but not with softmax, {of_case}, smallest over scales,"
            criteria[loss, linear] = [
                below(label, Number(*map(max, zip(*more, strict=True))), 0.0),
                above(of_spared, spared, _HALF),
            ]
    of_loss = {
        f"only for the {loss} loss.": [c for linear in LINEAR for c in criteria[loss, linear]] for loss in LOSSES
    }
    of_linear = {_ONLY_AS[linear]: [c for loss in LOSSES for c in criteria[loss, linear]] for linear in LINEAR}
    return Judgement(
        [criterion for of_case in criteria.values() for criterion in of_case],
        **best(of_loss | of_linear),
        numbers=numbers,
        remark="The numbers are shares of texts for which some of the steps tried takes the risk above its start "
        f"within {STEPS} steps. At every scale the interval with softmax must be below that with linear "
        "attention, and most of the texts that exceed their start with linear attention must not with "
        f"softmax. {_SUMS}",
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

_COLOURS = dict(zip(LOSSES, (palette.TEAL, palette.WINE), strict=True))
_DASHES = dict(zip(LINEAR, ("-", "--"), strict=True))


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw over the scale the ratio of the curvatures (a), and the share of texts with a larger step (b)."""
    summary = summaries["texts"]
    verdicts = {name.partition(":")[2]: one.verdict for name, one in judgements.items()}
    with page.style():
        figure = page.full(3.8)
        top, below = (figure.add_subfigure(row) for row in figure.add_gridspec(2, 1, height_ratios=(0.25, 2.6)))
        curvatures, steps = below.subplots(1, 2)
        _curves(curvatures, summary, "smoother_surely", "smoother")
        curvatures.axhline(0, color=palette.INK, linewidth=0.7)
        beside(curvatures, "equal", (summary["scale"].values[0], 0), (0, 2), ha="left", va="bottom")
        curvatures.set_ylabel("log10 of the largest curvature,\nlinear / softmax")
        _curves(steps, summary, "larger", "larger")
        steps.set(ylabel="share of texts with a larger step\nwith softmax", ylim=(-0.03, 1.03))
        for axes, words, prefix in (
            (curvatures, "(a) smaller curvature", "curvature-"),
            (steps, "(b) larger step", ""),
        ):
            found = [f"{loss}: {verdicts[prefix + loss]}" for loss in LOSSES]
            axes.set(title="\n".join([f"{words} with softmax", *found]), xlabel="scale $s$ of the embeddings")
            axes.set_xscale("log", base=2)
            axes.set_xticks(summary["scale"].values, [f"{s:g}" for s in summary["scale"].values])
            axes.minorticks_off()
        colours = {f"{loss} loss": colour for loss, colour in _COLOURS.items()}
        dashes = {f"linear attention as a {linear}": dash for linear, dash in _DASHES.items()}
        page.key(top, colours, dashes, loc="center", ncols=4)
        found = ", ".join(f"{verdict} in {count}" for verdict, count in Counter(verdicts.values()).items())
        figure.suptitle(f"Softmax more stable than linear attention, in {len(verdicts)} readings: {found}")
        page.add_counts(
            figure,
            summaries,
            "Curves: means over texts. Bands: (a) from the ratio with the proved bound of softmax's curvature to that "
            "with the largest found, with 95 % bootstrap intervals; (b) 95 % intervals of the share. A step is allowed "
            f"if it and all smaller ones tried raise the risk in none of {STEPS} steps from $W = 0$. If all steps "
            "tried are allowed with both attentions, neither counts as larger.",
            counted="texts",
        )
    return figure


def _curves(axes: Axes, summary: xarray.Dataset, low: str, high: str) -> None:
    """Draw an estimate of every loss and linear attention; its band reaches from the interval of one to another's."""
    for loss, colour in _COLOURS.items():
        for linear, dash in _DASHES.items():
            one = summary.sel(loss=loss, linear=linear)
            curve = (one[name].values for name in (high, f"{low}_low", f"{high}_high"))
            page.band(axes, one["scale"].values, *curve, color=colour, linestyle=dash, marker="o", markersize=3)


EXPERIMENT = Experiment(measure, claims=CLAIMS, summarize=summarize, draw=draw)
