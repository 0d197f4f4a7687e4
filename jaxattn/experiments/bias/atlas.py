"""The atlas: which norm does each rule obey on W and on (K, Q), with constant and with decreasing steps?"""

from __future__ import annotations

from typing import Any, NamedTuple

from matplotlib.figure import Figure

from jaxattn.experiments.bias.predictions import Prediction, caption, claims_of, finding, usual_steps
from jaxattn.experiments.bias.ratios import NORMS, estimate, measure
from jaxattn.study.claims import Datasets, Experiment, Judgements, Verdict
from jaxattn.study.claims.claim import Setting, Source
from jaxattn.study.style import cells, page
from jaxattn.study.style.view import rounded

# The rules and steps in the order of the rows. A run is called "weights, rule, step".
RULES = (
    "normalized GD",
    "GD with momentum",
    "sign descent",
    "Lion",
    "RMSProp",
    "Adam",
    "polar factor",
    "Muon",
    "coordinate descent",
    "mirror descent, p = 1.75",
    "mirror descent, p = 3",
)
STEPS = {"constant": "constant", "k^-1/2": "$k^{-1/2}$"}
WEIGHTS = {"W": "$W$", "KQ": "$(K, Q)$"}
# Rows of the figure: how the names of runs end, and how they are written.
ROWS = {f"{rule}, {step}": f"{rule}, {written}" for rule in RULES for step, written in STEPS.items()}

_DESCENT = Source("arXiv 2308.16898", "convergence of gradient descent on W", Setting.PROXY)
_FACTORS = Source("arXiv 2308.16898", "implicit bias of training (K, Q), local convergence figure", Setting.PROXY)
_MIRROR = Source("arXiv 2410.14581", "convergence of mirror descent with the l_p potential", Setting.PROXY)
_LINEAR = Source(
    "arXiv 2502.04664 and 2602.16340",
    "limits of steepest descent, Muon and Adam on linear and homogeneous models, by analogy",
    Setting.OURS,
)
_INDUCED = Source("jaxattn", "the norm that norms of K and Q induce on K Q^T", Setting.OURS)


class _Limit(NamedTuple):
    """The norm that a rule obeys with some schedules; empty if it is none of NORMS."""

    name: str
    rule: str
    steps: tuple[str, ...]
    norm: str
    source: Source
    subject: str


# With the usual beta_2 of .999, W would go a fiftieth as far in as many steps.
_ADAM = "Adam (beta_2 = 0.95, eps = 0)"
_BOTH, _CONSTANT = ("constant", "k^-1/2"), ("constant",)
# Two predictions of no norm, which are never confirmed: the largest entries of K and Q induce a norm whose unit ball
# lies in m times the hull of the sign matrices x y^T.
_LIMITS = {
    "W": (
        _Limit("gd", "normalized GD", _BOTH, "frobenius", _DESCENT, "Gradient descent on W"),
        _Limit("momentum", "GD with momentum", _BOTH, "frobenius", _LINEAR, "Gradient descent with momentum on W"),
        _Limit("sign", "sign descent", _BOTH, "max", _LINEAR, "Sign descent on W"),
        _Limit("lion", "Lion", _BOTH, "max", _LINEAR, "Lion on W"),
        _Limit("rmsprop", "RMSProp", _CONSTANT, "max", _LINEAR, "RMSProp on W"),
        _Limit("adam", "Adam", _BOTH, "max", _LINEAR, f"{_ADAM} on W"),
        _Limit("polar", "polar factor", _BOTH, "spectral", _LINEAR, "Steepest descent on W in the spectral norm"),
        _Limit("muon", "Muon", _BOTH, "spectral", _LINEAR, "Muon on W"),
        _Limit("coordinate", "coordinate descent", _BOTH, "l1", _LINEAR, "Steepest descent on W in the l_1 norm"),
        _Limit(
            "mirror-1.75", "mirror descent, p = 1.75", _CONSTANT, "l_1.75", _MIRROR, "Mirror descent on W with p = 1.75"
        ),
        _Limit("mirror-3", "mirror descent, p = 3", _CONSTANT, "l_3", _MIRROR, "Mirror descent on W with p = 3"),
    ),
    "KQ": (
        _Limit("gd", "normalized GD", _BOTH, "nuclear", _FACTORS, "Gradient descent on (K, Q)"),
        _Limit("momentum", "GD with momentum", _BOTH, "nuclear", _INDUCED, "Gradient descent with momentum on (K, Q)"),
        _Limit("sign", "sign descent", _BOTH, "", _INDUCED, "Sign descent on (K, Q)"),
        _Limit("adam", "Adam", _BOTH, "", _INDUCED, f"{_ADAM} on (K, Q)"),
        _Limit("polar", "polar factor", _BOTH, "spectral", _INDUCED, "Steepest descent on K and Q in spectral norms"),
        _Limit("muon", "Muon", _BOTH, "spectral", _INDUCED, "Muon on (K, Q)"),
    ),
}
_SCHEDULES = {"constant": "with a constant step", "k^-1/2": "with steps that fall like k^-1/2"}
# For predictions that no paper makes about attention.
_CONJECTURES = {
    _LINEAR: "; a conjecture, by analogy with linear models",
    _INDUCED: "; a conjecture: this is the norm that the norms of K and Q induce on K Q^T",
}


