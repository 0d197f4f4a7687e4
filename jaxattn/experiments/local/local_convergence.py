"""Does descent on W align with the Frobenius solution, and descent on (K, Q) with the nuclear one, as published?"""

from __future__ import annotations

from dataclasses import replace

import jax
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from jaxattn.statistics import bootstrap, variables
from jaxattn.study.claims import TRAINED, Datasets, Experiment, Judgement, Judgements, Setting, Source, claim
from jaxattn.study.claims.criteria import Criterion, above, agrees
from jaxattn.study.estimates import number
from jaxattn.study.measuring.comparison import compare
from jaxattn.study.measuring.curves import at_steps, curves, named
from jaxattn.study.measuring.growth import AT_REST, growth, lengths
from jaxattn.study.style import page, palette
from jaxattn.study.style.curves import draw_panels

_PAPER, _FIGURE = "arXiv 2308.16898", "local convergence figure, panel"
# The max-margin problem that each parameterization is claimed to solve, and the other one.
_NORMS = {"W": ("frobenius", "nuclear"), "KQ": ("nuclear", "frobenius")}
_MATRICES = {"W": "W", "KQ": "K Q^T"}
_SELF = "self-attention"
# Read from the authors' figure: correlations when training W at these steps, and the probability at step 200.
_PUBLISHED = {
    "frobenius": {200: 0.883, 400: 0.960, 600: 0.980, 800: 0.988, 1000: 0.993},
    "nuclear": {200: 0.796, 400: 0.848, 600: 0.858, 800: 0.861, 1000: 0.862},
}
_STEPS = tuple(_PUBLISHED["frobenius"])
_PUBLISHED_PROBABILITY = {200: 0.966}
# Fixed beforehand: thresholds for a saturated probability and for an aligned direction.
_SATURATED, _ALIGNED = 0.999, 0.99
# Where both solutions are equal, the solvers' accuracy makes the correlations differ by less than this.
_SAME = 1e-6
# The curves rise from about 0 to 1. If the difference from a published point could be larger than this, a point halfway
# to the next one would agree as well.
_WITHIN = 0.05


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate the curves of a run, its growth, and the `lead` of its own solution's correlation at the last step."""
    own, other = _NORMS[run.attrs["run"].partition(",")[0]]
    end = run["correlation"].isel(snapshot=-1)
    # Both correlations are of the same seeds, so their difference is paired by seed.
    lead = bootstrap(end.sel(norm=own).values - end.sel(norm=other).values, jax.random.fold_in(key, 2))
    grows = growth(lengths(run), jax.random.fold_in(key, 1))
    return curves(run, key).assign(variables({"lead": ((), lead)})).assign(dict(grows.data_vars))


@claim(
    "local-convergence:a",
    Source(_PAPER, f"{_FIGURE} (a)", Setting.EXACT),
    "The attention of every input saturates: the mean largest softmax probability tends to 1.",
    needs=replace(TRAINED, snapshots=tuple(_PUBLISHED_PROBABILITY)),
)
def _probability(runs: Datasets) -> Judgement:
    both = {name: runs[name] for name in _NORMS}
    last = both["W"].attrs["steps"]
    saturated = [
        above(f"{name}, probability at the last step", number(run, "probability", at=-1), _SATURATED)
        for name, run in both.items()
    ]
    return Judgement(
        (*_as_published(both["W"], "probability", _PUBLISHED_PROBABILITY, "W, probability"), *saturated),
        numbers=named({name: at_steps(run, "probability", (200, last)) for name, run in both.items()}),
        expected={f"W at step {step}": value for step, value in _PUBLISHED_PROBABILITY.items()}
        | {f"{name} at step {last}": 1.0 for name in both},
    )


@claim(
    "local-convergence:b",
    Source(_PAPER, f"{_FIGURE} (b)", Setting.EXACT),
    "Normalized gradient descent on W aligns with the Frobenius Att-SVM solution, not the nuclear one.",
    needs=replace(TRAINED, snapshots=_STEPS),
)
def _W(runs: Datasets) -> Judgement:
    run, aligned = runs["W"], []
    reads = {norm: at_steps(run, "correlation", _STEPS, norm=norm) for norm in _PUBLISHED}
    for norm, published in _PUBLISHED.items():
        aligned += _as_published(run.sel(norm=norm), "correlation", published, f"{norm} correlation")
    end = number(run, "correlation", at=-1, norm="frobenius").mean
    return Judgement(
        (*aligned, _leads(run)),
        remark=f"The Frobenius correlation is {end:.4f} at step {run.attrs['steps']}. The published rule adds 2.2e-16 "
        "to the gradient's norm; see rate for longer training with and without this floor.",
        numbers=named(reads),
        expected={f"{norm} at step {step}": _PUBLISHED[norm][step] for norm in reads for step in reads[norm]["steps"]},
    )


