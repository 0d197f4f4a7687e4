"""Whether selectors select the tokens of plain training, obey its norm, and are nearer to the SVM solution."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import xarray

from jaxattn import bias, tokens
from jaxattn.experiments.bias.selector.estimates import (
    BASES,
    CONTROLS,
    ENTROPY,
    GUMBEL,
    HEADS,
    ONE_HOT,
    PLAIN,
    ROTARY,
    SINCE,
)
from jaxattn.study.claims import LEAST_SEEDS, TRAINED, Claim, Datasets, Judgement, counts_of
from jaxattn.study.claims.claim import Setting, Source
from jaxattn.study.claims.criteria import above
from jaxattn.study.estimates import number

_SOURCE = Source("a machine-made summary of arXiv 2308.16898", "not in the paper", Setting.OURS)
# The mean share of inputs with equal tokens that counts as the same tokens; and the difference of log10(1 - ratio) by
# which a run must be nearer to the SVM solution, which is a tenth.
SAME, NEARER = 0.95, math.log10(1.1)


def _same_tokens(names: tuple[str, ...], runs: Datasets) -> Judgement:
    optimal = ", ".join(f"{float(runs[name]['optimal']):.0%} ({name})" for name in (PLAIN, *names))
    shares, stated = {}, []
    for name in names:
        label = f"{name}: share of inputs with the token that plain training selects"
        shares[label] = number(runs[name], "same")
        # If the softmax is spread out, an argmax is no selection.
        largest = f"{name}: mean largest probability of the worst input at the end"
        stated += [
            above(label, shares[label], SAME),
            above(largest, number(runs[name], "probability"), tokens.SATURATED),
        ]
    correction = (
        f"only with the smallest weight, {names[0]}: there {stated[0].value.mean:.1%} of the inputs get the token that "
        "training W without a penalty selects."
    )
    several = len(names) > 1
    return Judgement(
        stated,
        stated[:2] if several else (),
        correction if several else "",
        remark="At inference the selector takes the argmax of its scores, x_t^T W z. Each seed has the same problem "
        "as training W from zero without penalty and samples. The token with the best score is selected for "
        f"{optimal} of the inputs.",
        numbers=shares,
        expected=dict.fromkeys(shares, 1.0),
        counts=counts_of({name: runs[name] for name in names}),
    )


def _obeys_frobenius(names: tuple[str, ...], runs: Datasets) -> Judgement:
    family = {name: runs[name] for name in names}
    ends = {f"{name}: margin ratio, frobenius": _end(run) for name, run in family.items()}
    leads = {f"{name}: frobenius minus {run.attrs['rival']}": number(run, "lead") for name, run in family.items()}
    unsure = {name: reason for name, run in family.items() if (reason := _unsure(run))}
    # One weight for which another norm is obeyed, or none, refutes it, whatever the others leave open.
    refuted = any(run.attrs["norms"] != "frobenius" for name, run in family.items() if name not in unsure)
    verdicts = ", ".join(
        f"{run.attrs['norms'] or run.attrs['reason'] or 'none'} ({name})" for name, run in family.items()
    )
    gains = ", ".join(f"{float(run['gain']):.2g} ({name})" for name, run in family.items())
    return Judgement(
        [
            *(above(f"{label}, at the end", end, bias.CLOSE) for label, end in ends.items()),
            *(above(f"{label}, margin ratios at the end", lead, 0) for label, lead in leads.items()),
        ],
        remark=f"According to bias.rank, among {', '.join(bias.NORMS)}: {verdicts}. Each run is compared with the "
        "problem of the tokens that it selects itself. Decades of 1 - ratio by which it is nearer than plain "
        f"training, at equal steps: {gains}.",
        numbers=ends | leads,
        expected=dict.fromkeys(ends, 1.0),
        undecided="" if refuted else "; ".join(f"{name}: {reason}" for name, reason in unsure.items()),
    )


def _end(run: xarray.Dataset) -> Any:
    return number(run, "ratio", at=-1, norm="frobenius")


def _unsure(run: xarray.Dataset) -> str:
    """Return why it is open whether a run obeys only the Frobenius norm, or nothing if it is decided."""
    norms = run.attrs["norms"].split(" and ")
    tied = "frobenius" in norms and len(norms) > 1
    return run.attrs["reason"] or (f"{run.attrs['norms']} cannot be distinguished" if tied else "")


def _nearer(name: str, runs: Datasets) -> Judgement:
    run, base = runs[name], BASES[name]
    gains = {base: number(run, "gain")}
    if name in CONTROLS:
        gains[CONTROLS[name]] = number(run, "beyond")
        # Other keys pose another problem, which may be easier or harder.
        remark = "Each run is compared with its own problem, and the control tells positions from a change of the keys."
    else:
        remark = (
            "The first of two heads and the head alone start from the same weights. They are compared over the "
            f"{run.attrs['compared']} of {run.attrs['kept']} seeds in which they select the same tokens for all "
            "inputs, and so approach the same solution."
        )
    ends = {f"margin ratio at the end, {each}": _end(runs[each]) for each in (name, *gains)}
    if "joint" in run:
        ends[f"margin ratio at the end, {name}, joint problem"] = number(run, "joint")
    labels = {
        f"decades of 1 - margin ratio, {other} minus {name}, mean over the snapshots from step {SINCE}": gain
        for other, gain in gains.items()
    }
    few = run.attrs["compared"] < LEAST_SEEDS
    return Judgement(
        [above(label, gain, NEARER) for label, gain in labels.items()],
        remark=f"{remark} A tenth nearer is {NEARER:.2g} decades.",
        undecided=f"{run.attrs['compared']} seeds are too few; at least {LEAST_SEEDS} are needed." if few else "",
        numbers=labels | ends,
        counts=counts_of({each: runs[each] for each in (name, *gains)}),
    )


def _claims() -> Iterator[Claim]:
    same = "and read by its argmax at inference, selects the same tokens as gradient descent on the attention weights."
    obeys = "W obeys the Frobenius Att-SVM of its selected tokens."
    selectors = (
        ("entropy", "A softmax selector trained with an entropy penalty", ENTROPY, "for any weight of the penalty, "),
        ("gumbel", "A selector trained on straight-through Gumbel samples", GUMBEL, ""),
    )
    for name, training, runs, _ in selectors:
        yield _claim(f"{name}-tokens", f"{training}, {same}", partial(_same_tokens, runs))
    for name, training, runs, weights in selectors:
        statement = f"{training} selects the tokens of an SVM solution: {weights}{obeys}"
        yield _claim(f"{name}-norm", statement, partial(_obeys_frobenius, runs))
    push = "push attention towards the SVM solution"
    for name, run, what in (
        ("heads", HEADS, f"Several heads {push}"),
        ("rotary", ROTARY, f"Positions {push} (here rotary ones)"),
        ("positions", ONE_HOT, f"Positions {push} (here unit vectors added to the keys, one per position)"),
    ):
        yield _claim(name, f"{what}.", partial(_nearer, run))


def _claim(name: str, statement: str, rule: Callable[[Datasets], Judgement]) -> Claim:
    return Claim(f"selector:{name}", _SOURCE, statement, rule, TRAINED)


CLAIMS = tuple(_claims())
