"""Verdicts on the stability of softmax attention beside that of linear attention."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray

from jaxattn.study.claims import Claim, Verdict, concluded, counts_of, read, too_few

_SOURCE = (
    "withdrawn ICLR 2024 submission on attention and SVM in causal language modelling, remark that softmax attention "
    "is more stable than linear attention (recalled)"
)


def claims_of(summary: xarray.Dataset) -> list[Claim]:
    """Return the claims on steps, on curvature, and on descents that leave their start behind.

    Args:
        summary: of `softmax_vs_linear.summarize`.
    """
    losses = [str(loss) for loss in summary["loss"].values]
    steps = [_step_claim(summary, loss) for loss in losses]
    return [*steps, *(_curvature_claim(summary, loss) for loss in losses), _divergence_claim(summary)]


def from_where(scale: np.ndarray, above: np.ndarray) -> float | None:
    """Return the smallest scale from which on all are above; None if the last is not."""
    below = np.flatnonzero(~above)
    first = int(below[-1]) + 1 if len(below) else 0
    return float(scale[first]) if first < len(scale) else None


def crossing(scale: np.ndarray, ratio: np.ndarray) -> float | None:
    """Return the scale at which a ratio is 0 for the last time, between two by their logarithms; None if nowhere."""
    changes = np.flatnonzero(np.sign(ratio[1:]) != np.sign(ratio[:-1]))
    if not len(changes):
        return None
    k = int(changes[-1])
    x = np.log(scale)
    return float(np.exp(x[k] + (x[k + 1] - x[k]) * ratio[k] / (ratio[k] - ratio[k + 1])))


def _judged(scale: np.ndarray, above: np.ndarray) -> tuple[Verdict, str]:
    """Return the verdict on what should be above a bound at every scale, and why."""
    start = from_where(scale, above)
    if start is None:
        return Verdict.FAILS, "It is not at the largest scale."
    if start > scale[0]:
        return Verdict.CORRECTED, f"It is from scale {start:g} on only."
    return Verdict.HOLDS, "It is."


def _at_scales(one: xarray.Dataset, name: str, label: str) -> dict[str, tuple[float, float, float]]:
    return {f"{label}, scale {float(s):g}": read(one.sel(scale=s), name) for s in one["scale"].values}


def _step_claim(summary: xarray.Dataset, loss: str) -> Claim:
    one, scale = summary.sel(loss=loss), summary["scale"].values
    softmax = one.sel(attention="softmax")
    label = "share of texts in which the largest step is"
    measured = _at_scales(one, "larger", f"{label} larger with softmax")
    measured |= _at_scales(one, "smaller", f"{label} smaller with softmax")
    kinds = {
        "larger_plain": "texts in which no word has two successors",
        "larger_forked": "texts in which some word has two successors",
    }
    holds_for = []
    for name, kind in kinds.items():
        if name in one:
            shares = _at_scales(one, name, "the same")
            measured[f"larger with softmax, {kind}, least of all scales"] = min(shares.values())
            measured[f"larger with softmax, {kind}, most of all scales"] = max(shares.values())
            if bool((one[f"{name}_low"] > 0.5).all()):
                holds_for.append(kind)
    for name in one["attention"].values:
        each = one.sel(attention=name)
        found = ~(each["each_beyond"].values.astype(bool))
        if found.any():
            edges = np.log10((each["each_step"] * each["each_at_zero"] / 2).values[found])
            middle = float(np.median(edges))
            measured[f"log10 of the largest step over 2 / curvature at 0, {name}, median where found"] = (
                middle,
                middle,
                middle,
            )
        measured |= _at_scales(each, "beyond", f"share of texts in which all steps tried descend, {name}")
    verdict, reason = _judged(scale, one["larger_low"].values > 0.5)
    if verdict is Verdict.FAILS and holds_for:
        verdict, reason = Verdict.CORRECTED, f"It is for {' and '.join(holds_for)}, at every scale."
    again, below = int(softmax["again"].sum()), int(one["below"].sum())
    return _claim(
        loss,
        f"Descent on the {loss} risk allows larger steps with softmax attention than with linear, at every scale.",
        measured,
        summary,
        verdict,
        "Holds if the interval of the share of texts with a larger step is above 1/2 at every scale; with a correction "
        "if it is from some scale on, or for texts of one kind. These were told apart after a first look, and shares "
        "taken in place of a mean ratio, which where all steps descend is that of where the search ends. "
        f"{reason} A step is allowed if none of 500 steps from "
        "W = 0 raises the risk, nor does any smaller step tried. Where all steps tried with both descend, up to 1024 "
        "times 2 / curvature at 0, neither is larger. With softmax "
        f"{again} of {one.attrs['kept'] * len(scale)} cases have steps that descend again beyond the first that do "
        f"not; {below} of all have their threshold below all steps tried. " + _EXACT[loss] + _sums(summary),
    )


_EXACT = {
    "squared": "The squared risk of embeddings s E is s^2 times that of E at s^2 W, with both attentions: all steps "
    "scale as s^-6, and the ratio knows no scale. ",
    "logistic": "With linear attention the score is linear in W and knows no bound. ",
}


def _sums(summary: xarray.Dataset) -> str:
    """Say what becomes of the comparison with linear attention of another normalization."""
    return (
        "Linear attention is a mean, logits over the number of words V; as a sum of logits its curvature is V^2 times "
        f"as large and its largest step as much smaller, {2 * np.log10(summary.attrs['words']):.2f} decades."
    )


def _curvature_claim(summary: xarray.Dataset, loss: str) -> Claim:
    one = summary.sel(loss=loss)
    measured = _at_scales(one, "smoother", "log10 of the largest curvature, linear over softmax")
    measured |= _at_scales(one, "rougher_proved", "share of texts in which softmax is proved to bend more")
    most = one.isel(scale=int(np.argmax(one["smoother_proved"].values)))
    measured["share of texts in which it is proved to bend less, most of all scales"] = read(most, "smoother_proved")
    scale = one["scale"].values
    # The curve of the high ends crosses first.
    first, middle, last = (crossing(scale, one[f"smoother{end}"].values) for end in ("_high", "", "_low"))
    if middle is not None:
        ends = (first, last) if first is not None and last is not None and first < last else (middle, middle)
        measured["scale at which the curvatures are equal"] = middle, *ends
    verdict, reason = _judged(scale, one["smoother_low"].values > 0)
    return _claim(
        f"curvature-{loss}",
        f"The gradient of the {loss} risk has a smaller Lipschitz constant with softmax attention than with linear, at "
        "every scale.",
        measured,
        summary,
        verdict,
        f"Holds if the interval of the mean logarithm of the ratio is above 0 at every scale, with a correction if it "
        f"is from some scale on. {reason} With linear attention the constant is the curvature at 0, exactly. With "
        "softmax it is the largest found, at 0, at drawn W and along descent: from below, so that a ratio below 1 is "
        "a proof for its text, and one above 1 is none unless the bound of jaxattn.language.smoothness is below the "
        "constant of linear attention, too. " + _sums(summary),
    )


def _divergence_claim(summary: xarray.Dataset) -> Claim:
    measured, holds = {}, []
    for loss in (str(name) for name in summary["loss"].values):
        softmax, linear = (summary.sel(loss=loss, attention=name) for name in ("softmax", "linear"))
        for name, each in (("softmax", softmax), ("linear", linear)):
            measured |= _at_scales(each, "exceeds", f"share of texts, {loss} loss, {name}")
        if bool((softmax["exceeds_high"] < linear["exceeds_low"]).all()):
            holds.append(loss)
    every = len(holds) == summary.sizes["loss"]
    return _claim(
        "divergence",
        "Where a large step takes descent with linear attention above the risk of its start, with softmax it does not.",
        measured,
        summary,
        Verdict.HOLDS if every else Verdict.CORRECTED if holds else Verdict.FAILS,
        "Share of texts in which some step of those tried takes the risk above its start within 500 steps. Holds if at "
        "every scale the interval with softmax is below that with linear attention, for both losses; with a correction "
        f"if for one of them. It is for: {', '.join(holds) or 'none'}.",
    )


def _claim(
    name: str,
    statement: str,
    measured: Mapping[str, tuple[float, float, float]],
    summary: xarray.Dataset,
    verdict: Verdict,
    note: str,
) -> Claim:
    """Return a claim; not decided by few texts."""
    undecided = too_few(int(summary.attrs["kept"]))
    return concluded(
        f"softmax-vs-linear:{name}",
        _SOURCE,
        statement,
        {},
        measured,
        counts_of({summary.attrs["run"]: summary}),
        verdict,
        undecided,
        note,
    )
