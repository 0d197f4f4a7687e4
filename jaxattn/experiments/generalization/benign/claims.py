"""Whether token selection that fits flipped labels generalizes, and when (2409.17625)."""

from __future__ import annotations

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.generalization.benign import examples
from jaxattn.experiments.generalization.benign.bands import BANDS, EDGES, binned, summarized
from jaxattn.study.claims import (
    LEAST_SEEDS,
    Claim,
    Criterion,
    Datasets,
    Judgement,
    Setting,
    Source,
    above,
    below,
    counts_of,
    number,
    too_few,
    too_little,
)

_PAPER = "arXiv 2409.17625"
# Fixed beforehand: which share is nearly all, and nearly none; the least change of test accuracy that counts; and the
# least rise of the attention on new inputs' signal tokens that counts as learning to select them.
ALL, NONE, CHANGE, LEARNT = 0.95, 0.05, 0.05, 0.2
_ACCURACY, _FIT = "test accuracy at the end", "share of flipped labels fit at the end"


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate test accuracies by the signal for each run, and what becomes of the seeds of each band.

    Args:
        datasets: of `measure`.
        key: of the bootstrap.

    Returns:
        For each run a dataset: by bins of `ratio` and of `strength`, (bin,), how many seeds there are
        (`by_ratio_seeds`), their mean test accuracy at the end (`by_ratio`) and its standard error
        (`by_ratio_error`). For each of BANDS, by its name, what `bands.summarized` returns.

    Raises:
        ValueError: no run, or one of which no seed was kept.
    """
    if not datasets or not all(one.sizes["seed"] for one in datasets.values()):
        raise ValueError(f"benign: expected a kept seed in each run, found counts {counts_of(datasets)}")
    found = {run: _by_signal(one) for run, one in datasets.items()}
    keys = jax.random.split(key, len(BANDS))
    return found | {
        name: summarized(datasets, band, own) for (name, band), own in zip(BANDS.items(), keys, strict=True)
    }


def _by_signal(one: xarray.Dataset) -> xarray.Dataset:
    summary = xarray.Dataset(coords={"snapshot": one["snapshot"].values}, attrs=one.attrs)
    for name in ("ratio", "strength"):
        seeds, mean, error = binned(one[name].values, one["test"].values[:, -1])
        parts = {"seeds": seeds, "error": error}
        summary[f"by_{name}"] = ("bin",), mean
        summary = summary.assign({f"by_{name}_{part}": (("bin",), values) for part, values in parts.items()})
    return summary.assign_coords(bin=np.sqrt(EDGES[:-1] * EDGES[1:]))


def _judgement(
    name: str,
    summaries: Datasets,
    stated: tuple[Criterion, ...],
    corrected: tuple[Criterion, ...] = (),
    correction: str = "",
    remark: str = "",
    seeds: str = "seeds",
) -> Judgement:
    """Return the judgement on a band, undecided where it has too few seeds or the runs are too short."""
    one, runs = summaries[name], {run: each for run, each in summaries.items() if run not in BANDS}
    criteria = {criterion.quantity: criterion.value for criterion in (*stated, *corrected)}
    undecided = next((said for each in runs.values() if (said := too_little(each))), "")
    few = too_few(one.attrs[seeds], LEAST_SEEDS)
    return Judgement(
        measured={label: value.mean for label, value in criteria.items()},
        interval={label: (value.low, value.high) for label, value in criteria.items()},
        expected={},
        counts=counts_of(runs),
        stated=stated,
        corrected=corrected,
        correction=correction,
        undecided=undecided or (few and f"With {BANDS[name].said}: {few}"),
        remark=f"The {one.attrs[seeds]} seeds with {BANDS[name].said}. {remark}".strip(),
    )


def _judge_low(summaries: Datasets) -> Judgement:
    """Flipped labels have to be fit, and new inputs to be classified rightly."""
    fit, accuracy = (number(summaries["low"], name) for name in ("fit", "accuracy"))
    stated = above(_FIT, fit, ALL), above(_ACCURACY, accuracy, ALL)
    before, found = accuracy.mean - float(summaries["low"]["change"]), float(summaries["low"]["finds"][-1])
    remark = f"Before training, too, test accuracy is {before:.3g}: the given head reads the signal through uniform "
    remark += f"attention. At the end the attention on new inputs' signal tokens is {found:.2g}, from 0.125."
    return _judgement("low", summaries, stated, remark=remark)


def _judge_high(summaries: Datasets) -> Judgement:
    """Flipped labels have to be left; or, for the correction, to be left for a time and then fit."""
    fit, accuracy, stage = (number(summaries["high"], name) for name in ("fit", "accuracy", "stage"))
    label = "share of seeds that at some time select the signal tokens and fit no flipped label"
    return _judgement(
        "high",
        summaries,
        (below(_FIT, fit, NONE), above(_ACCURACY, accuracy, ALL)),
        (above(label, stage, ALL), above(_FIT, fit, ALL), above(_ACCURACY, accuracy, ALL)),
        "flipped labels are disregarded for a time only; then they are fit, and overfitting is benign.",
    )


def _judge_weak(summaries: Datasets) -> Judgement:
    """Flipped labels have to be fit, and new inputs to be classified worse than before training."""
    one = summaries["weak"]
    fit, change, accuracy = (number(one, name) for name in ("fit", "change", "accuracy"))
    stated = above(_FIT, fit, ALL), below("change of test accuracy from W = 0 to the end", change, -CHANGE)
    return _judgement("weak", summaries, stated, remark=f"Their test accuracy at the end is {accuracy.mean:.3g}.")


def _judge_late(summaries: Datasets) -> Judgement:
    """Test accuracy has to rise after all labels are fit; for the correction, the attention on signal tokens."""
    one = summaries["low"]
    rise, found, accuracy = (number(one, name) for name in ("rise", "found", "accuracy"))
    return _judgement(
        "low",
        summaries,
        (above("rise of test accuracy after all labels are fit", rise, CHANGE),),
        (
            above("rise of the attention on new inputs' signal tokens after all labels are fit", found, LEARNT),
            above(_ACCURACY, accuracy, ALL),
        ),
        "what comes after the labels are fit is the selection of the signal token on new inputs; test accuracy is high "
        "before, as the given head reads the signal through uniform attention, too.",
        seeds="fitting",
    )


CLAIMS = (
    Claim(
        "benign:low-snr",
        Source(_PAPER, "abstract, and theorem on benign overfitting, as recalled", Setting.PROXY),
        "With a low signal-to-noise ratio, n SNR^2 << 1, and a signal that is not too weak, token selection fits the "
        "flipped labels and still generalizes.",
        _judge_low,
        examples.of_low,
    ),
    Claim(
        "benign:high-snr",
        Source(_PAPER, "theorem without overfitting, as recalled", Setting.PROXY),
        "With a high signal-to-noise ratio, n SNR^2 >> 1, token selection does not overfit: it disregards the flipped "
        "labels, and generalizes.",
        _judge_high,
        examples.of_high,
    ),
    Claim(
        "benign:weak",
        Source("arXiv 2410.07746", "abstract, by analogy: there the head is trained, too", Setting.PROXY),
        "A sufficiently large signal-to-noise ratio is necessary: with a weak signal all labels are fit, and new "
        "inputs pay for it (harmful overfitting).",
        _judge_weak,
        examples.of_weak,
    ),
    Claim(
        "benign:late",
        Source(_PAPER, "abstract", Setting.PROXY),
        "Generalization is acquired late: after an initial phase of overfitting.",
        _judge_late,
        examples.of_late,
    ),
)
