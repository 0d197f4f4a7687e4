"""Sequence-to-sequence and causal self-attention (2308.16898): training compared with the SVMs over all positions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn import svm
from jaxattn.experiments.sequences.positions.measure import PUBLISHED
from jaxattn.statistics import bootstrap, proportion, variables
from jaxattn.study.claims import LEAST_SEEDS, TRAINED, Claim, Datasets, Judgement, Kind, Needs, Setting, Source, claim
from jaxattn.study.claims.criteria import Criterion, Number, above, below
from jaxattn.study.estimates import estimated, geometric_mean, number
from jaxattn.study.measuring.curves import at_steps, curves, named
from jaxattn.study.measuring.growth import AT_REST, growth

_SOURCE = Source("arXiv 2308.16898", "section 7, extension to sequence-to-sequence and causal attention", Setting.OURS)
# W for longer than published, (K, Q) also for longer and with decreasing steps, and the path of W. The runs with causal
# attention have the same names after a prefix.
LONG, FALLING, PATH = "W, exact direction", "KQ, exact direction", "W, regularization path"
PREFIXES = {"sequence": "", "causal": "causal "}
# Folded into the key of a run, which its curves split in two.
_GROWTH, _MARGIN, _LENGTH = 2, 3, 4
# Fixed beforehand: thresholds for a mean correlation, and for a mean probability or a share of seeds; paths that end at
# smaller radii decide nothing.
_CLOSE, _SATURATED, _FAR = 0.99, 0.999, 300.0


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Estimate the curves of all runs over the kept seeds, and what the claims need of their ends.

    The published runs also have the shares of seeds whose SVM is certified, `separated`, or not certified infeasible,
    `separable`, and `optimal_share`; those of (K, Q) have what `growth.growth` returns, and `length`, the geometric
    mean of ||K Q^T Z||; and the one with decreasing steps has `margin`, the final margin ratio.
    """
    summaries = {}
    for attention, attention_key in zip(PREFIXES, jax.random.split(key, len(PREFIXES)), strict=True):
        own = {name: run for name, run in runs.items() if run.attrs["data"] == attention}
        *keys, share_key = jax.random.split(attention_key, len(own) + 1)
        for (name, run), run_key in zip(own.items(), keys, strict=True):
            summaries[name] = _along_path(run, run_key) if "radius" in run.dims else _of_run(run, run_key, share_key)
    return summaries


def _of_run(run: xarray.Dataset, key: PRNGKeyArray, share_key: PRNGKeyArray) -> xarray.Dataset:
    is_factored, is_published = run.attrs["weights"] == "factored", run.attrs["optimizer"] == PUBLISHED
    summary = curves(run, key)
    if is_published:
        summary = summary.assign(_shares(run, jax.random.fold_in(share_key, int(is_factored))))
    if is_factored:
        lengths = estimated(run, jax.random.fold_in(key, _LENGTH), length=geometric_mean(run["length"]))
        summary = summary.assign(growth(run["length"], jax.random.fold_in(key, _GROWTH))).assign(lengths)
    if is_factored and not is_published:
        ends = run["margin_ratio"].sel(norm="nuclear").values[:, -1]
        summary = summary.assign(variables({"margin": ((), bootstrap(ends, jax.random.fold_in(key, _MARGIN)))}))
    return summary


