"""Do the theorems hold on real tokens, patches of handwritten digits? The Att-SVM obeyed, its rate, and feasibility."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.bias.verdict import CLOSE
from jaxattn.experiments.beyond.digits.measure import measure
from jaxattn.experiments.bias import ratios
from jaxattn.experiments.bias.predictions import Prediction, claims_of, finding
from jaxattn.study.claims import LEAST_DRAWN, Claim, Datasets, Experiment, Judgement, Judgements, claim
from jaxattn.study.claims.claim import Needs, Setting, Source
from jaxattn.study.claims.criteria import above, below, between
from jaxattn.study.estimates import estimated, mean, number, power_law, quantiles, share
from jaxattn.study.style import page, palette

# The norm that each training is predicted to obey, by its name in those of the runs.
_OWN = {"W": "frobenius", "KQ": "nuclear"}
# The names of the token laws in statements.
_LAWS = {"class": "patches, one query per class", "patch": "patches, the first patch of each image as its query"}
# Fixed beforehand: how far an exponent may be from the predicted one, and from that on the sphere; the exponent of a
# distance that keeps falling (as in rate); and the share of problems that counts as nearly all.
_NEAR, _GOES_ON, _ALL = 0.2, -0.12, 0.95
# Rates are fitted from step 1000 to this step, for runs that have as many.
_FROM, _UNTIL = 1000, 10_000
_LONG = Needs(LEAST_DRAWN, _UNTIL)
_DESCENT = Source("arXiv 2308.16898", "convergence of gradient descent on W, tested on real tokens", Setting.OURS)
_FACTORS = Source("arXiv 2308.16898", "implicit bias of training (K, Q), tested on real tokens", Setting.OURS)
_FEASIBLE = Source("arXiv 2308.16898", "theorem on separability, tested on real tokens and n > d", Setting.OURS)
_RATE = Source("arXiv 2308.16898", "local convergence figure, continued as in rate, on real tokens", Setting.OURS)


def summarize(runs: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate margin ratios, distances from a run's own solution and their rate, and the share of separable problems.

    Returns:
        For each run what `ratios.estimate` returns; for the norm that it is claimed to obey `off`, quantiles of 1 -
        cos, (snapshot,), and the `exponent` of the step in it, NaN for shorter runs; `optimal`, the share of inputs
        whose selected token is optimal, and `all_optimal`, that of seeds for which all are; and `separable`, the share
        of problems whose optimal tokens can be separated.
    """
    of_ratios, of_own = jax.random.split(key)
    summaries = ratios.summarize(runs, of_ratios)
    return {
        name: summaries[name].assign(_estimate(run, jax.random.fold_in(of_own, k)))
        for k, (name, run) in enumerate(runs.items())
    }


def _estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    off = run["off"].sel(norm=_OWN["KQ" if run.attrs["weights"] == "factored" else "W"], drop=True)
    return estimated(
        run,
        key,
        optimal=mean(run["optimal"]),
        all_optimal=share(run["optimal"] >= 1),
        separable=share(run["optimal_margin"].rename(attempt="seed") > 0),
        exponent=power_law(off, since=_FROM, least=_UNTIL, until=_UNTIL),
        off=quantiles(off, 10, 50, 90),
    )


def _rate(weights: str, runs: Datasets) -> Judgement:
    by_law = {law: runs[f"{weights}, {law}"] for law in (*_LAWS, "sphere")}
    exponents = {law: number(run, "exponent") for law, run in by_law.items()}
    stated = []
    for law, words in _LAWS.items():
        label, exponent = f"exponent, {words},", exponents[law]
        stated += [
            between(label, exponent, -2 - _NEAR, -2 + _NEAR) if weights == "W" else below(label, exponent, _GOES_ON),
            between(f"{label} minus that on the sphere", exponent.minus(exponents["sphere"]), -_NEAR, _NEAR),
        ]
    labels = {f"exponent, {_LAWS.get(law, law)}": exponent for law, exponent in exponents.items()}
    share = "share of inputs whose optimal token is selected"
    optimal = {f"{share}, {law}": number(run, "optimal") for law, run in by_law.items()}
    ends = ", ".join(f"{float(run['off_50'][-1]):.2g} ({_LAWS.get(law, law)})" for law, run in by_law.items())
    return Judgement(
        stated,
        remark=f"From step {_FROM} to {_UNTIL}. Median final 1 - cos with the {_OWN[weights]} solution of the selected "
        f"tokens: {ends}.",
        numbers=labels | optimal,
        expected=dict.fromkeys(labels, -2.0) if weights == "W" else {},
    )


@claim(
    "digits:separable",
    _FEASIBLE,
    "The optimal tokens of patches of digits, with the first patch of each image as its query, can be separated "
    "by one matrix although there are more images than dimensions.",
)
def _separable(runs: Datasets) -> Judgement:
    run = runs["W, patch"]
    separable, selected, unknown = number(run, "separable"), number(run, "all_optimal"), run.attrs["unknown"]
    label = "share of problems whose optimal tokens can be separated"
    return Judgement(
        [above(label, separable, _ALL)],
        remark="With one query per class separation is always possible: W z = Y v separates the optimal tokens. "
        "Separability does not imply that descent from W = 0 selects them: it selects all of them in "
        f"{selected.mean:.0%} of the seeds.",
        numbers={label: separable, "share of seeds that select the optimal token of every input": selected},
        expected={label: 1.0},
        undecided=f"For {unknown} problems separability is not certified." if unknown else "",
    )


