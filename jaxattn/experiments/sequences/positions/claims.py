"""Sequence-to-sequence and causal self-attention (2308.16898): training compared with the SVMs over all positions."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn import svm
from jaxattn.experiments.sequences.positions import examples, judging
from jaxattn.experiments.sequences.positions.measure import FALLING, LONG, OWN, PATH, PREFIXES, of_attention
from jaxattn.statistics import bootstrap, proportion, variables
from jaxattn.study.claims import Claim, Datasets, Kind, Setting, Source, counts_of
from jaxattn.study.measuring.curves import curves
from jaxattn.study.measuring.growth import growth

_SOURCE = Source("arXiv 2308.16898", "section 7, extension to sequence-to-sequence and causal attention", Setting.OURS)
# Folded into the key of a run, which its curves split in two.
_GROWTH, _MARGIN = 2, 3


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate the curves of all runs over the kept seeds.

    Args:
        datasets: of `measure`, by the names of the runs: "W", "KQ", `LONG`, `FALLING` and `PATH`, and the same after
            the prefix of causal attention. A claim about a missing run is not decided.
        key: of the bootstrap.

    Returns:
        For each of them a dataset of means with interval bounds, which the figure draws. Those of "W" and "KQ" also
        hold the shares of seeds whose SVM is certified, `separated`, or not certified infeasible, `separable`, and
        `optimal_share`; those of "KQ" and `FALLING` also hold what `growth.growth` returns, and the latter `margin`,
        the final margin ratio.

    Raises:
        ValueError: a run or path of which no seed was kept.
    """
    if not all(one.sizes["seed"] for one in datasets.values()):
        raise ValueError(f"sequences: expected a kept seed in each run, found counts {counts_of(datasets)}")
    summaries = {}
    for attention, own_key in zip(PREFIXES, jax.random.split(key, len(PREFIXES)), strict=True):
        estimated = _estimated(of_attention(datasets, attention), own_key)
        summaries |= {PREFIXES[attention] + run: one for run, one in estimated.items()}
    return summaries


def _estimated(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate the curves of the runs with one attention, by their names without its prefix."""
    *own_keys, share_key = jax.random.split(key, len(datasets) + 1)
    keys = dict(zip(datasets, own_keys, strict=True))
    summaries = {run: (_along_path if run == PATH else curves)(one, keys[run]) for run, one in datasets.items()}
    for k, run in enumerate(OWN):
        if run in datasets:
            summaries[run] = summaries[run].assign(_shares(datasets[run], jax.random.fold_in(share_key, k)))
    for run in {"KQ", FALLING} & set(datasets):
        grows = growth(datasets[run]["length"], jax.random.fold_in(keys[run], _GROWTH))
        summaries[run] = summaries[run].assign(dict(grows.data_vars))
    if FALLING in datasets:
        ends = datasets[FALLING]["margin_ratio"].sel(norm="nuclear").values[:, -1]
        margin = bootstrap(ends, jax.random.fold_in(keys[FALLING], _MARGIN))
        summaries[FALLING] = summaries[FALLING].assign(variables({"margin": ((), margin)}))
    return summaries


def _along_path(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate the correlations along a path, and the share of seeds that select all optimal tokens."""
    selected = one["selected"].values.astype(bool)
    estimates = {
        "correlation": (("norm", "radius"), bootstrap(1 - one["off"].values, key)),
        "selected": (("radius",), proportion(selected)),
    }
    coordinates = {name: one[name].values for name in ("norm", "radius")}
    missed = {"missed": (("radius",), (~selected).sum(axis=0))}
    return xarray.Dataset(variables(estimates) | missed, coordinates, one.attrs)


def _shares(one: xarray.Dataset, key: PRNGKeyArray) -> dict[str, Any]:
    """Estimate the share of seeds for which one SVM separates the selected tokens, and the share of optimal tokens."""
    status = one["status"].values
    estimates = {
        "separated": ((), proportion((status == svm.Status.OPTIMAL).all(axis=1))),
        "optimal_share": ((), bootstrap(one["optimal_share"].values, key)),
    }
    infeasible = (status == svm.Status.INFEASIBLE).any(axis=1)
    return variables(estimates) | {"separable": ((), 1 - infeasible.mean())}


# The statements begin with the attention they are about, the ids of causal attention with its name.
_WITH = {"sequence": "With attention to the whole sequence", "causal": "With causal attention"}
_IDS = {"sequence": "", "causal": "causal-"}
CLAIMS = tuple(
    Claim(
        f"sequence:{_IDS[attention]}{name}",
        _SOURCE,
        f"{_WITH[attention]}, {statement}",
        partial(judging.judged, judge, runs, attention),
        partial(of, attention),
        kind,
    )
    for attention in PREFIXES
    for kind, name, runs, statement, judge, of in (
        (
            # Weights that rank the selected tokens first satisfy the constraints up to scaling.
            Kind.CHECK,
            "selection",
            tuple(OWN),
            "every position selects one token, and one SVM with a constraint set for each input and position "
            "separates the selected tokens.",
            judging.judge_selection,
            examples.of_selection,
        ),
        (
            Kind.FINDING,
            "W",
            ("W", LONG),
            "normalized gradient descent on W converges in direction to the Frobenius solution of the SVM that "
            "separates the selected tokens of every input and position.",
            judging.judge_W,
            examples.of_W,
        ),
        (
            Kind.FINDING,
            "KQ",
            ("KQ", FALLING),
            "normalized gradient descent on (K, Q) converges in direction to the nuclear solution of the SVM that "
            "separates the selected tokens of every input and position.",
            judging.judge_KQ,
            examples.of_KQ,
        ),
        (
            Kind.FINDING,
            "path",
            (PATH,),
            "the regularization path of W converges in direction to the Frobenius solution of the SVM that selects "
            "the optimal token of every input and position.",
            judging.judge_path,
            examples.of_path,
        ),
    )
)