def _along_path(path: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate the correlations along a path, and the share of seeds that select all optimal tokens."""
    selected = path["selected"].values.astype(bool)
    estimates = {
        "correlation": (("norm", "radius"), bootstrap(1 - path["off"].values, key)),
        "selected": (("radius",), proportion(selected)),
    }
    missed = {"missed": (("radius",), (~selected).sum(axis=0))}
    return xarray.Dataset(variables(estimates) | missed, path[["norm", "radius"]].coords, path.attrs)


def _shares(run: xarray.Dataset, key: PRNGKeyArray) -> dict[str, Any]:
    """Estimate the share of seeds for which one SVM separates the selected tokens, and the share of optimal tokens."""
    status = run["status"].values
    infeasible = (status == svm.Status.INFEASIBLE).any(axis=1)
    estimates = {
        "separated": ((), proportion((status == svm.Status.OPTIMAL).all(axis=1))),
        "optimal_share": ((), bootstrap(run["optimal_share"].values, key)),
    }
    return variables(estimates) | {"separable": ((), 1 - infeasible.mean())}


# The statements begin with the attention they are about, the ids of causal attention with its name.
_WITH = {"sequence": "With attention to the whole sequence", "causal": "With causal attention"}
_IDS = {"sequence": "", "causal": "causal-"}


def _on_both(
    name: str, statement: str, needs: Needs = TRAINED, kind: Kind = Kind.FINDING
) -> Callable[[Callable[..., Judgement]], list[Claim]]:
    """Make a rule, of the runs and the prefix of their names, into a claim on each attention."""
    return lambda rule: [
        claim(f"sequence:{_IDS[attention]}{name}", _SOURCE, f"{_WITH[attention]}, {statement}", needs, kind)(
            partial(rule, prefix=prefix)
        )
        for attention, prefix in PREFIXES.items()
    ]


# A check: weights that rank the selected tokens first satisfy the constraints up to scaling.
@_on_both(
    "selection",
    "every position selects one token, and one SVM with a constraint set for each input and position separates the "
    "selected tokens.",
    kind=Kind.CHECK,
)
def _selection(runs: Datasets, prefix: str) -> Judgement:
    """Probabilities must end near 1, and the SVM of every seed's selected tokens must be solved."""
    numbers, expected = {}, {}
    stated: list[Criterion] = []
    for weights in ("W", "KQ"):
        run = runs[prefix + weights]
        last, probability = int(run["snapshot"][-1]), number(run, "probability", at=-1)
        label = f"{weights}, mean largest probability at step {last}"
        feasible = f"{weights}, share of seeds with a certified SVM of the selected tokens"
        share = f"{weights}, share of positions with a choice that select their optimal token"
        numbers |= {label: probability, feasible: number(run, "separated"), share: number(run, "optimal_share")}
        expected |= {label: 1.0, feasible: 1.0}
        # An SVM that is neither solved nor certified infeasible leaves open whether the tokens can be separated.
        certified = Number(*(float(run[name]) for name in ("separated", "separated", "separable")))
        stated += [above(f"{label},", probability, _SATURATED), above(feasible, certified, _SATURATED)]
    of_W, of_KQ = (float(runs[prefix + weights]["optimal_share"]) for weights in ("W", "KQ"))
    counts = runs[f"{prefix}W"].attrs
    return Judgement(
        stated,
        numbers=numbers,
        expected=expected,
        remark="Final weights that rank the selected tokens first satisfy the constraints up to scaling, so the "
        "selected tokens can always be separated, except for ties. Training W selects the optimal token at "
        f"{of_W:.0%} of the positions with a choice, and training (K, Q) at {of_KQ:.0%}. The optimal tokens of all "
        f"{counts['inputs']} positions can be separated in {counts['optimal_kept']} of {counts['attempted']} problems "
        f"({counts['optimal_infeasible']} certified infeasible).",
    )


@_on_both(
    "W",
    "normalized gradient descent on W converges in direction to the Frobenius solution of the SVM that separates the "
    "selected tokens of every input and position.",
)
def _W(runs: Datasets, prefix: str) -> Judgement:
    """The published run must end nearer to its own solution; the one along the exact direction must end close to it."""
    published, long = runs[prefix + "W"], runs[prefix + LONG]
    name = f"frobenius, along the exact gradient direction at step {int(long['snapshot'][-1])}"
    end = number(long, "correlation", at=-1, norm="frobenius")
    return Judgement(
        [_ahead(published, "frobenius", "nuclear"), above(f"{name}, correlation", end, _CLOSE)],
        numbers=_correlations(published, "frobenius", "nuclear") | {name: end},
        expected={name: 1.0},
    )


@_on_both(
    "KQ",
    "normalized gradient descent on (K, Q) converges in direction to the nuclear solution of the SVM that separates "
    "the selected tokens of every input and position.",
)
def _KQ(runs: Datasets, prefix: str) -> Judgement:
    """The published run must end near its solution, and nearer to it than to the other."""
    published = runs[prefix + "KQ"]
    last = int(published["snapshot"][-1])
    end = number(published, "correlation", at=-1, norm="nuclear")
    return Judgement(
        [_ahead(published, "nuclear", "frobenius"), above(f"nuclear correlation at step {last},", end, _CLOSE)],
        remark=f"This is the direction at step {last}. See the claims on the norm of K Q^T, which a limit requires to "
        "grow, and on descent without a penalty.",
        numbers=_correlations(published, "nuclear", "frobenius"),
        expected={f"nuclear at step {last}": 1.0},
    )


@_on_both(
    "norm-KQ",
    "the norm of K Q^T still grows at the end of normalized gradient descent on (K, Q), as convergence in direction "
    "requires.",
)
def _norm(runs: Datasets, prefix: str) -> Judgement:
    """The norm must grow in the published run; as corrected, without a penalty and with decreasing steps."""
    published, long = runs[prefix + "KQ"], runs[prefix + FALLING]
    return Judgement(
        [_grows("published", published)],
        [_grows("decreasing steps", long)],
        correction="it does without a penalty, along the exact gradient direction and with steps that fall like "
        f"k^-1/2, where ||K Q^T Z|| grows like k^{float(long['growth']):.2g}. In the published run it goes like "
        f"k^{float(published['growth']):.2g}, since the penalty on ||K||^2 + ||Q||^2, with coefficient 2.2e-16, "
        "balances the risk (see kq-penalty).",
    )


@_on_both(
    "limit-KQ",
    "descent on (K, Q) without a penalty, along the exact gradient direction and with steps that fall like k^-1/2, "
    "converges in direction to the nuclear solution of the SVM that separates the selected tokens of every input and "
    "position.",
)
def _limit(runs: Datasets, prefix: str) -> Judgement:
    """The long run must end near its solution, with nearly the largest margin, and its norm must grow."""
    long = runs[prefix + FALLING]
    after = int(long["snapshot"][-1])
    name, margin = f"nuclear correlation at step {after}", f"margin ratio at step {after}"
    return Judgement(
        [
            above(f"{name},", number(long, "correlation", at=-1, norm="nuclear"), _CLOSE),
            above(f"{margin},", number(long, "margin"), _CLOSE),
            _grows("decreasing steps", long),
        ],
        expected={f"{name},": 1.0, f"{margin},": 1.0},
    )


def _grows(name: str, run: xarray.Dataset) -> Criterion:
    steps = f"from step {int(run['since'])} to {int(run['until'])}"
    return above(f"p in ||K Q^T Z|| ~ k^p {steps}, {name},", number(run, "growth"), AT_REST)


def _correlations(run: xarray.Dataset, *norms: str) -> dict[str, Number]:
    """Return the correlations of a published run at the steps that are reported."""
    steps = (200, 1000, int(run["snapshot"][-1]))
    return named({norm: at_steps(run, "correlation", steps, norm=norm) for norm in norms})


def _ahead(run: xarray.Dataset, own: str, other: str) -> Criterion:
    """Ask that a run ends nearer to its own solution than to the other."""
    end, of_other = (number(run, "correlation", at=-1, norm=norm) for norm in (own, other))
    label = f"{own} minus {other} correlation at step {int(run['snapshot'][-1])},"
    return above(label, end.minus(of_other), 0)


@_on_both(
    "path",
    "the regularization path of W converges in direction to the Frobenius solution of the SVM that selects the optimal "
    "token of every input and position.",
    needs=Needs(LEAST_SEEDS),
)
def _path(runs: Datasets, prefix: str) -> Judgement:
    """The path must end near the Frobenius solution, nearer than to the nuclear one, and select all optimal tokens."""
    path = runs[prefix + PATH]
    last = float(path["radius"][-1])
    frobenius, nuclear = (number(path, "correlation", norm=norm, radius=last) for norm in ("frobenius", "nuclear"))
    at, missed = f"at R = {last:g}", Number.exact(int(path["missed"][-1]))
    selected = f"share of seeds that select all optimal tokens {at}"
    return Judgement(
        [
            above(f"frobenius correlation {at}", frobenius, _CLOSE),
            above(f"frobenius minus nuclear correlation {at}", frobenius.minus(nuclear), 0),
            below(f"paths that do not select all optimal tokens {at}", missed, 0),
        ],
        numbers={
            f"frobenius {at}": frobenius,
            f"nuclear {at}": nuclear,
            selected: number(path, "selected", radius=last),
        },
        expected={f"frobenius {at}": 1.0, selected: 1.0},
        undecided=f"Radii up to {last:g} are too small to decide; the published ones end at 1000."
        if last < _FAR
        else "",
        remark="The path of (K, Q) is not followed here: see regularization-path.",
    )


CLAIMS = tuple(itertools.chain(*zip(_selection, _W, _KQ, _norm, _limit, _path, strict=True)))
