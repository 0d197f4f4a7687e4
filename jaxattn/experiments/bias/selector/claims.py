"""A selector that a machine-made summary ascribes to 2308.16898: does it behave like the attention there?

The rules below were fixed before training.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import Float, PRNGKeyArray

from jaxattn import bias, tokens
from jaxattn.bias import verdict
from jaxattn.experiments.bias.selector import examples
from jaxattn.experiments.bias.selector.measure import (
    GUMBEL,
    HEADS,
    ONE_HOT,
    PLAIN,
    RANDOM,
    ROTARY,
    entropy,
    weights_among,
)
from jaxattn.statistics import Estimate, bootstrap, variables
from jaxattn.study.claims import (
    Claim,
    Criterion,
    Datasets,
    Judgement,
    Number,
    Setting,
    Source,
    above,
    counts_of,
    number,
    too_little,
)

_SOURCE = Source("a machine-made summary of arXiv 2308.16898", "not in the paper", Setting.OURS)
# The mean share of inputs with equal tokens that counts as the same tokens; the step from which the margin ratios of
# two runs are compared, snapshot by snapshot (eight per decade); and the difference of log10(1 - ratio) by which a run
# must be nearer to the SVM solution, which is a tenth.
SAME, SINCE, NEARER = 0.95, 100, math.log10(1.1)
# The accuracy of 1 - ratio, given the certified gaps.
_CERTIFIED = 1e-6


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate what each run selects, and which norm it obeys.

    Args:
        datasets: of `measure`, by the names of the runs. A claim about a missing run is not decided.
        key: of the bootstrap.

    Returns:
        For each run a dataset: `ratio`, the margin ratio, (norm, snapshot); at the end `probability`, `optimal`, the
        share of inputs that select their optimal token, `joint`, the ratio in the joint problem of several heads, and
        `lead`, the Frobenius ratio minus the largest other one, that of the norm `rival`; `off`, the mean of log10(1 -
        ratio), (snapshot,), in the Frobenius norm; `ahead`, `off` of the unchanged run from the same start minus this
        one, paired by seed, (snapshot,), and `gain`, its mean from step `SINCE` on; `same`, the share of inputs for
        which a selector selects the token of that run. Attributes in addition to the counts: `norms`, which `bias.rank`
        names, and `reason`, why it names none.

    Raises:
        ValueError: a run of which no seed was kept, or two runs to compare without a common seed.
    """
    if not all(one.sizes["seed"] for one in datasets.values()):
        raise ValueError(f"selector: expected a kept seed in each run, found counts {counts_of(datasets)}")
    keys = dict(zip(datasets, jax.random.split(key, len(datasets)), strict=True))
    return {run: _summary(run, datasets, keys[run]) for run in datasets}


def _summary(run: str, datasets: Datasets, key: PRNGKeyArray) -> xarray.Dataset:
    one, keys = datasets[run], jax.random.split(key, 8)
    ratio, steps = one["margin_ratio"].values, one["snapshot"].values
    names = tuple(str(name) for name in one["norm"].values)
    estimates: dict[str, tuple[tuple[str, ...], Estimate]] = {
        "ratio": (("norm", "snapshot"), bootstrap(ratio, keys[0])),
        "probability": ((), bootstrap(one["probability"].values[:, -1], keys[1])),
        "optimal": ((), bootstrap(one["optimal"].values, keys[6])),
    }
    if "joint" in one:
        estimates["joint"] = ((), bootstrap(one["joint"].values[:, -1], keys[7]))
    change, decades = verdict.trend(ratio, steps, keys[1])
    probability = float(one["probability"][:, -1].mean())
    # A run along the exact gradient direction does not stall.
    told = verdict.of(names, bootstrap(ratio[..., -1], keys[0]), change, probability, len(ratio), decades)
    attrs = dict(one.attrs) | {"norms": " and ".join(told.norms), "reason": told.reason}
    own = names.index("frobenius")
    leads = bootstrap(ratio[:, [own], -1] - ratio[:, :, -1], keys[2])
    closest = min((k for k in range(len(names)) if k != own), key=lambda k: leads.mean[k])
    estimates["lead"] = ((), Estimate(*(part[closest] for part in leads)))
    attrs["rival"] = names[closest]
    estimates["off"] = (("snapshot",), bootstrap(_off(one), keys[4]))
    base = _base(run)
    if run != base and base in datasets:
        mine, other = _paired(run, base, datasets)
        ahead = _off(other) - _off(mine)
        estimates["ahead"] = (("snapshot",), bootstrap(ahead, keys[5]))
        estimates["gain"] = ((), bootstrap(ahead[:, steps >= min(SINCE, steps[-1])].mean(axis=1), keys[5]))
        if mine["selected"].shape == other["selected"].shape:
            equal = (mine["selected"].values == other["selected"].values).mean(axis=1)
            estimates["same"] = ((), bootstrap(equal, keys[3]))
    return xarray.Dataset(variables(estimates), {"norm": one["norm"].values, "snapshot": steps}, attrs)


