"""Two layers of attention trained together: does each obey the Att-SVM of the tokens that reach it?"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.bias.verdict import CLOSE
from jaxattn.experiments.beyond.depth.measure import measure
from jaxattn.experiments.bias import ratios
from jaxattn.experiments.bias.predictions import Prediction, claims_of
from jaxattn.statistics import bootstrap, derive_key, proportion, variables
from jaxattn.study.claims import LEAST_DRAWN, LEAST_STEPS, TRAINED, Datasets, Experiment, Judgement, Judgements, claim
from jaxattn.study.claims.claim import Needs, Setting, Source
from jaxattn.study.claims.counts import counts_of
from jaxattn.study.claims.criteria import above
from jaxattn.study.estimates import number
from jaxattn.study.style import page, palette

# The names of the summaries.
SECOND, FIRST, EVERY = "second layer", "first layer, positions that are read", "first layer, every position"
# Fixed beforehand: the decimal logarithm below which a share is negligible, and the share of seeds that counts as
# nearly all.
_GONE, _ALL = -2.0, 0.95
_SOURCE = Source("arXiv 2308.16898", "convergence of gradient descent on W, by analogy in each layer", Setting.OURS)
_CONTROL = Source("jaxattn", "a control of the first layer", Setting.OURS)


def summarize(runs: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate the margin ratios of both layers, and the share of unread positions in the first one's gradient.

    Returns:
        For each of SECOND, FIRST and EVERY what `ratios.estimate` returns, and `curve`, the mean margin ratio, (norm,
        snapshot). For FIRST also `gone`, the share of seeds where the share of unread positions ends below .01; and,
        (seed,), `unread_end`, the decimal logarithm of the latter, and `lack`, the final 1 - margin ratio (Frobenius).

    Raises:
        ValueError: not one run, or a share above 1.
    """
    if len(runs) != 1:
        raise ValueError(f"depth: expected one run, found {list(runs)}")
    ((name, run),) = runs.items()
    # By rounding, a share of a gradient may be slightly above 1.
    if (most := float(run["unread"].max())) > 1e-9:
        raise ValueError(f"depth: expected logarithms of shares, found {most:.3g} in {name}")
    of_ratios, of_curves = jax.random.split(key)
    summaries = {}
    for k, (layer, variable) in enumerate({SECOND: "second", FIRST: "first", EVERY: "every"}.items()):
        ratio = run[variable]
        if layer == EVERY:
            ratio = ratio.expand_dims({"norm": run["norm"][:1]}, axis=1)
        of_layer = xarray.Dataset(
            {
                "margin_ratio": ratio,
                "probability": run[f"{variable}_probability"],
                "size": run[f"{variable}_size"],
                # The rule follows the exact direction of the gradient, which does not stall.
                "stalled": xarray.zeros_like(run["seed"], bool),
                "confusion": (("norm", "rival"), run[f"{variable}_confusion"].values),
            },
            attrs=run.attrs | {"exponents": run.attrs[f"{variable}_exponents"]},
        )
        curve = variables({"curve": (("norm", "snapshot"), bootstrap(ratio.values, jax.random.fold_in(of_curves, k)))})
        summaries[layer] = ratios.estimate(of_layer, jax.random.fold_in(of_ratios, k)).assign(curve)
    end = run.isel(snapshot=-1, drop=True)
    gone = variables({"gone": ((), proportion(end["unread"].values < _GONE))})
    lack = 1 - end["first"].sel(norm="frobenius").values
    summaries[FIRST] = (
        summaries[FIRST].assign(gone).assign(unread_end=("seed", end["unread"].values), lack=("seed", lack))
    )
    return summaries


@claim(
    "depth:every-position",
    _CONTROL,
    "A control: if two layers of attention are trained together, the first obeys the Frobenius Att-SVM over all "
    "positions, each with its own query.",
    needs=TRAINED,
)
def _every_position(runs: Datasets) -> Judgement:
    run = runs[EVERY]
    ratio, limit = (number(run, name, norm="frobenius") for name in ("ratio", "limit"))
    read = number(runs[FIRST], "ratio", norm="frobenius")
    return Judgement(
        [above("limit of the margin ratio over all positions, frobenius", limit, CLOSE)],
        remark="Foregone: once the second layer has selected a position, the loss discards the others, and these give "
        f"no gradient. Over the positions that it reads, the ratio is {read.mean:.4g}.",
        numbers={"limit of the margin ratio, frobenius": limit, "margin ratio, frobenius": ratio},
        expected={"limit of the margin ratio, frobenius": 1.0},
        counts=counts_of({EVERY: run}),
    )


