"""The claims: which rung of the ladder still obeys an Att-SVM, why the next does not, and what would bring it back."""

from __future__ import annotations

from collections.abc import Sequence

from jaxattn.study.claims import TRAINED, Datasets, Judgement, Setting, Source, claim
from jaxattn.study.claims.criteria import Criterion, Number, above, below, between
from jaxattn.study.estimates import number

# The runs of the ladder, in order, those of other tasks, and those with a change.
ALONE = "K, Q"
FROZEN = {"W": "frobenius", ALONE: "nuclear"}
FIRST = "layer 1, head 1"
TRAINED_INPUTS = ("inputs", "readout", "MLP", "norm", "residual", "two layers", "fresh data", "Adam")
TEXT = "text"
TASKS = ("Adam", "largest token", "induction", TEXT)
READOUT, NORMED = "readout alone", "inputs, with a norm for K and Q"
SLOW = tuple(f"inputs {times} times slower" for times in ("ten", "a hundred", "a thousand"))
DECAY, OWN = "readout with decay", "readout with decay, steps of their own"
OWN_INPUTS = "inputs and readout with decay, steps of their own"
STOPPED, LAYERS = "inputs and readout for 500 steps", "two layers of attention alone"
CONDITIONS = (READOUT, DECAY, OWN, OWN_INPUTS, *SLOW, NORMED, STOPPED, LAYERS)
# Fixed beforehand, on decoders of other keys: the shares of seeds that count as nearly all, and as a hierarchy; the
# largest mean ratio that is far; the largest difference of equal courses against ||W||; and over the last decade of
# steps, in logarithms, the share of the margin's growth from which on W carries it, and below which it does not.
ALL, HALF, FAR, SAME, CARRIED, LEFT = 0.8, 0.5, 0.8, 0.05, 0.8, 0.5
HOPE = Source("arXiv 2308.16898", "abstract: the interpretation of transformers as a hierarchy of SVMs", Setting.OURS)
OURS = Source("jaxattn", "decoders as people train them", Setting.OURS)


def _shares(runs: Datasets, names: Sequence[str], estimate: str, norm: str = "nuclear") -> dict[str, Number]:
    """Return an estimate of every head of some runs, by their names."""
    return {
        f"{name}, {head}" if runs[name].sizes["head"] > 1 else name: number(runs[name], estimate, norm=norm, head=head)
        for name in names
        for head in runs[name]["head"].values
    }


def _obeying(runs: Datasets, names: Sequence[str], norm: str = "nuclear") -> dict[str, Number]:
    """Return the share of seeds whose head obeys; a head that does not tell may or may not."""
    obeys, refuses = (_shares(runs, names, estimate, norm) for estimate in ("obeys", "refuses"))
    return {name: Number(share.mean, share.low, 1 - refuses[name].low) for name, share in obeys.items()}


def _obey(runs: Datasets, names: Sequence[str], least: float = ALL, remark: str = "") -> Judgement:
    return Judgement(all_obey(runs, names, least), remark=remark, numbers=_ends(runs, names))


def _none_obeys(runs: Datasets, names: Sequence[str], remark: str = "") -> Judgement:
    label, shares = "share of seeds whose head obeys the nuclear norm", _obeying(runs, names)
    stated = [below(f"{label}, {name}", obeying, 1 - ALL) for name, obeying in shares.items()]
    return Judgement(stated, remark=remark, numbers=_ends(runs, names))


def _are_far(runs: Datasets, names: Sequence[str], remark: str = "") -> Judgement:
    ends = _ends(runs, names)
    return Judgement([below(label, end, FAR) for label, end in ends.items()], remark=remark, numbers=ends)


def all_obey(runs: Datasets, names: Sequence[str], least: float = ALL, norm: str = "nuclear") -> list[Criterion]:
    """Ask of each head of some runs that at least this share of seeds obeys."""
    return [
        above(f"share of seeds whose head obeys the {norm} norm, {name}", obeying, least)
        for name, obeying in _obeying(runs, names, norm).items()
    ]


