"""Patches of handwritten digits as tokens: the Att-SVM that training obeys, its rate, and feasibility."""

from __future__ import annotations

from functools import partial

import jax
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.bias import ratios
from jaxattn.experiments.bias.predictions import Prediction, claims_of
from jaxattn.study.claims import LEAST_DRAWN, Claim, Datasets, Judgement, Needs, Setting, Source, claim
from jaxattn.study.claims.criteria import above, below, between
from jaxattn.study.estimates import estimated, mean, number, power_law, quantiles, share

# The norm that each training is predicted to obey, by its name in those of the runs.
OWN = {"W": "frobenius", "KQ": "nuclear"}
# The names of the token laws in statements.
_LAWS = {"class": "patches, one query per class", "patch": "patches, the first patch of each image as its query"}
_SPHERE = "sphere"
# Fixed beforehand: how far an exponent may be from the predicted one, and from that on the sphere; the exponent of a
# distance that keeps falling (as in rate); and the share of problems that counts as nearly all.
_NEAR, _GOES_ON, _ALL = 0.2, -0.12, 0.95
# Rates are fitted from step 1000 to this step, for runs that have as many.
_FROM, _UNTIL = 1000, 10_000
_DESCENT = Source("arXiv 2308.16898", "convergence of gradient descent on W, tested on real tokens", Setting.OURS)
_FACTORS = Source("arXiv 2308.16898", "implicit bias of training (K, Q), tested on real tokens", Setting.OURS)
_FEASIBLE = Source("arXiv 2308.16898", "theorem on separability, tested on real tokens and n > d", Setting.OURS)
_RATE = Source("arXiv 2308.16898", "local convergence figure, continued as in rate, on real tokens", Setting.OURS)


def summarize(runs: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate margin ratios, distances from a run's own solution and their rate, and the share of separable problems.

    Returns:
        For each run what `ratios.estimate` returns, and, for the norm that it is claimed to obey, `off_10`, `off_50`
        and `off_90`, quantiles of 1 - cos, (snapshot,), and its `exponent` of the step, from step 1000 to 10,000, NaN
        for shorter runs; `optimal`, the share of inputs whose selected token is optimal, and `all_optimal`, the share
        of seeds for which all are; and `separable`, the share of problems whose optimal tokens can be separated.
    """
    of_ratios, of_own = jax.random.split(key)
    return {
        name: ratios.estimate(run, jax.random.fold_in(of_ratios, k)).assign(
            _estimate(run, jax.random.fold_in(of_own, k))
        )
        for k, (name, run) in enumerate(runs.items())
    }


def _estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    off = run["off"].sel(norm=OWN["KQ" if run.attrs["weights"] == "factored" else "W"], drop=True)
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
    """For both laws of patches the exponent must be the predicted one, and that on the sphere.

    For (K, Q) it is a correction that the distance falls faster than on the sphere.
    """
    by_law = {law: runs[f"{weights}, {law}"] for law in (*_LAWS, _SPHERE)}
    exponents = {law: number(run, "exponent") for law, run in by_law.items()}
    stated, corrected = [], []
    for law, words in _LAWS.items():
        label = f"exponent, {words},"
        predicted = (
            between(label, exponents[law], -2 - _NEAR, -2 + _NEAR)
            if weights == "W"
            else below(label, exponents[law], _GOES_ON)
        )
        apart, label = exponents[law].minus(exponents[_SPHERE]), f"{label} minus that on the sphere"
        stated += [predicted, between(label, apart, -_NEAR, _NEAR)]
        corrected += [predicted, below(label, apart, _NEAR)]
    labels = {f"exponent, {_LAWS.get(law, law)}": exponent for law, exponent in exponents.items()}
    ends = ", ".join(f"{float(run['off_50'][-1]):.2g} ({_LAWS.get(law, law)})" for law, run in by_law.items())
    return Judgement(
        stated,
        corrected if weights == "KQ" else (),
        correction="the distance keeps falling, at least as fast as on the sphere." if weights == "KQ" else "",
        remark=f"From step {_FROM} to {_UNTIL}. Median final 1 - cos with the {OWN[weights]} solution of the selected "
        f"tokens: {ends}.",
        numbers=labels
        | {
            f"share of inputs whose optimal token is selected, {law}": number(run, "optimal")
            for law, run in by_law.items()
        },
        expected=dict.fromkeys(labels, -2.0) if weights == "W" else {},
    )


@claim(
    "digits:separable",
    _FEASIBLE,
    "The optimal tokens of patches of digits, with the first patch of each image as its query, can be separated "
    "by one matrix although there are more images than dimensions.",
)
def _separable(runs: Datasets) -> Judgement:
    """In nearly all problems the optimal tokens must be separable if each image has its own query."""
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
    "W": ("w", _DESCENT, "Normalized descent on W from zero obeys the Frobenius Att-SVM of the tokens that it selects"),
    "KQ": ("kq", _FACTORS, "Normalized descent on (K, Q) obeys the nuclear Att-SVM of the tokens that it selects"),
}
CLAIMS = (
    *claims_of(
        "digits",
        [
            Prediction(
                f"{name}-{law}",
                f"{weights}, {law}",
                OWN[weights],
                source,
                f"{statement}, if tokens are patches of handwritten digits ({words}).",
            )
            for weights, (name, source, statement) in _STATEMENTS.items()
            for law, words in _LAWS.items()
        ],
    ),
    Claim(
        "digits:rate-w",
        _RATE,
        "On patches of digits, as on the sphere, normalized descent on W converges to the direction of the Frobenius "
        "solution like k^-2.",
        partial(_rate, "W"),
        Needs(LEAST_DRAWN, _UNTIL),
    ),
    Claim(
        "digits:rate-kq",
        _RATE,
        "On patches of digits, normalized descent on (K, Q) converges to the direction of the nuclear solution "
        "without stalling, at the same rate as on the sphere.",
        partial(_rate, "KQ"),
        Needs(LEAST_DRAWN, _UNTIL),
    ),
    _separable,
)
