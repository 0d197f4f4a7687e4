"""The atlas: which norm does each rule obey on W and on (K, Q), with constant and with decreasing steps?"""

from __future__ import annotations

from typing import Any

import jax
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from jaxattn.bias.verdict import CLOSE
from jaxattn.experiments.bias import ratios
from jaxattn.experiments.bias.predictions import Prediction, caption, claims_of, finding
from jaxattn.experiments.bias.ratios import NORMS
from jaxattn.study.claims import TRAINED, Datasets, Experiment, Judgement, Judgements, Verdict, claim
from jaxattn.study.claims.claim import Setting, Source
from jaxattn.study.claims.criteria import above, below
from jaxattn.study.estimates import estimated, mean, number
from jaxattn.study.style import cells, page
from jaxattn.study.style.view import rounded

# The rules in the order of the rows: how their claims are called, and what these speak of, with W or (K, Q) in place of
# {}. A run is called "weights, rule, step".
RULES = {
    "normalized GD": ("gd", "Gradient descent on {}"),
    "GD with momentum": ("momentum", "Gradient descent with momentum on {}"),
    "sign descent": ("sign", "Sign descent on {}"),
    "signs of momentum": ("sign-momentum", "Descent along the signs of momentum on {}"),
    "Lion": ("lion", "Lion on {}"),
    "RMSProp": ("rmsprop", "RMSProp on {}"),
    # With the usual beta_2 of .999, W would go a fiftieth as far in as many steps.
    "Adam": ("adam", "Adam (beta_2 = 0.95, eps = 0) on {}"),
    "Adam, beta_2 = 0.999": ("adam-999", "Adam (beta_2 = 0.999, eps = 0) on {}"),
    "Adam, eps = 1e-8": ("adam-eps", "Adam (beta_2 = 0.95, eps = 1e-8) on {}"),
    "schedule-free GD": ("schedule-free", "Schedule-free normalized GD on {}"),
    "schedule-free Adam": ("schedule-free-adam", "Schedule-free Adam (beta_2 = 0.95, eps = 0) on {}"),
    "polar factor": ("polar", "Steepest descent on {} in the spectral norm"),
    "polar factor of momentum": ("polar-momentum", "Descent along the polar factor of momentum on {}"),
    "Muon": ("muon", "Muon with five Newton-Schulz steps on {}"),
    "GD on K, polar factor on Q": ("gd-polar", "Gradient descent on K with steepest descent on Q in the spectral norm"),
    "coordinate descent": ("coordinate", "Steepest descent on {} in the l_1 norm"),
    "mirror descent, p = 1.75": ("mirror-1.75", "Mirror descent on {} with p = 1.75"),
    "mirror descent, p = 3": ("mirror-3", "Mirror descent on {} with p = 3"),
}
STEPS = {"constant": "constant", "k^-1/2": "$k^{-1/2}$"}
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
_NEWTON = Source("jaxattn", "Muon's five Newton-Schulz steps in place of the polar factor", Setting.OURS)
_AVERAGED = Source("jaxattn", "averaging in place of a falling step (schedule-free)", Setting.OURS)
_INDUCED = Source("jaxattn", "the norm that norms of K and Q induce on K Q^T", Setting.OURS)


_BOTH, _CONSTANT, _FALLING = ("constant", "k^-1/2"), ("constant",), ("k^-1/2",)
# The steps with which a rule is predicted to obey a norm, and where from. On (K, Q) only steps that fall are, but for
# the gradient's own direction: the gradient then falls by a constant factor or more at each constant step, and momentum
# outlives it. What sign descent and Adam obey on (K, Q), the norm of sign matrices, is compared in atlas-induced.
_LIMITS = {
    "W": {
        "normalized GD": (_BOTH, "frobenius", _DESCENT),
        "GD with momentum": (_BOTH, "frobenius", _LINEAR),
        "sign descent": (_BOTH, "max", _LINEAR),
        "signs of momentum": (_FALLING, "max", _LINEAR),
        "Lion": (_BOTH, "max", _LINEAR),
        "RMSProp": (_CONSTANT, "max", _LINEAR),
        "Adam": (_BOTH, "max", _LINEAR),
        "Adam, beta_2 = 0.999": (_FALLING, "max", _LINEAR),
        "schedule-free GD": (_CONSTANT, "frobenius", _AVERAGED),
        "schedule-free Adam": (_CONSTANT, "max", _AVERAGED),
        "polar factor": (_BOTH, "spectral", _LINEAR),
        "polar factor of momentum": (_FALLING, "spectral", _LINEAR),
        "Muon": (_BOTH, "spectral", _NEWTON),
        "coordinate descent": (_BOTH, "l1", _LINEAR),
        "mirror descent, p = 1.75": (_CONSTANT, "l_1.75", _MIRROR),
        "mirror descent, p = 3": (_CONSTANT, "l_3", _MIRROR),
    },
    "KQ": {
        "normalized GD": (_BOTH, "nuclear", _FACTORS),
        "GD with momentum": (_FALLING, "nuclear", _INDUCED),
        "polar factor": (_FALLING, "spectral", _INDUCED),
        "GD on K, polar factor on Q": (_FALLING, "frobenius", _INDUCED),
        "Muon": (_FALLING, "spectral", _INDUCED),
    },
}
_SCHEDULES = {"constant": "with a constant step", "k^-1/2": "with steps that fall like k^-1/2"}
# For predictions that no paper makes about attention.
_CONJECTURES = {
    _LINEAR: "; a conjecture, by analogy with linear models",
    _NEWTON: "; a question of ours",
    _AVERAGED: "; a question of ours",
    _INDUCED: "; a conjecture: this is the norm that the norms of K and Q induce on K Q^T",
}


