"""Which norm's max-margin problem do variants of attention obey: several heads, positions, normalized tokens, v?"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from jaxattn import bias, models, svm
from jaxattn.experiments.bias import ratios
from jaxattn.experiments.bias.predictions import Prediction, Together, caption, claims_of, finding, usual_steps
from jaxattn.study.claims import Datasets, Experiment, Judgements
from jaxattn.study.claims.claim import Setting, Source
from jaxattn.study.measuring.ranked import alone, model_of, ranked, to_dataset
from jaxattn.study.style import cells, page

_ANALOGY = "a conjecture, by analogy with one head on plain tokens"
_DESCENT = Source("arXiv 2308.16898", "convergence of gradient descent on W, by analogy", Setting.OURS)
_FACTORS = Source("arXiv 2308.16898", "implicit bias of training (K, Q), by analogy", Setting.OURS)
_SIGN = Source("arXiv 2502.04664 and 2602.16340", "limits of sign descent on other models, by analogy", Setting.OURS)
_OWN = Source(
    "arXiv 2308.16898",
    "convergence of gradient descent on W, and implicit bias of training (K, Q), by analogy",
    Setting.OURS,
)
_CONTROL = Source("jaxattn", "a control of minibatches", Setting.OURS)
_JOINT = Source(
    "arXiv 2306.13596 and 2410.14581", "joint training of a prompt, or of W, and v, by analogy", Setting.OURS
)
_OFFSETS = (
    "Training v offsets the constraints by the label margins: joint-descent:weights compares W with this problem as it "
    "stands, and joint-descent:weights-offset with that with offsets, which is not solved here."
)
# What a run is compared with besides its own problem; appended to the name of the run.
_HEADS, _TOKENS = "each head's own problem", "the tokens as given"
_OF_HEADS = "the joint Att-SVM of all heads, min sum_h ||W_h||^2 such that every head's margins are at least 1"


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a `Training` with the Att-SVMs of its own model, and with those of an alternative problem.

    Returns:
        What `ratios.compared` does for the model's keys and queries, for several heads in the joint problem. For these
        also `other`, (seed, norm, snapshot): the smallest ratio over the heads, each in the problem of its own tokens;
        for a model whose keys are not the tokens, the ratio in the problem of the tokens as given; the attribute
        `other` says which.
    """
    records, other = _others(record, model_of(record))
    with jax.enable_x64(True):
        run = ratios.compared(record, solver, bias.NORMS)
        others = [to_dataset(ranked(each, bias.NORMS)) for each in records]
    if others:
        run = ratios.restricted(run, functools.reduce(np.intersect1d, (each["seed"] for each in (run, *others))))
        least = np.min([each["margin_ratio"].sel(seed=run["seed"]).values for each in others], axis=0)
        run = run.assign(other=(("seed", "norm", "snapshot"), least))
    return run.assign_attrs(other=other)


