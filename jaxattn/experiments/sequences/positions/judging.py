"""How the claims on sequences are judged: four rules, each for the runs of one attention that it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import xarray

from jaxattn.experiments.sequences.positions.measure import FALLING, LONG, OWN, PREFIXES, of_attention
from jaxattn.study.claims import (
    LEAST_SEEDS,
    Criterion,
    Datasets,
    Judgement,
    Number,
    above,
    below,
    counts_of,
    number,
    too_few,
    too_little,
)
from jaxattn.study.measuring.curves import at_steps, named
from jaxattn.study.measuring.growth import AT_REST

# Fixed beforehand: thresholds for a mean correlation, and for a mean probability or a share of seeds; paths that end at
# smaller radii decide nothing.
_CLOSE, _SATURATED, _FAR = 0.99, 0.999, 300.0


def judged(
    judge: Callable[[Datasets], Judgement], runs: Sequence[str], attention: str, summaries: Datasets
) -> Judgement:
    """Judge the runs with one attention; nothing is decided if one is missing.

    Args:
        judge: one of the rules below.
        runs: the runs that the rule needs, without the prefix of the attention.
        attention: "sequence" or "causal".
        summaries: of the runs with both attentions.
    """
    there, prefix = of_attention(summaries, attention), PREFIXES[attention]
    if not set(runs) <= set(there):
        expected, found = ([prefix + run for run in runs if run in some] for some in (runs, there))
        return Judgement.withheld(f"Expected the runs {expected}, found {found}.")
    judgement = judge({run: there[run] for run in runs})
    return replace(judgement, counts={prefix + run: counts for run, counts in judgement.counts.items()})


def judge_selection(summaries: Datasets) -> Judgement:
    """Probabilities must end near 1, and the SVM of every seed's selected tokens must be solved."""
    numbers, expected = {}, {}
    stated: list[Criterion] = []
    for run in OWN:
        one = summaries[run]
        last = int(one["snapshot"].values[-1])
        ends = named({f"{run}, mean largest probability": at_steps(one, "probability", (last,))})
        feasible = f"{run}, share of seeds with a certified SVM of the selected tokens"
        share = f"{run}, share of positions with a choice that select their optimal token"
        expected |= dict.fromkeys((*ends, feasible), 1.0)
        numbers |= ends | {feasible: number(one, "separated"), share: number(one, "optimal_share")}
        # An SVM that is neither solved nor certified infeasible leaves open whether the tokens can be separated.
        certified = Number(*(float(one[name]) for name in ("separated", "separated", "separable")))
        stated += [
            above(f"{run}, mean largest probability at step {last},", _end(one, "probability"), _SATURATED),
            above(feasible, certified, _SATURATED),
        ]
    one = summaries["W"]
    return Judgement(
        numbers=numbers,
        expected=expected,
        counts=counts_of(summaries),
        stated=tuple(stated),
        undecided=too_little(summaries["W"]) or too_little(summaries["KQ"]),
        remark="Final weights that rank the selected tokens first satisfy the constraints up to scaling, so the "
        "selected tokens can always be separated, except for ties. Training W selects the optimal token at "
        f"{float(one['optimal_share']):.0%} of the positions with a choice, and training (K, Q) at "
        f"{float(summaries['KQ']['optimal_share']):.0%}. The optimal tokens of all {one.attrs['inputs']} "
        f"positions can be separated in {one.attrs['optimal_kept']} of {one.attrs['attempted']} problems "
        f"({one.attrs['optimal_infeasible']} certified infeasible).",
    )


def judge_W(summaries: Datasets) -> Judgement:
    """The published run must end nearer to its own solution; the one along the exact direction must end close to it."""
    published, long = summaries["W"], summaries[LONG]
    last, name = int(long["snapshot"].values[-1]), "frobenius, along the exact gradient direction"
    reads = _reads(published, "frobenius", "nuclear")
    reads[name] = at_steps(long, "correlation", (last,), norm="frobenius")
    numbers = named(reads)
    return Judgement(
        numbers=numbers,
        expected={f"{name} at step {last}": 1.0},
        counts=counts_of(summaries),
        stated=(
            _ahead(published, "frobenius", "nuclear"),
            above(f"{name} at step {last}, correlation", _end(long, "correlation", norm="frobenius"), _CLOSE),
        ),
        undecided=too_little(published) or too_little(long),
    )