def most_are_soft(runs: Datasets, names: Sequence[str]) -> Judgement:
    """In most seeds of each of these runs hard attention must raise the loss."""
    return Judgement(
        [
            above(f"share of seeds whose loss hard attention would raise, {name}", number(runs[name], "softer"), HALF)
            for name in names
        ],
        numbers={f"median change of log loss, {name}": float(runs[name]["costs_50"]) for name in names},
    )


def _ends(runs: Datasets, names: Sequence[str]) -> dict[str, Number]:
    return {f"nuclear margin ratio at the end, {name}": last for name, last in _shares(runs, names, "last").items()}


@claim(
    "hierarchy:frozen",
    OURS,
    "With inputs and readout fixed, W obeys the Frobenius norm, and K and Q the nuclear norm.",
    TRAINED,
)
def _frozen(runs: Datasets) -> Judgement:
    return Judgement(
        [criterion for name, norm in FROZEN.items() for criterion in all_obey(runs, [name], norm=norm)],
        remark="The theorem's own setting, with a causal mask and cross entropy: it shows that the measurement sees an "
        "Att-SVM where there is one.",
    )


@claim("hierarchy:inputs", OURS, "As soon as the inputs are trained too, no head obeys an Att-SVM.", TRAINED)
def _inputs(runs: Datasets) -> Judgement:
    remark = (
        "The inputs enter a logit twice and W once. They also lower the loss by themselves, so they grow, and with "
        "them all margins; W is left where it was."
    )
    return _none_obeys(runs, ["inputs"], remark)


@claim(
    "hierarchy:ladder",
    OURS,
    "On every rung above it, up to a decoder as people train it, the heads end far from the Att-SVM of the tokens "
    "that they select.",
    TRAINED,
)
def _ladder(runs: Datasets) -> Judgement:
    names = TRAINED_INPUTS[1:]
    asked = ", ".join(
        f"{name}: {float(runs[name]['asked_50'].isel(head=-1)):.0%} "
        f"({float(runs[name]['probability_50'].isel(head=-1)):.2f})"
        for name in names
    )
    remark = (
        f"After as many steps, K and Q alone reach {number(runs[ALONE], 'last', norm='nuclear', head=FIRST).mean:.3f}. "
        "Their limits are not judged: on some rungs they still rise. Median share of queries whose selected token is "
        f"the one asked for (smallest of their largest probabilities), last layer: {asked}."
    )
    return _are_far(runs, names, remark)


@claim(
    "hierarchy:carried",
    OURS,
    "Where heads obey, W carries the growth of the margin; where the inputs are trained, they carry it.",
    TRAINED,
)
def _carried(runs: Datasets) -> Judgement:
    label = "growth of log ||W|| over that of the log margin, last decade of steps,"
    carried = {name: number(runs[name], "carried", head=FIRST) for name in (*FROZEN, *TRAINED_INPUTS[:2])}
    return Judgement(
        [
            (above if name in FROZEN else below)(f"{label} {name}", value, CARRIED if name in FROZEN else LEFT)
            for name, value in carried.items()
        ],
        numbers={f"{label} {name}": value for name, value in carried.items()}
        | {f"median share of the gradient on K and Q, {name}": float(runs[name]["part_50"]) for name in TRAINED_INPUTS},
    )


@claim(
    "hierarchy:slow",
    OURS,
    "Inputs that learn 10, 100 or 1,000 times more slowly than K and Q only delay this: no head obeys.",
    TRAINED,
)
def _slow(runs: Datasets) -> Judgement:
    return _none_obeys(runs, SLOW)


@claim(
    "hierarchy:bounded",
    OURS,
    "A norm for what K and Q read, which keeps the inputs from growing there, brings the Att-SVM back.",
    TRAINED,
)
def _bounded(runs: Datasets) -> Judgement:
    remark = "W then grows, but the directions of the inputs keep moving, and with them the optimum."
    return _obey(runs, [NORMED], remark=remark)


@claim(
    "hierarchy:readout",
    OURS,
    "If the inputs are fixed, training the readout too only slows the clock: at the same ||W|| the margin ratio is "
    "that of K and Q alone.",
    TRAINED,
)
def _readout(runs: Datasets) -> Judgement:
    label = f"nuclear margin ratio, {READOUT}, minus that of K, Q at the same ||W||"
    return Judgement([between(label, number(runs[READOUT], "apart"), -SAME, SAME)], remark=_sizes(runs, READOUT))