_NAMES = {"constant": "constant", "k^-1/2": "falling"}


def _prediction(weights: str, rule: str, step: str) -> Prediction:
    _, norm, source = _LIMITS[weights][rule]
    name, subject = RULES[rule]
    subject = subject.format("W" if weights == "W" else "(K, Q)")
    if (weights, rule) == ("KQ", "polar factor"):
        subject = "Steepest descent on K and Q in spectral norms"
    statement = f"{subject}, {_SCHEDULES[step]}, obeys the Att-SVM with the norm {norm}{_CONJECTURES.get(source, '')}."
    return Prediction(f"{weights.lower()}-{name}-{_NAMES[step]}", f"{weights}, {rule}, {step}", norm, source, statement)


PREDICTIONS = tuple(
    _prediction(weights, rule, step)
    for weights, limits in _LIMITS.items()
    for rule, (steps, *_) in limits.items()
    for step in steps
)
_PREDICTED = {prediction.run: prediction.norm for prediction in PREDICTIONS}


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Return what `ratios.estimate` does, and `change`, that of the margin ratio over the last decade of steps."""
    ratio, steps = run["margin_ratio"], run["snapshot"].values
    before = ratio.sel(snapshot=steps[-1] / 10, method="nearest", drop=True)
    change = mean(ratio.isel(snapshot=-1, drop=True) - before)
    return ratios.estimate(run, key).assign(estimated(run, jax.random.fold_in(key, 1), change=change))


@claim(
    "atlas:w-adam-eps",
    Source("jaxattn", "the usual eps of Adam", Setting.OURS),
    "With the usual eps of 1e-8, Adam (beta_2 = 0.95) on W, with a constant step, turns away from the Att-SVM with the "
    "norm max: once the gradient is below eps, the margin ratio in this norm falls, and that in the Frobenius norm "
    "rises.",
    needs=TRAINED,
)
def _usual_adam(runs: Datasets) -> Judgement:
    run = runs["W, Adam, eps = 1e-8, constant"]
    reached = {norm: number(run, "ratio", norm=norm) for norm in ("max", "frobenius")}
    change = {norm: number(run, "change", norm=norm) for norm in reached}
    label = "change of the margin ratio over the last decade of steps"
    return Judgement(
        [
            below("mean margin ratio, max", reached["max"], CLOSE),
            below(f"{label}, max", change["max"], 0.0),
            above(f"{label}, frobenius", change["frobenius"], 0.0),
        ],
        remark="Its steps are then those of gradient descent with momentum and a huge step size, under which W grows "
        "only like the logarithm of the steps. With eps = 0 see w-adam-constant.",
        numbers={f"margin ratio, {norm}": ratio for norm, ratio in reached.items()},
    )


_TITLES = {"W": "(a) $W$, from zero", "KQ": "(b) $(K, Q)$, as published"}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a panel for each parameterization: a row for each rule and schedule, a column for each norm."""
    rows = [row for row in ROWS if any(f"{weights}, {row}" in summaries for weights in _TITLES)]
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
        figure.suptitle(finding(judgements[f"atlas:{each.name}"] for each in PREDICTIONS))
        steps = {int(run["snapshot"][-1]) for run in summaries.values()}
        page.add_counts(
            figure,
            summaries,
            caption(f"{min(steps):,} steps, up to {max(steps):,} where these did not decide", summaries.values()),
        )
    return figure


_VIEW_STEPS = {"constant": "constant step", "k^-1/2": "step k^-1/2"}


def view(runs: Datasets) -> dict[str, Any]:
    """Return the `norms`, and `rows`: of each run the mean `ratio` over the seeds, (norm, step), and what it is."""
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
        for weights in _TITLES
        if (name := f"{weights}, {rule}, {step}") in runs
    ]
    return {"norms": list(NORMS), "rows": rows}


EXPERIMENT = Experiment(
    ratios.measure, claims=(*claims_of("atlas", PREDICTIONS), _usual_adam), estimate=estimate, draw=draw, view=view
)
