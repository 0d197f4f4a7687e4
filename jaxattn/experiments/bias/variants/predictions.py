"""Predictions for variants of attention: theorems on one head hold for what each head sees."""

from __future__ import annotations

from collections.abc import Iterator

from jaxattn.experiments.bias.judging import Prediction
from jaxattn.experiments.bias.variants.runs import OWN, said_of
from jaxattn.study.claims import Setting, Source

_ANALOGY = "a conjecture, by analogy with one head on plain tokens"
_DESCENT = Source("arXiv 2308.16898", "convergence of gradient descent on W, by analogy", Setting.OURS)
_FACTORS = Source("arXiv 2308.16898", "implicit bias of training (K, Q), by analogy", Setting.OURS)
_SIGN = Source("arXiv 2502.04664 and 2602.16340", "limits of sign descent on other models, by analogy", Setting.OURS)
_JOINT = Source(
    "arXiv 2306.13596 and 2410.14581", "joint training of a prompt, or of W, and v, by analogy", Setting.OURS
)
_GD, _JOINTLY, _SIGNS = "normalized GD", "normalized GD, one norm", "sign descent"
_FALLING = "normalized GD, falling steps"
# The problem of a run itself.
_OF_HEADS = "the joint Att-SVM of all heads, min sum_h ||W_h||^2 such that every head's margins are at least 1"


def _of(name: str, weights: str, norm: str, statement: str, source: Source, about: str = OWN, **row: str) -> Prediction:
    given = {"weights": weights, "model": "", "noise": "", "rule": _GD} | row | {"about": about}
    return Prediction(name, given, norm, source, f"{statement}; {_ANALOGY}.")


def _heads() -> Iterator[Prediction]:
    each = said_of("heads")
    for model, name in (("2 heads added up", "2"), ("4 heads added up", "4"), ("2 heads concatenated", "concatenated")):
        row = {"model": model, "rule": _JOINTLY}
        training = f"Gradient descent on the W of {model}, with a joint norm"
        yield _of(f"w-{name}-joint", "W", "frobenius", f"{training}, obeys {_OF_HEADS}", _DESCENT, **row)
        statement = f"{training}: each head obeys the Frobenius Att-SVM of its own tokens"
        yield _of(f"w-{name}-each", "W", "frobenius", statement, _DESCENT, each, **row)
    two = {"model": "2 heads added up"}
    statement = (
        "If each head's step is divided by its own gradient's norm, each head obeys the Att-SVM of its own tokens"
    )
    yield _of("w-2-alone-each", "W", "frobenius", f"{statement} (Frobenius, training W)", _DESCENT, each, **two)
    yield _of("kq-2-alone-each", "KQ", "nuclear", f"{statement} (nuclear, training K and Q)", _FACTORS, each, **two)
    statement = "Gradient descent on K and Q of 2 heads, with a joint norm, obeys the joint nuclear Att-SVM"
    yield _of("kq-2-joint", "KQ", "nuclear", statement, _FACTORS, **two, rule=_JOINTLY)
    statement = "Sign descent on the W of 2 heads obeys the joint Att-SVM with the largest-entry norm"
    yield _of("w-2-sign-joint", "W", "max", statement, _SIGN, **two, rule=_SIGNS)


def _positions() -> Iterator[Prediction]:
    kinds = {"rotary": "rotary positions", "key-only": "positions in the keys", "additive": "added positions"}
    for name, model in kinds.items():
        over = f"over the keys and queries with their positions ({model})"
        statement = f"Gradient descent on W obeys the Frobenius Att-SVM {over}"
        yield _of(f"w-{name}", "W", "frobenius", statement, _DESCENT, model=model)
        statement = f"Gradient descent on (K, Q) obeys the nuclear Att-SVM {over}"
        yield _of(f"kq-{name}", "KQ", "nuclear", statement, _FACTORS, model=model)


def _normalized() -> Iterator[Prediction]:
    for name, model, over in (
        ("given", "", "over tokens of arbitrary lengths"),
        ("normalized", "normalized tokens", "over the normalized tokens and queries"),
    ):
        statement = f"Gradient descent on W obeys the Frobenius Att-SVM {over}"
        yield _of(f"w-{name}", "W", "frobenius", statement, _DESCENT, model=model)
        statement = f"Gradient descent on (K, Q) obeys the nuclear Att-SVM {over}"
        yield _of(f"kq-{name}", "KQ", "nuclear", statement, _FACTORS, model=model)


def _values() -> Iterator[Prediction]:
    row = {"model": "trained values"}
    statement = "Trained together with v, W obeys the Frobenius Att-SVM of the tokens that it selects"
    yield _of("w", "W", "frobenius", statement, _JOINT, **row)
    statement = "Trained together with v, (K, Q) obeys the nuclear Att-SVM of the tokens that it selects"
    yield _of("kq", "KQ", "nuclear", statement, _JOINT, **row)


def _noise() -> Iterator[Prediction]:
    kinds = {
        "batch-1": ("minibatches of 1", "along the gradients of single inputs"),
        "batch-3": ("minibatches of 3", "along the gradients of minibatches of 3 inputs"),
        "dropout-.1": ("dropout 0.1", "with a dropout of 0.1 on the attention"),
        "dropout-.5": ("dropout 0.5", "with a dropout of 0.5 on the attention"),
    }
    for name, (noise, how) in kinds.items():
        statement = f"Normalized descent on W {how} obeys the Frobenius Att-SVM"
        yield _of(f"w-{name}", "W", "frobenius", statement, _DESCENT, noise=noise)
    for name in ("batch-3", "dropout-.1"):
        noise, how = kinds[name]
        statement = f"Normalized descent on W {how}, with steps that fall like k^-1/2, obeys the Frobenius Att-SVM"
        yield _of(f"w-{name}-falling", "W", "frobenius", statement, _DESCENT, noise=noise, rule=_FALLING)
        statement = f"Normalized descent on (K, Q) {how} obeys the nuclear Att-SVM"
        yield _of(f"kq-{name}", "KQ", "nuclear", statement, _FACTORS, noise=noise)


# By experiment.
PREDICTIONS = {
    "atlas-heads": tuple(_heads()),
    "atlas-positions": tuple(_positions()),
    "atlas-normalized": tuple(_normalized()),
    "atlas-values": tuple(_values()),
    "atlas-noise": tuple(_noise()),
}