@claim(
    "depth:unread",
    _SOURCE,
    "Once the second layer has selected a position, the other positions do not contribute to the first "
    "layer's gradient.",
    needs=Needs(LEAST_DRAWN, LEAST_STEPS),
)
def _unread(runs: Datasets) -> Judgement:
    run = runs[FIRST]
    share, lack, is_gone = number(run, "gone"), run["lack"].values, run["unread_end"].values < _GONE
    label = "share of seeds where unread positions end with less than .01 of the first layer's gradient"
    return Judgement(
        [above(label, share, _ALL)],
        remark=f"Mean 1 - margin ratio of the first layer (Frobenius): {_mean(lack[is_gone])} in these seeds, "
        f"{_mean(lack[~is_gone])} in the others.",
        numbers={label: share},
        expected={label: 1.0},
    )


def _mean(values: np.ndarray) -> str:
    if len(values) < 2:
        return f"too few to estimate ({len(values)})"
    mean = bootstrap(values, derive_key(jax.random.key(0)))
    return f"{float(mean.mean):.2g} [{float(mean.low):.2g}, {float(mean.high):.2g}]"


_TOGETHER = "If two layers of attention are trained together, the {} obeys the Frobenius Att-SVM over the {}."
_CLAIMS = (
    *claims_of(
        "depth",
        [
            Prediction(layer, run, "frobenius", _SOURCE, _TOGETHER.format(layer, over))
            for layer, run, over in (
                ("second", SECOND, "outputs of the first"),
                ("first", FIRST, "positions that the second reads"),
            )
        ],
    ),
    _every_position,
    _unread,
)

# Smaller shares are drawn here, as decimal logarithms.
_FLOOR = -30.0


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the ratios of both layers, and of every seed what lacks of the first one's against the unread share."""
    first, every = summaries[FIRST], summaries[EVERY]
    last, lowest = int(first["snapshot"][-1]), float(every["curve_low"].min())
    with page.style():
        figure = page.full(3.2)
        left, middle, right = figure.subplots(1, 3)
        for axes, layer, name, letter in ((left, SECOND, "second", "a"), (middle, FIRST, "first", "b")):
            for norm, label in page.NORMS.items():
                look = {"color": palette.COLOURS[norm], "linestyle": palette.DASHES[norm], "label": label}
                _draw_curve(axes, summaries[layer].sel(norm=norm), **look)
            axes.set_title(f"({letter}) {name} layer,\nFrobenius SVM: {judgements[f'depth:{name}'].verdict}")
        _draw_curve(middle, every.sel(norm="frobenius"), color=palette.GUIDE, linestyle=":")
        for axes, bottom in ((left, -0.55), (middle, lowest - 0.05)):
            axes.axhline(CLOSE, color="black", linewidth=0.6)
            axes.set(xlabel="step", xscale="log", ylim=(bottom, 1.2))
            axes.text(1, CLOSE + 0.02, f"{CLOSE}: a norm is named", fontsize=7, va="bottom")
        left.set_ylabel("margin ratio")
        left.legend(loc="lower right", handlelength=1.2, title="mean, 95 % interval")
        figure.suptitle(
            "Two layers trained together: the first obeys the SVM of the positions that are read: "
            f"{judgements['depth:first'].verdict}; of all: {judgements['depth:every-position'].verdict}"
        )
        middle.text(last, -0.1, "every\nposition", color=palette.GUIDE, fontsize=7, ha="right", va="top")
        share = 10 ** np.maximum(first["unread_end"].values, _FLOOR)
        right.plot(share, first["lack"].values, ".", color=palette.COLOURS["frobenius"], markersize=4, alpha=0.7)
        right.axvline(10**_GONE, color="black", linewidth=0.6)
        right.text(10**_GONE, 0.98, "1 % ", transform=right.get_xaxis_transform(), fontsize=7, ha="right", va="top")
        right.set(title="(c) first layer, by seed", xscale="log", yscale="log", xlim=(1e-32, 1e2))
        right.set_xlabel("unread positions' share of\nthe first layer's gradient")
        right.set_ylabel("1 - margin ratio (Frobenius)")
        page.add_counts(
            figure,
            {"two layers": first},
            "(b), colours: the Att-SVM over the positions that the second layer reads; grey: over every position, "
            f"Frobenius. (c): a dot per seed at step {last:,}; shares below 1e{_FLOOR:.0f} are "
            f"drawn there; it ends below 1 % in {float(first['gone']):.0%} of the seeds.",
        )
    return figure


def _draw_curve(axes: Axes, layer: xarray.Dataset, **look: Any) -> None:
    page.band(axes, *(layer[name].values for name in ("snapshot", "curve", "curve_low", "curve_high")), **look)


EXPERIMENT = Experiment(measure, claims=_CLAIMS, summarize=summarize, draw=draw)
