"""Two layers of attention trained together: each compared with the Att-SVM of the tokens that reach it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.bias.verdict import CLOSE
from jaxattn.experiments.beyond.depth import examples
from jaxattn.experiments.bias import judging, ratios
from jaxattn.experiments.bias.judging import Prediction
from jaxattn.statistics import bootstrap, derive_key, proportion, variables
from jaxattn.study.claims import (
    Claim,
    Datasets,
    Judgement,
    Setting,
    Source,
    above,
    counts_of,
    number,
    too_few,
    too_little,
)

# The subjects of the summaries, and their names.
LAYERS = {
    "second": "second layer",
    "first": "first layer, positions that are read",
    "every": "first layer, every position",
}
# Fixed beforehand: the decimal logarithm below which a share is negligible; the share of seeds that counts as nearly
# all; and for how many more decades of steps a ratio may rise as in the last one and still miss the threshold.
GONE, _ALL, _DECADES = -2.0, 0.95, 5.0
_SOURCE = Source("arXiv 2308.16898", "convergence of gradient descent on W, by analogy in each layer", Setting.OURS)
_SEQUENCES = Source("arXiv 2308.16898", "sequence-to-sequence attention, by analogy in the first layer", Setting.OURS)


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate the margin ratios of both layers, and the share of unread positions in the first one's gradient.

    Args:
        datasets: of `measure`, of one run.
        key: of the bootstrap.

    Returns:
        For each of LAYERS what `ratios.summarize` returns, and `along`, the mean margin ratio, (norm, snapshot), with
        its interval. The attribute `layer` names the layer. In addition, for the first layer at the positions that are
        read: `unread_10`, `unread_50`, `unread_90`, quantiles of the decimal logarithm of the unread positions' share,
        (snapshot,); `gone`, the share of seeds where it ends below .01; and for every seed `unread_end` and `lack`, the
        final 1 - margin ratio in the Frobenius norm, (seed,).

    Raises:
        ValueError: not one run, no kept seed, or a share above 1.
    """
    if len(datasets) != 1:
        raise ValueError(f"depth: expected one run, found {list(datasets)}")
    ((run, one),) = datasets.items()
    if not one.sizes["seed"]:
        raise ValueError(f"depth: expected a kept seed, found counts {counts_of(datasets)}")
    # By rounding, a share of a gradient may be slightly above 1.
    if (most := float(one["unread"].max())) > 1e-9:
        raise ValueError(f"depth: expected logarithms of shares, found {most:.3g} in {run}")
    ranked_key, own_key = jax.random.split(key)
    layers = {name: _layer(one, name) for name in LAYERS}
    found = ratios.summarize(layers, ranked_key)
    keys = jax.random.split(own_key, len(LAYERS))
    for name, own in zip(LAYERS, keys, strict=True):
        along = bootstrap(layers[name]["margin_ratio"].values, own)
        found[name] = found[name].assign(variables({"along": (("norm", "snapshot"), along)}))
    found["first"] = found["first"].assign(_of_unread(one))
    return found


def _layer(one: xarray.Dataset, name: str) -> xarray.Dataset:
    """Return the measurements of one layer in the form that `ratios.measure` returns for a run."""
    ratio = one[name] if "norm" in one[name].dims else one[name].expand_dims({"norm": one["norm"][:1]}, axis=1)
    parts = {"margin_ratio": ratio, "probability": one[f"{name}_probability"]}
    return xarray.Dataset(parts, attrs=one.attrs | {"layer": name, "run": LAYERS[name]})


def _of_unread(one: xarray.Dataset) -> dict[str, Any]:
    unread = one["unread"].values
    quantiles = {f"unread_{q}": (("snapshot",), np.quantile(unread, q / 100, axis=0)) for q in (10, 50, 90)}
    lack = 1 - one["first"].sel(norm="frobenius").values[:, -1]
    ends = {"unread_end": (("seed",), unread[:, -1]), "lack": (("seed",), lack)}
    return quantiles | ends | variables({"gone": ((), proportion(unread[:, -1] < GONE))})


def _judge_every(summaries: Datasets) -> Judgement:
    """The ratio must be close to 1; it is refuted only if it would not get there in five decades of steps."""
    one = summaries["every"]
    ratio = number(one.sel(norm="frobenius"), "ratio")
    undecided = too_little(one)
    measured = {"margin ratio, frobenius": ratio}
    if "trend" in one:
        measured["its change per decade of steps"] = trend = number(one.sel(norm="frobenius"), "trend")
        if ratio.high < CLOSE <= ratio.high + _DECADES * max(trend.high, 0.0):
            undecided = undecided or f"The ratio is below {CLOSE}, but rises by {trend.mean:.3g} per decade of steps."
    else:
        undecided = undecided or "The snapshots do not show whether the ratio rises."
    read = number(summaries["first"].sel(norm="frobenius"), "ratio")
    return Judgement(
        numbers=measured,
        expected={"margin ratio, frobenius": 1.0},
        counts=counts_of({one.attrs["run"]: one}),
        stated=(above("mean margin ratio over all positions, frobenius", ratio, CLOSE),),
        undecided=undecided,
        remark=f"Over the positions that the second layer reads, the ratio is {read.mean:.4g}.",
    )


def _judge_unread(summaries: Datasets) -> Judgement:
    """In nearly all seeds unread positions must end with less than a hundredth of the first layer's gradient."""
    one = summaries["first"]
    share, is_gone = number(one, "gone"), one["unread_end"].values < GONE
    label = "share of seeds where unread positions end with less than .01 of the first layer's gradient"
    return Judgement(
        numbers={label: share},
        expected={label: 1.0},
        counts=counts_of({one.attrs["run"]: one}),
        stated=(above(label, share, _ALL),),
        undecided=too_little(one) or too_few(int(one.attrs["kept"])),
        remark=f"Mean 1 - margin ratio of the first layer (Frobenius): {_lack(one, is_gone)} in these seeds, "
        f"{_lack(one, ~is_gone)} in the others.",
    )


def _lack(one: xarray.Dataset, chosen: np.ndarray) -> str:
    values = one["lack"].values[chosen]
    if len(values) < 2:
        return f"too few to estimate ({len(values)})"
    found = bootstrap(values, derive_key(jax.random.key(0)))
    return f"{float(found.mean):.2g} [{float(found.low):.2g}, {float(found.high):.2g}]"


CLAIMS = (
    *judging.claims(
        "depth",
        [
            Prediction(
                "second",
                {"layer": "second"},
                "frobenius",
                _SOURCE,
                "If two layers of attention are trained together, the second obeys the Frobenius Att-SVM over the "
                "outputs of the first.",
            ),
            Prediction(
                "first",
                {"layer": "first"},
                "frobenius",
                _SOURCE,
                "If two layers of attention are trained together, the first obeys the Frobenius Att-SVM over the "
                "positions that the second reads.",
            ),
        ],
        examples.of_layer,
    ),
    Claim(
        "depth:every-position",
        _SEQUENCES,
        "If two layers of attention are trained together, the first obeys the Frobenius Att-SVM over all positions, "
        "each with its own query.",
        _judge_every,
        examples.of_every,
    ),
    Claim(
        "depth:unread",
        _SOURCE,
        "Once the second layer has selected a position, the other positions do not contribute to the first "
        "layer's gradient.",
        _judge_unread,
        examples.of_unread,
    ),
)