def judge_KQ(summaries: Datasets) -> Judgement:
    """The published run must end near its solution, and K Q^T grow; as corrected, with decreasing steps."""
    one, long = summaries["KQ"], summaries[FALLING]
    last, after = int(one["snapshot"].values[-1]), int(long["snapshot"].values[-1])
    name, margin = "nuclear, with decreasing steps", f"margin ratio, with decreasing steps at step {after}"
    reads = _reads(one, "nuclear", "frobenius") | {name: at_steps(long, "correlation", (after,), norm="nuclear")}
    numbers = named(reads)
    numbers[margin] = of_margin = number(long, "margin")
    end, of_long = _end(one, "correlation", norm="nuclear"), _end(long, "correlation", norm="nuclear")
    return Judgement(
        numbers=numbers,
        expected={f"nuclear at step {last}": 1.0, f"{name} at step {after}": 1.0, margin: 1.0},
        counts=counts_of(summaries),
        # Convergence in direction requires an unbounded norm.
        stated=(
            _ahead(one, "nuclear", "frobenius"),
            above(f"nuclear correlation at step {last},", end, _CLOSE),
            _grows("published", one),
        ),
        corrected=(
            above(f"{name} at step {after}, correlation", of_long, _CLOSE),
            above(margin, of_margin, _CLOSE),
            _grows("decreasing steps", long),
        ),
        correction="it does without a penalty, along the exact gradient direction and with steps that fall like "
        f"k^-1/2: at step {after} the correlation with the nuclear solution is {of_long.mean:.4f}, the "
        f"margin ratio is {of_margin.mean:.4f}, and ||K Q^T Z|| grows like k^{float(long['growth']):.2g}. "
        f"The published run ends at a correlation of {end.mean:.4f}, but its norm goes like "
        f"k^{float(one['growth']):.2g}: it no longer grows, since its penalty on ||K||^2 + ||Q||^2, with "
        "coefficient 2.2e-16, balances the risk (see kq-penalty).",
        undecided=too_little(one) or too_little(long),
    )


def _grows(name: str, one: xarray.Dataset) -> Criterion:
    since, until = int(one["since"]), int(one["until"])
    return above(f"p in ||K Q^T Z|| ~ k^p from step {since} to {until}, {name},", number(one, "growth"), AT_REST)


def judge_path(summaries: Datasets) -> Judgement:
    """The path must end near the Frobenius solution, nearer than to the nuclear one, and select all optimal tokens."""
    (path,) = summaries.values()
    last = float(path["radius"][-1])
    end = path.sel(radius=last)
    labels = {
        f"frobenius at R = {last:g}": number(end.sel(norm="frobenius"), "correlation"),
        f"nuclear at R = {last:g}": number(end.sel(norm="nuclear"), "correlation"),
        f"share of seeds that select all optimal tokens at R = {last:g}": number(end, "selected"),
    }
    own, other, _ = labels.values()
    undecided = too_few(int(path.attrs["kept"]), LEAST_SEEDS)
    if last < _FAR:
        undecided = f"Radii up to {last:g} are too small to decide; the published ones end at 1000."
    return Judgement(
        numbers=labels,
        expected={label: 1.0 for label in labels if not label.startswith("nuclear")},
        counts=counts_of(summaries),
        stated=(
            above(f"frobenius correlation at R = {last:g}", own, _CLOSE),
            above(f"frobenius minus nuclear correlation at R = {last:g}", own.minus(other), 0),
            below(f"paths that do not select all optimal tokens at R = {last:g}", Number.exact(int(end["missed"])), 0),
        ),
        undecided=undecided,
        remark="The path of (K, Q) is not followed here: see regularization-path.",
    )


def _reads(published: xarray.Dataset, *norms: str) -> dict[str, dict[str, np.ndarray]]:
    """Read the correlations of a published run at the steps that are reported."""
    last = int(published["snapshot"].values[-1])
    steps = tuple(step for step in (200, 1000, last) if step <= last)
    return {norm: at_steps(published, "correlation", steps, norm=norm) for norm in norms}


def _ahead(one: xarray.Dataset, own: str, other: str) -> Criterion:
    """Ask that a run ends nearer to its own solution than to the other."""
    ahead = _end(one, "correlation", norm=own).minus(_end(one, "correlation", norm=other))
    return above(f"{own} minus {other} correlation at step {int(one['snapshot'].values[-1])},", ahead, 0)


def _end(one: xarray.Dataset, name: str, **where: str) -> Number:
    """Return an estimate at the last snapshot of a run."""
    return number(one.isel(snapshot=-1).sel(where), name)
