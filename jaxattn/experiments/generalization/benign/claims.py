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
# Fixed beforehand: the shares that count as nearly all and as nearly none; the smallest change of test accuracy that
# counts; and the smallest increase of the attention on the signal tokens of new inputs that counts as learning to
# select them.
ALL, NONE, CHANGE, LEARNT = 0.95, 0.05, 0.05, 0.2
_ACCURACY, _FIT = "test accuracy at the end", "share of flipped labels fit at the end"


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate test accuracies by signal for each run, and the outcomes of the seeds in each band.

    Args:
        datasets: of `measure`.
        key: of the bootstrap.

    Returns:
        For each run a dataset: by bins of `ratio` and of `strength`, (bin,), the number of seeds (`by_ratio_seeds`),
        their mean final test accuracy (`by_ratio`) and its standard error (`by_ratio_error`). For each of BANDS, by its
        name, what `bands.summarized` returns.

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
    """Return the judgement on a band, undecided if it has too few seeds or training is too short."""
    one, runs = summaries[name], {run: each for run, each in summaries.items() if run not in BANDS}
    criteria = {criterion.quantity: criterion.value for criterion in (*stated, *corrected)}
    undecided = next((said for each in runs.values() if (said := too_little(each))), "")
    few = too_few(one.attrs[seeds], LEAST_SEEDS)
    return Judgement(
        numbers=criteria,
        expected={},
        counts=counts_of(runs),
        stated=stated,
        corrected=corrected,
        correction=correction,
        undecided=undecided or (few and f"With {BANDS[name].said}: {few}"),
        remark=f"Judged over the {one.attrs[seeds]} seeds with {BANDS[name].said}. {remark}".strip(),
    )


def _judge_low(summaries: Datasets) -> Judgement:
    """Flipped labels must be fit, and new inputs classified correctly."""
    fit, accuracy = (number(summaries["low"], name) for name in ("fit", "accuracy"))
    stated = above(_FIT, fit, ALL), above(_ACCURACY, accuracy, ALL)
    before, found = accuracy.mean - float(summaries["low"]["change"]), float(summaries["low"]["finds"][-1])
    remark = (
        f"Test accuracy is {before:.3g} even before training, since the given head reads the signal through uniform "
    )
    remark += f"attention. At the end the attention on the signal tokens of new inputs is {found:.2g}, initially 0.125."
    return _judgement("low", summaries, stated, remark=remark)


def _judge_high(summaries: Datasets) -> Judgement:
    """Flipped labels must not be fit; as corrected, not for some time, and then they are."""
    fit, accuracy, stage = (number(summaries["high"], name) for name in ("fit", "accuracy", "stage"))
    label = "share of seeds that at some time select the signal tokens and fit no flipped label"
    return _judgement(
        "high",
        summaries,
        (below(_FIT, fit, NONE), above(_ACCURACY, accuracy, ALL)),
        (above(label, stage, ALL), above(_FIT, fit, ALL), above(_ACCURACY, accuracy, ALL)),
        "flipped labels are ignored only for some time; then they are fit, and overfitting is benign.",
    )


def _judge_weak(summaries: Datasets) -> Judgement:
    """Flipped labels must be fit, and new inputs classified worse than before training."""
    one = summaries["weak"]
    fit, change, accuracy = (number(one, name) for name in ("fit", "change", "accuracy"))
    stated = above(_FIT, fit, ALL), below("change of test accuracy from W = 0 to the end", change, -CHANGE)
    return _judgement("weak", summaries, stated, remark=f"Their final test accuracy is {accuracy.mean:.3g}.")


def _judge_late(summaries: Datasets) -> Judgement:
    """Test accuracy must rise after all labels are fit; as corrected, the attention on signal tokens."""
    one = summaries["low"]
    rise, found, accuracy = (number(one, name) for name in ("rise", "found", "accuracy"))
    return _judgement(
        "low",
        summaries,
        (above("increase of test accuracy after all labels are fit", rise, CHANGE),),
        (
            above(
                "increase of the attention on the signal tokens of new inputs after all labels are fit", found, LEARNT
            ),
            above(_ACCURACY, accuracy, ALL),
        ),
        "what is learnt after the labels are fit is the selection of the signal token on new inputs. Test accuracy is "
        "already high before, since the given head also reads the signal through uniform attention.",
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
        "With a high signal-to-noise ratio, n SNR^2 >> 1, token selection does not overfit: it ignores the flipped "
        "labels and generalizes.",
        _judge_high,
        examples.of_high,
    ),
    Claim(
        "benign:weak",
        Source("arXiv 2410.07746", "abstract, by analogy: there the head is also trained", Setting.PROXY),
        "A sufficiently large signal-to-noise ratio is necessary: with a weak signal all labels are fit, at the "
        "expense of new inputs (harmful overfitting).",
        _judge_weak,
        examples.of_weak,
    ),
    Claim(
        "benign:late",
        Source(_PAPER, "abstract", Setting.PROXY),
        "Generalization is acquired late, after an initial phase of overfitting.",
        _judge_late,
        examples.of_late,
    ),
)