_STATEMENTS = {
    "W": (_DESCENT, "Normalized descent on W from zero obeys the Frobenius Att-SVM of the tokens that it selects"),
    "KQ": (_FACTORS, "Normalized descent on (K, Q) obeys the nuclear Att-SVM of the tokens that it selects"),
}
_PREDICTIONS = [
    Prediction(
        f"{weights.lower()}-{law}",
        f"{weights}, {law}",
        _OWN[weights],
        source,
        f"{statement}, if tokens are patches of handwritten digits ({words}).",
    )
    for weights, (source, statement) in _STATEMENTS.items()
    for law, words in _LAWS.items()
]
_CLAIMS = (
    *claims_of("digits", _PREDICTIONS),
    Claim(
        "digits:rate-w",
        _RATE,
        "On patches of digits, as on the sphere, normalized descent on W converges to the direction of the Frobenius "
        "solution like k^-2.",
        partial(_rate, "W"),
        _LONG,
    ),
    Claim(
        "digits:rate-kq",
        _RATE,
        "On patches of digits, normalized descent on (K, Q) converges to the direction of the nuclear solution "
        "without stalling, at the same rate as on the sphere.",
        partial(_rate, "KQ"),
        _LONG,
    ),
    _separable,
)


# Of each token law: its name in (a) and in the other panels, and how its curves are drawn.
_LOOKS = {
    "class": ("digits, one query per class", "digits, class", {"color": palette.TEAL, "linestyle": "-"}),
    "patch": ("digits, first patch as query", "digits, patch", {"color": palette.WINE, "linestyle": "--"}),
    "sphere": ("sphere", "sphere", {"color": palette.GUIDE, "linestyle": ":"}),
}
_MARKS = {"frobenius": "o", "nuclear": "s"}
_TRAINED = {"W": "$W$", "KQ": "$(K, Q)$"}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the ratios of every run, and the distances of W and of (K, Q) from the solution that each obeys."""
    names = {(weights, law): f"{weights}, {law}" for weights in _OWN for law in _LOOKS}
    runs = {which: summaries[name] for which, name in names.items() if name in summaries}
    with page.style():
        figure = page.full(3.3)
        left, *right = figure.subplots(1, 3, width_ratios=(1.15, 1, 1))
        _draw_ratios(left, runs)
        for axes, trained, letter in zip(right, _OWN, "bc", strict=True):
            for law, run in ((law, run) for (weights, law), run in runs.items() if weights == trained):
                _, label, look = _LOOKS[law]
                if not np.isnan(exponent := float(run["exponent"])):
                    label += f": $k^{{{exponent:.2f}}}$"
                curve = (run[f"off_{q}"].values for q in (50, 10, 90))
                page.band(axes, run["snapshot"].values, *curve, label=label, **look)
            axes.set(xscale="log", yscale="log", xlabel="step")
            axes.set_title(f"({letter}) training {_TRAINED[trained]}:\n{page.NORMS[_OWN[trained]]}")
            axes.legend(loc="lower left", handlelength=1.5, title="median, 10th to 90th percentile")
        right[0].set_ylabel("direction error, $1 - \\cos$")
        limits = finding(judgements[f"digits:{each.name}"] for each in _PREDICTIONS)
        figure.suptitle(f"Patches of digits. {limits}")
        patch = runs["W", "patch"]
        page.add_counts(
            figure,
            summaries,
            f"(a): grey: {CLOSE}, above which a norm can be named. First patch as query: the optimal tokens can be "
            f"separated in {float(patch['separable']):.0%} of the problems; training W selects all of "
            f"them in {float(patch['all_optimal']):.0%}.",
        )
    return figure


def _draw_ratios(axes: Axes, runs: dict[tuple[str, str], xarray.Dataset]) -> None:
    rows = np.arange(len(runs))
    for norm, mark in _MARKS.items():
        parts = [[float(run[f"ratio{part}"].sel(norm=norm)) for run in runs.values()] for part in ("", "_low", "_high")]
        ratio, low, high = map(np.array, parts)
        look = {"marker": mark, "markersize": 4, "color": palette.COLOURS[norm], "label": page.NORMS[norm]}
        axes.errorbar(ratio, rows, xerr=[ratio - low, high - ratio], linestyle="none", **look)
    axes.axvline(CLOSE, color=palette.GUIDE, linewidth=0.8)
    labels = [f"{_TRAINED[weights]}, {_LOOKS[law][0].replace(', ', chr(10))}" for weights, law in runs]
    axes.set_yticks(rows, labels, fontsize=7)
    axes.set(xlabel="margin ratio", xlim=(0.3, 1.02), ylim=(len(rows) - 0.5, -0.5))
    axes.set_title("(a) margin ratios at the end")
    axes.legend(loc="lower left", title="mean, 95 % interval")


EXPERIMENT = Experiment(measure, claims=_CLAIMS, summarize=summarize, draw=draw)
