"""Patches of handwritten digits as tokens: the Att-SVM that training obeys, its rate, and feasibility."""

from __future__ import annotations

import math
from functools import partial

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.beyond.digits import examples
from jaxattn.experiments.bias import judging, ratios
from jaxattn.experiments.bias.judging import Prediction
from jaxattn.statistics import bootstrap, proportion, variables
from jaxattn.study.claims import (
    Claim,
    Datasets,
    Judgement,
    Number,
    Setting,
    Source,
    above,
    below,
    between,
    counts_of,
    number,
    too_few,
)
from jaxattn.study.estimates import exponents

OWN = {"W": "frobenius", "KQ": "nuclear"}
# The names of the token laws in statements.
LAWS = {"class": "patches, one query per class", "patch": "patches, the first patch of each image as its query"}
_SPHERE = "sphere"
# Fixed beforehand: how far an exponent may be from the predicted one, and from that on the sphere; the exponent of a
# distance that keeps falling (as in rate); and the share of problems that counts as nearly all.
_NEAR, _GOES_ON, _ALL = 0.2, -0.12, 0.95
# Rates are fitted from step 1000 to this step, for runs that have as many.
_FROM, _UNTIL = 1000, 10_000
_FASTER = "the distance keeps falling, at least as fast as on the sphere."
_DESCENT = Source("arXiv 2308.16898", "convergence of gradient descent on W, tested on real tokens", Setting.OURS)
_FACTORS = Source("arXiv 2308.16898", "implicit bias of training (K, Q), tested on real tokens", Setting.OURS)
_FEASIBLE = Source("arXiv 2308.16898", "theorem on separability, tested on real tokens and n > d", Setting.OURS)


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate margin ratios, distances from a run's own solution and their rate, and the share of separable problems.

    Args:
        datasets: of `measure`.
        key: of the bootstrap.

    Returns:
        For each run what `ratios.summarize` returns, and, for the norm that it is claimed to obey, `off_10`, `off_50`
        and `off_90`, quantiles of 1 - cos, (snapshot,); for runs of at least 10,000 steps `exponent`, of the step, from
        step 1000 to 10,000; `optimal`, the share of inputs whose selected token is optimal, and `all_optimal`, the
        share of seeds for which all are; and `separable`, the share of problems whose optimal tokens can be separated.

    Raises:
        ValueError: a run of which no seed was kept, or distances that are not positive.
    """
    if wrong := [run for run, one in datasets.items() if not (one["off"] > 0).all()]:
        raise ValueError(f"digits: expected positive distances, found others in {wrong}")
    ranked_key, own_key = jax.random.split(key)
    ranked = ratios.summarize(datasets, ranked_key)
    keys = jax.random.split(own_key, len(datasets))
    return {run: ranked[run].assign(_estimates(datasets[run], own)) for run, own in zip(datasets, keys, strict=True)}


def _estimates(one: xarray.Dataset, key: PRNGKeyArray) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    steps, off = one["snapshot"].values, one["off"].sel(norm=OWN[one.attrs["weights"]]).values
    keys = jax.random.split(key)
    optimal = one["optimal"].values
    estimates = {
        "optimal": ((), bootstrap(optimal, keys[0])),
        "all_optimal": ((), proportion(optimal >= 1)),
        "separable": ((), proportion(one["optimal_margin"].values > 0)),
    }
    if steps[-1] >= _UNTIL:
        late = (steps >= _FROM) & (steps <= _UNTIL)
        estimates["exponent"] = ((), bootstrap(exponents(steps[None, late], off[:, late]), keys[1]))
    quantiles = {f"off_{q}": (("snapshot",), np.quantile(off, q / 100, axis=0)) for q in (10, 50, 90)}
    return variables(estimates) | quantiles


def exponent(one: xarray.Dataset) -> Number:
    """Return the exponent of the step for a run; NaN if the run is too short."""
    return number(one, "exponent") if "exponent" in one else Number.exact(math.nan)


def _judge_rate(weights: str, summaries: Datasets) -> Judgement:
    """For both laws of patches the exponent must be the predicted one, and that on the sphere.

    For (K, Q) it is a correction that the distance falls faster than on the sphere.
    """
    found = {law: ratios.run_of(summaries, weights=weights, tokens=law) for law in (*LAWS, _SPHERE)}
    runs = {law: one for law, one in found.items() if one is not None}
    if len(runs) < len(found):
        return Judgement.withheld("A run on patches or on the sphere is not made at this size.")
    numbers = {law: exponent(one) for law, one in runs.items()}
    stated, slowest = [], []
    for law, words in LAWS.items():
        label = f"exponent, {words},"
        predicted = between(label, numbers[law], -2 - _NEAR, -2 + _NEAR)
        stated.append(predicted if weights == "W" else below(label, numbers[law], _GOES_ON))
        apart = numbers[law].minus(numbers[_SPHERE])
        stated.append(between(f"{label} minus that on the sphere", apart, -_NEAR, _NEAR))
        slowest += [stated[-2], below(f"{label} minus that on the sphere", apart, _NEAR)]
    last = min(int(one["snapshot"][-1]) for one in runs.values())
    short = f"A run of {last} steps is too short for a rate; {_UNTIL} are needed." if last < _UNTIL else ""
    known = {} if short else {f"exponent, {LAWS.get(law, law)}": value for law, value in numbers.items()}
    known |= {f"share of inputs whose optimal token is selected, {law}": number(runs[law], "optimal") for law in runs}
    ends = ", ".join(f"{float(one['off_50'][-1]):.2g} ({LAWS.get(law, law)})" for law, one in runs.items())
    return Judgement(
        numbers=known,
        expected={label: -2.0 for label in known if label.startswith("exponent") and weights == "W"},
        counts=counts_of({one.attrs["run"]: one for one in runs.values()}),
        stated=tuple(stated),
        corrected=tuple(slowest) if weights == "KQ" else (),
        correction=_FASTER if weights == "KQ" else "",
        undecided=short or too_few(min(int(one.attrs["kept"]) for one in runs.values())),
        remark=f"From step {_FROM} to {_UNTIL}. Median final 1 - cos with the {OWN[weights]} solution of the selected "
        f"tokens: {ends}.",
    )


def _judge_separable(summaries: Datasets) -> Judgement:
    """In nearly all problems the optimal tokens must be separable if each image has its own query."""
    one = ratios.run_of(summaries, weights="W", tokens="patch")
    if one is None:
        return Judgement.withheld("The run on patches with a query for each image is not made at this size.")
    share, unknown = number(one, "separable"), int(one.attrs["unknown"])
    label = "share of problems whose optimal tokens can be separated"
    selected = number(one, "all_optimal")
    numbers = {label: share, "share of seeds that select the optimal token of every input": selected}
    return Judgement(
        numbers=numbers,
        expected={label: 1.0},
        counts=counts_of({one.attrs["run"]: one}),
        stated=(above(label, share, _ALL),),
        undecided=too_few(int(one.attrs["attempted"]))
        or (f"For {unknown} problems separability is not certified." if unknown else ""),
        remark="With one query per class separation is always possible: W z = Y v separates the optimal tokens. "
        "Separability does not imply that descent from W = 0 selects them: it selects all of them in "
        f"{selected.mean:.0%} of the seeds.",
    )


_STATEMENTS = {
    "W": ("w", _DESCENT, "Normalized descent on W from zero obeys the Frobenius Att-SVM of the tokens that it selects"),
    "KQ": ("kq", _FACTORS, "Normalized descent on (K, Q) obeys the nuclear Att-SVM of the tokens that it selects"),
}
CLAIMS = (
    *judging.claims(
        "digits",
        [
            Prediction(
                f"{name}-{law}",
                {"weights": weights, "tokens": law},
                OWN[weights],
                source,
                f"{statement}, if tokens are patches of handwritten digits ({words}).",
            )
            for weights, (name, source, statement) in _STATEMENTS.items()
            for law, words in LAWS.items()
        ],
        examples.of_prediction,
    ),
    Claim(
        "digits:rate-w",
        Source("arXiv 2308.16898", "local convergence figure, continued as in rate, on real tokens", Setting.OURS),
        "On patches of digits, as on the sphere, normalized descent on W converges to the direction of the Frobenius "
        "solution like k^-2.",
        partial(_judge_rate, "W"),
        partial(examples.of_rate, "W"),
    ),
    Claim(
        "digits:rate-kq",
        Source("arXiv 2308.16898", "local convergence figure, continued as in rate, on real tokens", Setting.OURS),
        "On patches of digits, normalized descent on (K, Q) converges to the direction of the nuclear solution "
        "without stalling, at the same rate as on the sphere.",
        partial(_judge_rate, "KQ"),
        partial(examples.of_rate, "KQ"),
    ),
    Claim(
        "digits:separable",
        _FEASIBLE,
        "The optimal tokens of patches of digits, with the first patch of each image as its query, can be separated "
        "by one matrix although there are more images than dimensions.",
        _judge_separable,
        examples.of_separable,
    ),
)
