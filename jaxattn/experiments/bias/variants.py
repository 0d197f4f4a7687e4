"""Which norm's max-margin problem do variants of attention obey: several heads, positions, normalized tokens, v?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
        `margin_ratio`, (seed, norm, snapshot), in the problem of the model's keys and queries, for several heads the
        joint one; `probability`, the worst input's largest attention probability, (seed, snapshot). For several heads
        also `other`, (seed, norm, snapshot): the smallest ratio over the heads, each in the problem of its own tokens;
        for a model whose keys are not the tokens, the ratio in the problem of the tokens as given; the attribute
        `other` says which.

    Raises:
        ValueError: a solver is given, and what `ranked` raises.
    """
    ratios.native(solver)
    model = model_of(record)
    records, other = _others(record, model)
    with jax.enable_x64(True):
        own = to_dataset(ranked(record, bias.NORMS))
        others = [to_dataset(ranked(each, bias.NORMS)) for each in records]
    run, counts = own[ratios.KEPT], ratios.counts(own.attrs)
    if others:
        kept = [np.isin(own["seed"], each["seed"]) for each in others]
        shared = own["seed"].values[np.all(kept, axis=0)]
        least = np.min([each["margin_ratio"].sel(seed=shared).values for each in others], axis=0)
        run = run.sel(seed=shared).assign(other=(("seed", "norm", "snapshot"), least))
        # A seed counts as unsolved if another problem of it has no certified optimum.
        lost = counts["kept"] - len(shared)
        counts |= {"kept": len(shared), "unsolved": counts["unsolved"] + lost}
    run.attrs = {**counts, "other": other}
    return run


def _others(record: xarray.Dataset, model: models.Model) -> tuple[list[xarray.Dataset], str]:
    """Return the record as if each head, or the attention without its positions, were alone."""
    if isinstance(model, models.Heads):
        return [alone(record, str(head)) for head in range(model.count)], _HEADS
    plain = isinstance(model, models.Valued) or model == models.plain
    return ([], "") if plain else ([alone(record)], _TOKENS)


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Estimate the margin ratios of every run, and the norms that it obeys, in its own problem and in another.

    Returns:
        What `ratios.estimate` returns for each run; for runs also compared with another problem, once more under the
        names of run and problem.
    """
    own_key, other_key = jax.random.split(key)
    others = {
        f"{name}: {run.attrs['other']}": run.drop_vars("margin_ratio").rename(other="margin_ratio")
        for name, run in runs.items()
        if "other" in run
    }
    return ratios.summarize(runs, own_key) | ratios.summarize(others, other_key)


def _prediction(name: str, run: str, norm: str, source: Source, statement: str, note: str = "") -> Prediction:
    return Prediction(name, run, norm, source, f"{statement}; {_ANALOGY}.", note)


def _heads() -> Iterator[Prediction | Together]:
    for name, heads in (("2", "2 heads added up"), ("4", "4 heads added up"), ("concatenated", "2 heads concatenated")):
        run = f"W, {heads}, normalized GD, one norm"
        # The constraints of the joint problem are those of each head apart: all that it adds are the heads' norms.
        statement = (
            f"Gradient descent on the W of {heads}, with a joint norm: each head obeys the Frobenius Att-SVM of its "
            f"own tokens, and the ratio of the heads' norms is that of {_OF_HEADS}; {_ANALOGY}."
        )
        rows = dict.fromkeys((f"{run}: {_HEADS}", run), "frobenius")
        yield Together(f"w-{name}", rows, _DESCENT, statement)
    own = "If each head's step is divided by its own gradient's norm, each head obeys the Att-SVM of its own tokens"
    of_W, of_KQ = (f"{weights}, 2 heads added up, normalized GD: {_HEADS}" for weights in ("W", "KQ"))
    yield _prediction("w-2-alone-each", of_W, "frobenius", _DESCENT, f"{own} (Frobenius, training W)")
    yield _prediction("kq-2-alone-each", of_KQ, "nuclear", _FACTORS, f"{own} (nuclear, training K and Q)")
    yield _prediction(
        "kq-2-joint",
        "KQ, 2 heads added up, normalized GD, one norm",
        "nuclear",
        _FACTORS,
        "Gradient descent on K and Q of 2 heads, with a joint norm, obeys the joint nuclear Att-SVM",
    )
    yield _prediction(
        "w-2-sign-joint",
        "W, 2 heads added up, sign descent",
        "max",
        _SIGN,
        "Sign descent on the W of 2 heads obeys the joint Att-SVM with the largest-entry norm",
    )


def _own_tokens(kinds: Sequence[str], over: str) -> Together:
    """Return that descent on W obeys the Frobenius norm, and on (K, Q) the nuclear one, for all kinds of tokens."""
    norms = {"W": "frobenius", "KQ": "nuclear"}
    rows = {f"{weights}, {kind}, normalized GD": norm for kind in kinds for weights, norm in norms.items()}
    statement = (
        "Gradient descent on W obeys the Frobenius Att-SVM, and gradient descent on (K, Q) the nuclear one, over "
        f"{over}; {_ANALOGY}."
    )
    return Together("own-tokens", rows, _OWN, statement)


def _positions() -> Together:
    kinds = ("rotary positions", "positions in the keys", "added positions")
    return _own_tokens(kinds, "the keys and queries with their positions")


def _normalized() -> Together:
    law = "tokens of other lengths"
    over = "tokens of arbitrary lengths, and over the normalized tokens and queries where the model normalizes them"
    return _own_tokens((law, f"normalized tokens, {law}"), over)


def _values() -> Iterator[Prediction]:
    limit = "Att-SVM of the tokens that it selects"
    for name, weights, written, norm, word in (
        ("w", "W", "W", "frobenius", "Frobenius"),
        ("kq", "KQ", "(K, Q)", "nuclear", "nuclear"),
    ):
        statement = f"Trained together with v, {written} obeys the {word} {limit}"
        run, note = f"{weights}, trained values, normalized GD", _OFFSETS if name == "w" else ""
        yield _prediction(name, run, norm, _JOINT, statement, note)


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
        yield _prediction(f"w-{name}", f"W, {noise}, normalized GD", "frobenius", _DESCENT, statement)
    for name in ("batch-3", "dropout-.1"):
        noise, how = kinds[name]
        run, statement = f"W, {noise}, normalized GD, falling steps", f"Normalized descent on W {how}, with steps that"
        statement = f"{statement} fall like k^-1/2, {obeys}"
        yield _prediction(f"w-{name}-falling", run, "frobenius", _DESCENT, statement)
        statement = f"Normalized descent on (K, Q) {how} obeys the nuclear Att-SVM"
        yield _prediction(f"kq-{name}", f"KQ, {noise}, normalized GD", "nuclear", _FACTORS, statement)


_PREDICTIONS: dict[str, tuple[Prediction | Together, ...]] = {
    "atlas-heads": tuple(_heads()),
    "atlas-positions": (_positions(),),
    "atlas-normalized": (_normalized(),),
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
