"""Whether token selection that fits flipped labels generalizes, and when (2409.17625)."""

from __future__ import annotations

from collections.abc import Sequence

from jaxattn.experiments.generalization.benign.bands import BANDS
from jaxattn.study.claims import LEAST_SEEDS, TRAINED, Datasets, Judgement, Setting, Source, claim, counts_of
from jaxattn.study.claims.criteria import Criterion, above, below
from jaxattn.study.estimates import number

_PAPER = "arXiv 2409.17625"
# Fixed beforehand: the shares that count as nearly all and as nearly none; the smallest change of test accuracy that
# counts; and the smallest increase of the attention on the signal tokens of new inputs that counts as learning to
# select them.
_ALL, _NONE, _CHANGE, _LEARNT = 0.95, 0.05, 0.05, 0.2
_ACCURACY, _FIT = "test accuracy at the end", "share of flipped labels fit at the end"


def _on_band(
    runs: Datasets,
    band: str,
    stated: Sequence[Criterion],
    corrected: Sequence[Criterion] = (),
    correction: str = "",
    remark: str = "",
    seeds: str = "kept",
    undecided: str = "",
) -> Judgement:
    """Return the judgement on the seeds of a band, or on those of them that fit all labels."""
    count, description = runs[band].attrs[seeds], BANDS[band].description
    few = f"With {description}: {count} seeds are too few to decide; at least {LEAST_SEEDS} are needed."
    return Judgement(
        stated,
        corrected,
        correction,
        remark=f"Judged over the {count} seeds with {description}. {remark}".strip(),
        counts=counts_of({name: runs[name] for name in runs if name not in BANDS}),
        undecided=few if count < LEAST_SEEDS else undecided,
    )


def _known(runs: Datasets) -> str:
    """Return why a low ratio does not show what is learnt of new inputs: nearly all of it may be known beforehand."""
    if (before := _before(runs, "low, weaker head")) < _ALL:
        return ""
    return (
        f"Test accuracy is {before:.3g} even before training, since the head reads the signal through uniform "
        "attention: it does not show whether training generalizes. This takes a head that reads less at W = 0."
    )


def _before(runs: Datasets, band: str) -> float:
    accuracy, change = (number(runs[band], name).mean for name in ("accuracy", "change"))
    return accuracy - change


@claim(
    "benign:low-snr",
    Source(_PAPER, "abstract, and theorem on benign overfitting, as recalled", Setting.PROXY),
    "With a low signal-to-noise ratio, n SNR^2 << 1, and a signal that is not too weak, token selection fits the "
    "flipped labels and still generalizes.",
    needs=TRAINED,
)
def _low(runs: Datasets) -> Judgement:
    heads = {"given head": runs["low"], "weaker head": runs["low, weaker head"]}
    finds = " and ".join(f"{float(one['finds'][-1]):.2g} ({head})" for head, one in heads.items())
    asked = {"fit": _FIT, "accuracy": _ACCURACY}
    return _on_band(
        runs,
        "low, weaker head",
        [
            above(f"{label}, {head}", number(one, name), _ALL)
            for head, one in heads.items()
            for name, label in asked.items()
        ],
        remark=f"So are {heads['given head'].attrs['kept']} seeds with the given head, which reads the signal through "
        f"uniform attention: before training its test accuracy is {_before(runs, 'low'):.3g}. That of the weaker head, "
        f"which also reads noise, is {_before(runs, 'low, weaker head'):.3g}. At the end the attention on the signal "
        f"tokens of new inputs is {finds}, initially 0.125.",
        undecided=_known(runs),
    )


@claim(
    "benign:high-snr",
    Source(_PAPER, "theorem without overfitting, as recalled", Setting.PROXY),
    "With a high signal-to-noise ratio, n SNR^2 >> 1, token selection does not overfit: it ignores the flipped "
    "labels and generalizes.",
    needs=TRAINED,
)
def _high(runs: Datasets) -> Judgement:
    fit, accuracy, stage = (number(runs["high"], name) for name in ("fit", "accuracy", "stage"))
    label = "share of seeds that at some time select the signal tokens and fit no flipped label"
    return _on_band(
        runs,
        "high",
        [below(_FIT, fit, _NONE), above(_ACCURACY, accuracy, _ALL)],
        [above(label, stage, _ALL), above(_ACCURACY, accuracy, _ALL)],
        f"only for some time. Later the flipped labels are fit too, {fit.mean:.1%} of them at the end; the flow is "
        "followed much farther than by the authors.",
    )


@claim(
    "benign:weak",
    Source("arXiv 2410.07746", "abstract, by analogy: there the head is also trained", Setting.PROXY),
    "A sufficiently large signal-to-noise ratio is necessary: with a weak signal all labels are fit, at the "
    "expense of new inputs (harmful overfitting).",
    needs=TRAINED,
)
def _weak(runs: Datasets) -> Judgement:
    fit, change, accuracy = (number(runs["weak"], name) for name in ("fit", "change", "accuracy"))
    return _on_band(
        runs,
        "weak",
        [above(_FIT, fit, _ALL), below("change of test accuracy from W = 0 to the end", change, -_CHANGE)],
        remark=f"Their final test accuracy is {accuracy.mean:.3g}.",
    )


@claim(
    "benign:late",
    Source(_PAPER, "abstract", Setting.PROXY),
    "Generalization is acquired late, after an initial phase of overfitting.",
    needs=TRAINED,
)
def _late(runs: Datasets) -> Judgement:
    band = "low, weaker head"
    rise, end = (number(runs[band], name) for name in ("rise", "accuracy"))
    return _on_band(
        runs,
        band,
        [above("increase of test accuracy after all labels are fit, weaker head", rise, _CHANGE)],
        remark=f"Test accuracy is {_before(runs, band):.3g} before training and {end.mean:.3g} at the end. With the "
        f"given head it is {_before(runs, 'low'):.3g} from the beginning.",
        seeds="fitting",
        undecided=_known(runs),
    )


@claim(
    "benign:late-selection",
    Source("jaxattn", "when the signal tokens of new inputs are selected", Setting.OURS),
    "With a low signal-to-noise ratio and a signal that is not too weak, the signal tokens of new inputs are selected "
    "late, after all labels are fit.",
    needs=TRAINED,
)
def _late_selection(runs: Datasets) -> Judgement:
    found = number(runs["low"], "found")
    label = "increase of the attention on the signal tokens of new inputs after all labels are fit"
    return _on_band(runs, "low", [above(label, found, _LEARNT)], seeds="fitting")


CLAIMS = (_low, _high, _weak, _late, _late_selection)