def _base(run: str) -> str:
    """Return the run to compare with: from the same start, without a change."""
    return RANDOM if run in (RANDOM, HEADS) else PLAIN


def _off(one: xarray.Dataset) -> Float[np.ndarray, "seeds snapshots"]:
    """Return log10(1 - ratio) for the Frobenius margin ratio."""
    return np.log10(np.maximum(1 - one["margin_ratio"].sel(norm="frobenius").values, _CERTIFIED))


def _paired(run: str, other: str, datasets: Datasets) -> tuple[xarray.Dataset, xarray.Dataset]:
    """Return two runs on the seeds that both kept: a seed draws the same problem in all runs."""
    shared = np.intersect1d(datasets[run]["seed"].values, datasets[other]["seed"].values)
    if not shared.size:
        raise ValueError(f"selector: expected a seed that {run} and {other} both kept, found none")
    return datasets[run].sel(seed=shared), datasets[other].sel(seed=shared)


def _judge_tokens(family: str, summaries: Datasets) -> Judgement:
    """Nearly all inputs must get the token that training W selects, with a saturated attention."""
    runs = _family(family, summaries)
    if PLAIN not in summaries or not runs:
        return Judgement.withheld(f"Expected {PLAIN} and {family}, found the runs {sorted(summaries)}.")
    shares = {run: number(one, "same") for run, one in runs.items()}
    stated = {run: _selects(run, one, shares[run]) for run, one in runs.items()}
    first = next(iter(runs))
    several = len(runs) > 1
    return Judgement(
        **_said({_SHARE.format(run): share for run, share in shares.items()}, runs, expected=1.0),
        stated=tuple(criterion for of_run in stated.values() for criterion in of_run),
        corrected=stated[first] if several else (),
        correction=f"only with the smallest weight, {first}: there {shares[first].mean:.1%} of the inputs get the "
        "token that training W without a penalty selects."
        if several
        else "",
        undecided=_too_little({PLAIN: summaries[PLAIN], **runs}),
        remark="At inference the selector takes the argmax of its scores, x_t^T W z. Each seed has the same problem "
        "as training W from zero without penalty and samples. The token with the best score is selected for "
        f"{_optimal({PLAIN: summaries[PLAIN], **runs})} of the inputs.",
    )


def _optimal(runs: Datasets) -> str:
    return ", ".join(f"{float(one['optimal']):.0%} ({run})" for run, one in runs.items())


_SHARE = "{}: share of inputs with the token that plain training selects"


def _selects(run: str, one: xarray.Dataset, share: Number) -> tuple[Criterion, ...]:
    return (
        above(_SHARE.format(run), share, SAME),
        # If the softmax is spread out, an argmax is no selection.
        above(f"{run}: mean largest probability at the end", number(one, "probability"), tokens.SATURATED),
    )


def _judge_norm(family: str, summaries: Datasets) -> Judgement:
    """`bias.rank` must name only the Frobenius norm, for every weight."""
    runs = _family(family, summaries)
    if not runs:
        return Judgement.withheld(f"Expected {family}, found the runs {sorted(summaries)}.")
    ends = {run: number(one.sel(norm="frobenius").isel(snapshot=-1), "ratio") for run, one in runs.items()}
    leads = {f"{run}: frobenius minus {one.attrs['rival']}": number(one, "lead") for run, one in runs.items()}
    named = {f"{run}: margin ratio, frobenius": end for run, end in ends.items()}
    open_ = [f"{run}: {why}" for run, one in runs.items() if (why := _unsure(one))]
    # One weight for which another norm is obeyed, or none, refutes it, whatever the others leave open.
    refuted = any(not _unsure(one) and one.attrs["norms"] != "frobenius" for one in runs.values())
    verdicts = ", ".join(f"{one.attrs['norms'] or one.attrs['reason'] or 'none'} ({run})" for run, one in runs.items())
    gains = ", ".join(f"{float(one['gain']):.2g} ({run})" for run, one in runs.items() if "gain" in one)
    return Judgement(
        **_said(named | leads, runs, expected=1.0, only=named),
        stated=(
            *(above(f"{name}, at the end", end, bias.CLOSE) for name, end in named.items()),
            *(above(f"{name}, margin ratios at the end", lead, 0) for name, lead in leads.items()),
        ),
        undecided=_too_little(runs) or ("" if refuted else "; ".join(open_)),
        remark=f"According to bias.rank, among {', '.join(bias.NORMS)}: {verdicts}. Each run is compared with the "
        "problem of the tokens that it selects itself. Decades of 1 - ratio by which it is nearer than plain "
        f"training, at equal steps: {gains}.",
    )