def _statement(limit: _Limit, step: str) -> str:
    rule = f"{limit.subject}, {_SCHEDULES[step]}, obeys"
    if limit.norm:
        return f"{rule} the Att-SVM with the norm {limit.norm}{_CONJECTURES.get(limit.source, '')}."
    return (
        f"{rule} none of the Att-SVMs with the norms {', '.join(NORMS)}; a conjecture: the largest entries of K and Q "
        "induce another norm on K Q^T."
    )


_NAMES = {"constant": "constant", "k^-1/2": "falling"}
PREDICTIONS = tuple(
    Prediction(
        f"{weights.lower()}-{limit.name}-{_NAMES[step]}",
        f"{weights}, {limit.rule}, {step}",
        limit.norm,
        limit.source,
        _statement(limit, step),
    )
    for weights, limits in _LIMITS.items()
    for limit in limits
    for step in limit.steps
)
_PREDICTED = {prediction.run: prediction.norm for prediction in PREDICTIONS}

_TITLES = {"W": "(a) $W$, from zero", "KQ": "(b) $(K, Q)$, as published"}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a panel for each parameterization: a row for each rule and schedule, a column for each norm."""
    rows = [row for row in ROWS if any(f"{weights}, {row}" in summaries for weights in WEIGHTS)]
    with page.style():
        figure = page.full(1.5 + 0.19 * len(rows))
        for (weights, title), axes in zip(_TITLES.items(), figure.subplots(1, 2, sharey=True), strict=True):
            runs = [f"{weights}, {row}" for row in rows]
            cells.table(axes, [cells.Row(summaries.get(run), _PREDICTED.get(run)) for run in runs], NORMS)
            ids = [f"atlas:{each.name}" for each in PREDICTIONS if each.run.startswith(f"{weights}, ")]
            held = sum(judgements[id].verdict is Verdict.HOLDS for id in ids)
            axes.set_title(f"{title}: {held} of {len(ids)} confirmed")
        figure.axes[0].set_yticks(range(len(rows)), [ROWS[row] for row in rows])
        figure.axes[0].tick_params(axis="y", labelsize=cells.SIZE)
        figure.suptitle(finding(judgements.values()))
        page.add_counts(figure, summaries, _caption(summaries))
    return figure


def _caption(summaries: Datasets) -> str:
    """Explain the cells, and name the runs with more steps than usual."""
    usual = usual_steps(summaries)
    labels = {f"{weights}, {row}": f"{WEIGHTS[weights]} with {ROWS[row]}" for weights in WEIGHTS for row in ROWS}
    longer: dict[int, list[str]] = {}
    for name, run in summaries.items():
        longer.setdefault(int(run["snapshot"][-1]), []).append(labels[name])
    others = [f" After {steps:,} steps: {'; '.join(names)}." for steps, names in longer.items() if steps != usual]
    return caption(f"{usual:,} steps", "predicted; a framed row: none of these norms") + "".join(others)


_VIEW_STEPS = {"constant": "constant step", "k^-1/2": "step k^-1/2"}


def view(runs: Datasets) -> dict[str, Any]:
    """Return the mean margin ratios over the seeds, step by step.

    Returns:
        The `norms`, and `rows`, for each run its `weights`, the rule and schedule that its `name` says, the norm that
        is `predicted`, the number of `seeds`, the `steps`, and the mean `ratio`, (norm, step).
    """
    rows = [
        {
            "weights": weights,
            "name": f"{rule}, {_VIEW_STEPS[step]}",
            "predicted": _PREDICTED.get(name, ""),
            "seeds": runs[name].sizes["seed"],
            "steps": runs[name]["snapshot"].values.tolist(),
            "ratio": rounded(runs[name]["margin_ratio"].mean("seed").values),
        }
        for rule in RULES
        for step in STEPS
        for weights in WEIGHTS
        if (name := f"{weights}, {rule}, {step}") in runs
    ]
    return {"norms": list(NORMS), "rows": rows}


EXPERIMENT = Experiment(measure, claims=claims_of("atlas", PREDICTIONS), estimate=estimate, draw=draw, view=view)