@claim(
    "local-convergence:c",
    Source(_PAPER, f"{_FIGURE} (c)", Setting.EXACT),
    "Normalized gradient descent on (K, Q) aligns with the nuclear Att-SVM solution, not the Frobenius one.",
    needs=TRAINED,
)
def _KQ(runs: Datasets) -> Judgement:
    run = runs["KQ"]
    last, end = run.attrs["steps"], number(run, "correlation", at=-1, norm="nuclear")
    return Judgement(
        (above(f"nuclear correlation at step {last}", end, _ALIGNED), _leads(run)),
        remark=f"This is the direction at step {last}. Whether the norm still grows, as a limit requires, is "
        "local-convergence:norm-KQ.",
        numbers=named({norm: at_steps(run, "correlation", (last,), norm=norm) for norm in _PUBLISHED}),
        expected={f"nuclear at step {last}": 1.0},
    )


@claim(
    "local-convergence:norm-W",
    Source(_PAPER, "theorem I of the poster", Setting.PROXY),
    "The norm of W diverges.",
    needs=TRAINED,
)
def _norm_of_W(runs: Datasets) -> Judgement:
    return Judgement(
        [_grows(runs["W"])],
        remark="The theorem is on plain descent with a fixed step. This is the published normalized rule.",
    )


@claim(
    "local-convergence:norm-KQ",
    Source(_PAPER, f"{_FIGURE} (c)", Setting.OURS),
    "The norm of K Q^T still grows at the end of the published run, as convergence in direction requires.",
    needs=TRAINED,
)
def _norm_of_KQ(runs: Datasets) -> Judgement:
    return Judgement(
        [_grows(runs["KQ"])],
        remark="The published protocol penalizes ||K||^2 + ||Q||^2 with coefficient 2.2e-16; see kq-penalty for the "
        "effect of this penalty and kq-limit for training without it.",
    )


@claim(
    "local-convergence:self-attention",
    Source("a news article on arXiv 2308.16898", "cross-attention and self-attention models", Setting.OURS),
    "Training has the same limits with self-attention, where the query is a token of the input, as with "
    "cross-attention: W aligns with the Frobenius Att-SVM solution, (K, Q) with the nuclear one.",
    needs=TRAINED,
)
def _attention(runs: Datasets) -> Judgement:
    both = {name: runs[name] for name in (*_NORMS, *(f"{weights}, {_SELF}" for weights in _NORMS))}
    criteria: list[Criterion] = []
    for name, run in both.items():
        own, _ = _NORMS[name.partition(",")[0]]
        label = f"{name}: {own} correlation at step {run.attrs['steps']}"
        criteria += [
            above(label, number(run, "correlation", at=-1, norm=own), _ALIGNED),
            replace(_leads(run), quantity=f"{name}: {_leads(run).quantity}"),
        ]
    return Judgement(criteria, remark="The queries of W and KQ are drawn apart from the tokens, as published.")


def _as_published(run: xarray.Dataset, name: str, published: dict[int, float], quantity: str) -> tuple[Criterion, ...]:
    """Ask for agreement with the published means at those of their steps that the run has."""
    read = at_steps(run, name, tuple(published))
    return tuple(
        agrees(f"{quantity} at step {step}", float(mean), float(error), published[int(step)], _WITHIN)
        for step, mean, error in zip(read["steps"], read[""], read["_error"], strict=True)
    )


def _leads(run: xarray.Dataset) -> Criterion:
    own, other = _NORMS[run.attrs["run"].partition(",")[0]]
    return above(f"{own} minus {other} correlation at the last step", number(run, "lead"), _SAME)


def _grows(run: xarray.Dataset) -> Criterion:
    steps = f"from step {int(run['since'])} to {int(run['until'])}"
    return above(f"p in ||{_MATRICES[run.attrs['run']]} Z|| ~ k^p {steps}", number(run, "growth"), AT_REST)


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw saturation and the direction errors of W and (K, Q), means over seeds, with the published means."""
    verdicts = {name: judgements[f"local-convergence:{name}"].verdict for name in "bc"}
    with page.style():
        figure = page.full(3.2)
        panels = figure.subplots(1, 3)
        draw_panels(panels, summaries)
        palette.published(panels[0], [*_PUBLISHED_PROBABILITY], [*_PUBLISHED_PROBABILITY.values()], "2308.16898")
        for means in _PUBLISHED.values():
            palette.published(panels[1], _STEPS, [1 - mean for mean in means.values()], "2308.16898")
        panels[0].legend(loc="lower right")
        panels[2].legend(loc="best", title="mean, 95 % interval")
        figure.suptitle(
            f"As published, $W$ aligns with the Frobenius SVM: {verdicts['b']}; $(K, Q)$ aligns with the nuclear SVM: "
            f"{verdicts['c']}"
        )
        drawn = {name: summaries[name] for name in _NORMS}
        page.add_counts(figure, drawn, "Published means: (a) of $W$, (b) of the curves on which they lie.")
    return figure


EXPERIMENT = Experiment(
    compare, claims=(_probability, _W, _KQ, _norm_of_W, _norm_of_KQ, _attention), estimate=estimate, draw=draw
)