def _others(record: xarray.Dataset, model: models.Model) -> tuple[list[xarray.Dataset], str]:
    if isinstance(model, models.Heads):
        return [alone(record, str(head)) for head in range(model.count)], _HEADS
    plain = isinstance(model, models.Valued) or model == models.plain
    return ([], "") if plain else ([alone(record)], _TOKENS)


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Estimate every run in its own problem, and under the names of run and problem in another one, if there is any."""
    own_key, other_key = jax.random.split(key)
    others = {
        f"{name}: {run.attrs['other']}": run.drop_vars("margin_ratio").rename(other="margin_ratio")
        for name, run in runs.items()
        if "other" in run
    }
    return ratios.summarize(runs, own_key) | ratios.summarize(others, other_key)


_SOURCES = {"frobenius": _DESCENT, "nuclear": _FACTORS, "max": _SIGN}


def _prediction(name: str, run: str, norm: str, statement: str) -> Prediction:
    return Prediction(name, run, norm, _SOURCES[norm], f"{statement}; {_ANALOGY}.")


def _heads() -> Iterator[Prediction | Together]:
    for name, heads in (("2", "2 heads added up"), ("4", "4 heads added up"), ("concatenated", "2 heads concatenated")):
        run = f"W, {heads}, normalized GD, one norm"
        # The constraints of the joint problem are those of each head apart: all that it adds are the heads' norms.
        statement = (
            f"Gradient descent on the W of {heads}, with a joint norm: each head obeys the Frobenius Att-SVM of its "
            f"own tokens, and the ratio of the heads' norms is that of {_OF_HEADS}; {_ANALOGY}."
        )
        yield Together(f"w-{name}", dict.fromkeys((f"{run}: {_HEADS}", run), "frobenius"), _DESCENT, statement)
    two = "2 heads added up, normalized GD"
    own = "If each head's step is divided by its own gradient's norm, each head obeys the Att-SVM of its own tokens"
    yield _prediction("w-2-alone-each", f"W, {two}: {_HEADS}", "frobenius", f"{own} (Frobenius, training W)")
    yield _prediction("kq-2-alone-each", f"KQ, {two}: {_HEADS}", "nuclear", f"{own} (nuclear, training K and Q)")
    statement = "Gradient descent on K and Q of 2 heads, with a joint norm, obeys the joint nuclear Att-SVM"
    yield _prediction("kq-2-joint", f"KQ, {two}, one norm", "nuclear", statement)
    statement = "Sign descent on the W of 2 heads obeys the joint Att-SVM with the largest-entry norm"
    yield _prediction("w-2-sign-joint", "W, 2 heads added up, sign descent", "max", statement)


def _own_tokens(over: str, *kinds: str) -> Together:
    """Return that descent on W obeys the Frobenius norm, and on (K, Q) the nuclear one, for all kinds of tokens."""
    norms = {"W": "frobenius", "KQ": "nuclear"}
    rows = {f"{weights}, {kind}, normalized GD": norm for kind in kinds for weights, norm in norms.items()}
    statement = (
        "Gradient descent on W obeys the Frobenius Att-SVM, and gradient descent on (K, Q) the nuclear one, over "
        f"{over}; {_ANALOGY}."
    )
    return Together("own-tokens", rows, _OWN, statement)


def _values() -> Iterator[Prediction]:
    for weights, written, norm, of_norm, note in (
        ("W", "W", "frobenius", "Frobenius", _OFFSETS),
        ("KQ", "(K, Q)", "nuclear", "nuclear", ""),
    ):
        obeys = f"Trained together with v, {written} obeys the {of_norm} Att-SVM of the tokens that it selects"
        run = f"{weights}, trained values, normalized GD"
        yield Prediction(weights.lower(), run, norm, _JOINT, f"{obeys}; {_ANALOGY}.", note)


def _noise() -> Iterator[Prediction]:
    kinds = {
        "batch-3": ("minibatches of 3", "along the gradients of minibatches of 3 inputs"),
        "dropout-.1": ("dropout 0.1", "with a dropout of 0.1 on the attention"),
        "dropout-.5": ("dropout 0.5", "with a dropout of 0.5 on the attention"),
    }
    obeys = "obeys the Frobenius Att-SVM"
    yield Prediction(
        "w-batch-1",
        "W, minibatches of 1, normalized GD",
        "frobenius",
        _CONTROL,
        f"A control: normalized descent on W along the gradients of single inputs {obeys}.",
        "Foregone: steps of equal length along single inputs discard the weights that the loss gives to the inputs.",
    )
    for name, (noise, how) in kinds.items():
        statement = f"Normalized descent on W {how} {obeys}"
        yield _prediction(f"w-{name}", f"W, {noise}, normalized GD", "frobenius", statement)
    for name in ("batch-3", "dropout-.1"):
        noise, how = kinds[name]
        statement = f"Normalized descent on W {how}, with steps that fall like k^-1/2, {obeys}"
        yield _prediction(f"w-{name}-falling", f"W, {noise}, normalized GD, falling steps", "frobenius", statement)
        statement = f"Normalized descent on (K, Q) {how} obeys the nuclear Att-SVM"
        yield _prediction(f"kq-{name}", f"KQ, {noise}, normalized GD", "nuclear", statement)


_NORMALIZED = "tokens of arbitrary lengths, and over the normalized tokens and queries where the model normalizes them"
_PREDICTIONS: dict[str, tuple[Prediction | Together, ...]] = {
    "atlas-heads": tuple(_heads()),
    "atlas-positions": (
        _own_tokens(
            "the keys and queries with their positions", "rotary positions", "positions in the keys", "added positions"
        ),
    ),
    "atlas-normalized": (
        _own_tokens(_NORMALIZED, "tokens of other lengths", "normalized tokens, tokens of other lengths"),
    ),
    "atlas-values": tuple(_values()),
    "atlas-noise": tuple(_noise()),
}
_PREDICTED = {
    run: norm
    for predictions in _PREDICTIONS.values()
    for each in predictions
    for run, norm in (each.rows if isinstance(each, Together) else {each.run: each.norm}).items()
}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a table: a row for each run and problem, a column for each norm."""
    own = {name: run for name, run in summaries.items() if ": " not in name}
    others = {name: f"{name}: {run.attrs['other']}" for name, run in own.items()}
    rows = [row for name in own for row in (name, others[name]) if row in summaries]
    usual = usual_steps(summaries)

    def label(row: str) -> str:
        if row not in own:
            return f"against {summaries[row].attrs['other']}"
        written = f"$(K, Q)$, {row[4:]}" if row.startswith("KQ, ") else f"$W$, {row[3:]}"
        steps = int(summaries[row]["snapshot"][-1])
        return written if steps == usual else f"{written}, {steps:,} steps"

    with page.style():
        figure = page.full(1.4 + 0.21 * len(rows))
        axes = figure.subplots()
        cells.table(axes, [cells.Row(summaries[row], _PREDICTED.get(row)) for row in rows], bias.NORMS)
        axes.set_yticks(range(len(rows)), [label(row) for row in rows], fontsize=cells.SIZE)
        axes.set_title(finding(judgements.values()))
        page.add_counts(figure, own, caption(f"{usual:,} steps, or as said", summaries.values()))
    return figure


_CLAIMS = tuple(
    claim for experiment, predictions in _PREDICTIONS.items() for claim in claims_of(experiment, predictions)
)
EXPERIMENT = Experiment(measure, claims=_CLAIMS, summarize=summarize, draw=draw)
