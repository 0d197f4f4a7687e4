"""The predictions for the rows of the atlas."""

from __future__ import annotations

from typing import NamedTuple

from jaxattn.experiments.bias.rules import NORMS, STEPS
from jaxattn.study.claims import Setting, Source

_DESCENT = Source("arXiv 2308.16898", "convergence of gradient descent on W", Setting.PROXY)
_FACTORS = Source("arXiv 2308.16898", "implicit bias of training (K, Q), local convergence figure", Setting.PROXY)
_MIRROR = Source("arXiv 2410.14581", "convergence of mirror descent with the l_p potential", Setting.PROXY)
_LINEAR = Source(
    "arXiv 2502.04664 and 2602.16340",
    "limits of steepest descent, Muon and Adam on linear and homogeneous models, by analogy",
    Setting.OURS,
)
_INDUCED = Source("jaxattn", "the norm that norms of K and Q induce on K Q^T", Setting.OURS)


class Prediction(NamedTuple):
    """The prediction for a row of the atlas.

    Attributes:
        name: of the claim.
        weights: "W" or "KQ".
        rule: one of RULES.
        step: "constant" or "falling".
        norm: the norm that it obeys; empty if it obeys none of those in the atlas.
        source: where this is stated.
        statement: the statement.
    """

    name: str
    weights: str
    rule: str
    step: str
    norm: str
    source: Source
    statement: str

    @property
    def row(self) -> dict[str, str]:
        """The row of the atlas, in the terms of `rules.described`."""
        return {"weights": self.weights, "rule": self.rule, "step": self.step}


class _Said(NamedTuple):
    """A prediction for a rule with some schedules."""

    weights: str
    name: str
    rule: str
    steps: tuple[str, ...]
    norm: str
    source: Source
    subject: str


_BOTH, _CONSTANT = tuple(STEPS), ("constant",)
_SAID = (
    _Said("W", "gd", "normalized_gd", _BOTH, "frobenius", _DESCENT, "Gradient descent on W"),
    _Said("W", "momentum", "momentum frobenius", _BOTH, "frobenius", _LINEAR, "Gradient descent with momentum on W"),
    _Said("W", "sign", "steepest max", _BOTH, "max", _LINEAR, "Sign descent on W"),
    _Said("W", "lion", "lion", _BOTH, "max", _LINEAR, "Lion on W"),
    _Said("W", "rmsprop", "rmsprop", _CONSTANT, "max", _LINEAR, "RMSProp on W"),
    _Said("W", "adam", "adam", _BOTH, "max", _LINEAR, "Adam on W"),
    _Said("W", "polar", "steepest spectral", _BOTH, "spectral", _LINEAR, "Steepest descent on W in the spectral norm"),
    _Said("W", "muon", "muon", _BOTH, "spectral", _LINEAR, "Muon on W"),
    _Said("W", "coordinate", "steepest l1", _BOTH, "l1", _LINEAR, "Steepest descent on W in the l_1 norm"),
    _Said("W", "mirror-1.75", "mirror 1.75", _CONSTANT, "l_1.75", _MIRROR, "Mirror descent on W with p = 1.75"),
    _Said("W", "mirror-3", "mirror 3", _CONSTANT, "l_3", _MIRROR, "Mirror descent on W with p = 3"),
    _Said("KQ", "gd", "normalized_gd", _BOTH, "nuclear", _FACTORS, "Gradient descent on (K, Q)"),
    _Said(
        "KQ", "momentum", "momentum frobenius", _BOTH, "nuclear", _INDUCED, "Gradient descent with momentum on (K, Q)"
    ),
    # The largest entries of K and Q induce a norm whose unit ball lies in m times the hull of the sign matrices x y^T:
    # not one of NORMS.
    _Said("KQ", "sign", "steepest max", _BOTH, "", _INDUCED, "Sign descent on (K, Q)"),
    _Said("KQ", "adam", "adam", _BOTH, "", _INDUCED, "Adam on (K, Q)"),
    _Said(
        "KQ", "polar", "steepest spectral", _BOTH, "spectral", _INDUCED, "Steepest descent on K and Q in spectral norms"
    ),
    _Said("KQ", "muon", "muon", _BOTH, "spectral", _INDUCED, "Muon on (K, Q)"),
)
_STEPS = {"constant": "with a constant step", "falling": "with steps that fall like k^-1/2"}
# For predictions that no paper makes about attention.
_CONJECTURES = {
    _LINEAR: "; a conjecture, by analogy with linear models",
    _INDUCED: "; a conjecture: this is the norm that the norms of K and Q induce on K Q^T",
}


def _statement(one: _Said, step: str) -> str:
    norm = (
        f"the Att-SVM with the norm {one.norm}"
        if one.norm
        else (f"none of the Att-SVMs with the norms {', '.join(NORMS)}")
    )
    if one.norm or one.source not in _CONJECTURES:
        return f"{one.subject}, {_STEPS[step]}, obeys {norm}{_CONJECTURES.get(one.source, '')}."
    return (
        f"{one.subject}, {_STEPS[step]}, obeys {norm}; a conjecture: the largest entries of K and Q induce another "
        "norm on K Q^T."
    )


PREDICTIONS = tuple(
    Prediction(
        f"{one.weights.lower()}-{one.name}-{step}",
        one.weights,
        one.rule,
        step,
        one.norm,
        one.source,
        _statement(one, step),
    )
    for one in _SAID
    for step in one.steps
)