def _sizes(runs: Datasets, name: str) -> str:
    size, alone = (float(runs[one]["size_50"].isel(snapshot=-1, head=0)) for one in (name, ALONE))
    return f"||W|| ends at {size:.3g}, and at {alone:.3g} for K and Q alone."


@claim(
    "hierarchy:decay",
    OURS,
    "Decay that bounds the readout does not suffice: with the inputs fixed and one length of steps for all parts, the "
    "head ends far from the Att-SVM.",
    TRAINED,
)
def _decay(runs: Datasets) -> Judgement:
    remark = (
        "The loss then keeps a gradient for the readout, beside which that of K and Q vanishes once the attention is "
        f"hard. {_sizes(runs, DECAY)}"
    )
    return _are_far(runs, [DECAY], remark)


@claim(
    "hierarchy:own-steps",
    OURS,
    "If the readout decays and K and Q take steps of their own length, the head obeys the nuclear norm, as long as the "
    "inputs are fixed; once they are trained, it ends far from the Att-SVM.",
    TRAINED,
)
def _own_steps(runs: Datasets) -> Judgement:
    far = _are_far(runs, [OWN_INPUTS])
    return Judgement(
        [*all_obey(runs, [OWN]), *far.stated], remark=_sizes(runs, OWN), numbers=_ends(runs, [OWN, OWN_INPUTS])
    )


@claim(
    "hierarchy:stopped",
    OURS,
    "If the rest stops after some steps and K and Q go on, the head obeys the nuclear norm.",
    TRAINED,
)
def _stopped(runs: Datasets) -> Judgement:
    return _obey(runs, [STOPPED])


@claim(
    "hierarchy:layers",
    OURS,
    "In two layers of which only the attention is trained, every head obeys the nuclear norm: a hierarchy of two SVMs.",
    TRAINED,
)
def _layers(runs: Datasets) -> Judgement:
    remark = (
        f"Hard attention in both layers would raise the loss in {number(runs[LAYERS], 'softer').mean:.0%} of seeds: "
        "the second layer makes up for a soft first one."
    )
    return _obey(runs, [LAYERS], remark=remark)


@claim(
    "hierarchy:hope",
    HOPE,
    "A trained decoder is a hierarchy of SVMs: each of its heads separates the tokens that it selects from the others "
    "with the largest margin.",
    TRAINED,
)
def _hope(runs: Datasets) -> Judgement:
    refuses = ", ".join(f"{name}: {share.mean:.0%}" for name, share in _shares(runs, TASKS, "refuses").items())
    remark = f"All parts are trained by Adam, for each of four tasks. Share that certainly does not obey: {refuses}."
    return _obey(runs, TASKS, HALF, remark)


@claim(
    "hierarchy:soft",
    OURS,
    "In most decoders with a norm, hard attention would raise the loss: heads are not on their way to single tokens.",
    TRAINED,
)
def _soft(runs: Datasets) -> Judgement:
    return most_are_soft(runs, TRAINED_INPUTS[3:])


@claim(
    "hierarchy:least-change",
    OURS,
    "What a trained head has in common with the Att-SVM is no more than what the least change from its start gives.",
    TRAINED,
)
def _least(runs: Datasets) -> Judgement:
    nearer = _shares(runs, TRAINED_INPUTS, "nearer", "frobenius")
    return Judgement(
        [
            below(f"share of seeds nearer to the Frobenius solution, {name}", share, 1 - ALL)
            for name, share in nearer.items()
        ],
        remark="The matrix nearest to the start with the same smallest margin, in the Frobenius norm. From a small "
        "start it is nearly the Att-SVM itself, so it is no bar for heads that obey, and is not one here.",
    )


CLAIMS = (
    *(_frozen, _inputs, _ladder, _carried),
    *(_slow, _bounded, _readout, _decay, _own_steps, _stopped, _layers),
    *(_hope, _soft, _least),
)
