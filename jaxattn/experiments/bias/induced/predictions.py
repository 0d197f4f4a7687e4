"""Predictions for steepest descent on (K, Q): the norm that the norm of K and of Q induces on their product."""

from __future__ import annotations

from typing import NamedTuple

from jaxattn.experiments.bias.judging import Prediction
from jaxattn.study.claims import Setting, Source

_SOURCE = Source("jaxattn", "the norm induced on W = K Q^T, min max(||K||, ||Q||)^2", Setting.OURS)
WIDTHS = ("10", "40")


class _Rule(NamedTuple):
    name: str
    rule: str
    subject: str
    norm: str


_RULES = (
    _Rule("gd", "normalized_gd", "in the Frobenius norm (normalized gradient descent)", "nuclear"),
    _Rule("polar", "steepest spectral", "in the spectral norm (polar factors)", "spectral"),
    _Rule("rows", "steepest 2,inf", "in the norm of the longest row", "gamma2"),
    _Rule("sign", "steepest max", "in the largest entry (sign descent)", "sign"),
)


def _statement(one: _Rule, m: str) -> str:
    return (
        f"Steepest descent on K and Q {one.subject}, with m = {m} columns and steps that fall like k^-1/2, obeys the "
        f"Att-SVM with the norm {one.norm}, which it induces on K Q^T for large m; a conjecture."
    )


PREDICTIONS = tuple(
    Prediction(
        f"{one.name}-{m}",
        {"weights": "KQ", "rule": one.rule, "step": "falling", "m": m},
        one.norm,
        _SOURCE,
        _statement(one, m),
    )
    for one in _RULES
    for m in WIDTHS
)
# The names of the rules in the figure.
SAID = {
    one.rule: said for one, said in zip(_RULES, ("Frobenius", "spectral", "longest row", "largest entry"), strict=True)
}