def _unsure(one: xarray.Dataset) -> str:
    """Return why it is open whether a run obeys only the Frobenius norm, or nothing if it is decided."""
    norms = one.attrs["norms"].split(" and ")
    tied = "frobenius" in norms and len(norms) > 1
    return one.attrs["reason"] or (f"{one.attrs['norms']} cannot be distinguished" if tied else "")


def _judge_gain(run: str, summaries: Datasets) -> Judgement:
    """At equal steps 1 - margin ratio must be smaller than without the change, by a tenth."""
    base = _base(run)
    if {run, base} - set(summaries):
        return Judgement.withheld(f"Expected {run} and {base}, found the runs {sorted(summaries)}.")
    one, gain = summaries[run], number(summaries[run], "gain")
    end = {
        f"margin ratio at the end, {name}": number(summaries[name].sel(norm="frobenius").isel(snapshot=-1), "ratio")
        for name in (run, base)
    }
    if "joint" in one:
        end |= {f"margin ratio at the end, {run}, joint problem": number(one, "joint")}
    label = f"decades of 1 - margin ratio, {base} minus {run}, mean over the snapshots from step {SINCE}"
    ahead = ", ".join(
        f"{float(one['ahead'].sel(snapshot=step, method='nearest')):+.2g} (step {step})" for step in (100, 1000, 10000)
    )
    return Judgement(
        **_said({label: gain, **end}, {name: summaries[name] for name in (run, base)}),
        stated=(above(label, gain, NEARER),),
        undecided=_too_little({name: summaries[name] for name in (run, base)}),
        remark=f"Decades nearer to 1: {ahead}; a tenth nearer is {NEARER:.2g}. Each ratio is for the run's own "
        "problem: with positions, that of the keys which the attention sees; for two heads, the mean over "
        "each head's own problem.",
    )


def _family(family: str, summaries: Datasets) -> dict[str, xarray.Dataset]:
    names = [GUMBEL] if family == GUMBEL else [entropy(weight) for weight in weights_among(summaries)]
    return {name: summaries[name] for name in names if name in summaries}


def _said(
    numbers: Mapping[str, Number], runs: Datasets, expected: float | None = None, only: Iterable[str] | None = None
) -> dict[str, Any]:
    return {
        "numbers": numbers,
        "expected": {} if expected is None else dict.fromkeys(numbers if only is None else only, expected),
        "counts": counts_of(runs),
    }


def _too_little(runs: Datasets) -> str:
    return next((why for one in runs.values() if (why := too_little(one))), "")


CLAIMS = (
    Claim(
        "selector:entropy-tokens",
        _SOURCE,
        "A softmax selector trained with an entropy penalty, and read by its argmax at inference, selects the same "
        "tokens as gradient descent on the attention weights.",
        partial(_judge_tokens, "entropy"),
        examples.of_entropy_tokens,
    ),
    Claim(
        "selector:gumbel-tokens",
        _SOURCE,
        "A selector trained on straight-through Gumbel samples, and read by its argmax at inference, selects the same "
        "tokens as gradient descent on the attention weights.",
        partial(_judge_tokens, GUMBEL),
        examples.of_gumbel_tokens,
    ),
    Claim(
        "selector:entropy-norm",
        _SOURCE,
        "A softmax selector trained with an entropy penalty selects the tokens of an SVM solution: for any weight of "
        "the penalty, W obeys the Frobenius Att-SVM of its selected tokens.",
        partial(_judge_norm, "entropy"),
        examples.of_entropy_norm,
    ),
    Claim(
        "selector:gumbel-norm",
        _SOURCE,
        "A selector trained on straight-through Gumbel samples selects the tokens of an SVM solution: W obeys the "
        "Frobenius Att-SVM of its selected tokens.",
        partial(_judge_norm, GUMBEL),
        examples.of_gumbel_norm,
    ),
    Claim(
        "selector:heads",
        _SOURCE,
        "Several heads push attention towards the SVM solution.",
        partial(_judge_gain, HEADS),
        partial(examples.of_gain, HEADS),
    ),
    Claim(
        "selector:rotary",
        _SOURCE,
        "Positions push attention towards the SVM solution (here rotary ones).",
        partial(_judge_gain, ROTARY),
        partial(examples.of_gain, ROTARY),
    ),
    Claim(
        "selector:positions",
        _SOURCE,
        "Positions push attention towards the SVM solution (here unit vectors added to the keys, one per position).",
        partial(_judge_gain, ONE_HOT),
        partial(examples.of_gain, ONE_HOT),
    ),
)
