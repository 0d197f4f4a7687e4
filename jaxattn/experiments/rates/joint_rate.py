"""How fast does the risk fall when v is trained together with W, and where do both converge?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, PRNGKeyArray
from matplotlib.figure import Figure

from jaxattn import attention, losses, metrics, svm
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.study import claims
from jaxattn.study.claims import Datasets, Experiment, Judgement, Judgements, above, claim
from jaxattn.study.estimates import estimated, number, power_law, quantiles, share
from jaxattn.study.measuring.optimum import optimum
from jaxattn.study.settings.parameters import weights_of
from jaxattn.study.style import page, palette

_SOURCE = claims.Source(
    "arXiv 2402.05738", "theorem on joint training of decoder and attention (as recalled)", claims.Setting.PROXY
)
_NEEDS = claims.Needs(steps=claims.LEAST_STEPS)
# The steps of W and of v, by the names of the runs.
_STEPS = {"plain": "plain", "normalized": "normalized", "falling": "normalized, falling like k^-2/3"}
# Fixed beforehand: the exponent of t in the paper's bound on -log risk, the largest 1 - cos of a direction that has
# converged, and the share of seeds that is nearly all.
_BOUND, _NEAR, _ALL = 1 / 3, 0.01, 0.95
_PERCENTS = (50, 10, 90)
# The rounding error of 1 - cos in double precision for equal directions.
_ROUNDING = 1e-16
# Above this margin the logistic loss equals exp(-margin) in floating point.
_LARGE = 40.0


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compute the risk at every snapshot of a `Training` of W and v with the logistic loss on `law.near_orthogonal`.

    Returns:
        `fallen`, minus the natural logarithm of the risk, which does not underflow; `size`, `||v||`; `off_W`, 1 - cos
        of W and the Frobenius solution of the relevant tokens; and `off_v`, of v and mu, their max-margin decoder.
    """
    optima = optimum(record, solver)
    arrays = {str(name): optima.of(record[name]) for name in record.data_vars}
    snapshots = weights_of(arrays, "_snapshots")
    curves = batch.over_seeds(_along, snapshots.attention, snapshots.readout, optima.W, optima.problems)
    return xarray.Dataset(
        {name: (("seed", "snapshot"), curve) for name, curve in curves.items()},
        {"seed": optima.of(record["seed"]), "snapshot": record["snapshot"].values},
        optima.counts,
    )


def _along(
    W: Float[Array, "k d d"], v: Float[Array, "k d"], W_mm: Float[Array, "d d"], problem: Problem
) -> dict[str, Array]:
    def one(W: Array, v: Array) -> dict[str, Array]:
        outputs = attention.attended(attention.probabilities(W, problem), problem)
        off_W, off_v = 1 - metrics.correlation(W, W_mm), 1 - metrics.correlation(v[None], problem.v[None])
        return {
            "fallen": -log_risk(problem.Y * (outputs @ v)),
            "size": jnp.linalg.norm(v),
            "off_W": jnp.maximum(off_W, _ROUNDING),
            "off_v": jnp.maximum(off_v, _ROUNDING),
        }

    return jax.vmap(one)(W, v)


def log_risk(margins: Float[Array, " n"]) -> Float[Array, ""]:
    """Return the logarithm of the mean logistic loss, also if the loss itself underflows."""
    near = jnp.log(losses.logistic(jnp.minimum(margins, _LARGE)))
    each = jnp.where(margins < _LARGE, near, -margins)
    return jax.nn.logsumexp(each) - np.log(margins.shape[0])


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate how fast the risk falls and how close W and v come to their limits.

    `exponent` is that of t in -log risk over the last decade of steps, `growth` the same for `||v||`; `W_arrived` and
    `v_arrived` are the shares of seeds that end within 0.01 of the limit.
    """
    since = run["snapshot"].values[-1] / 10
    ends = run[["off_W", "off_v"]].isel(snapshot=-1, drop=True)
    return estimated(
        run,
        key,
        exponent=power_law(run["fallen"], since),
        growth=power_law(run["size"], since),
        W_arrived=share(ends["off_W"] <= _NEAR),
        v_arrived=share(ends["off_v"] <= _NEAR),
        **{name: quantiles(run[name], *_PERCENTS) for name in ("fallen", "off_W", "off_v")},
    )


@claim(
    "joint-rate:risk",
    _SOURCE,
    "If the decoder v and the attention W are trained together with normalized steps, the risk falls at least "
    "like exp(-t^(1/3)).",
    _NEEDS,
)
def _risk(runs: Datasets) -> Judgement:
    exponents = {run: number(runs[run], "exponent") for run in _STEPS}
    labels = {run: f"exponent of t in -log risk, {steps} steps" for run, steps in _STEPS.items()}
    asked = ("normalized", "falling")
    return Judgement(
        # A risk that falls faster agrees with the bound.
        [above(labels[run], exponents[run], _BOUND) for run in asked],
        undecided="Normalized steps prescribe the rate: -log risk grows like ||v||, and ||v|| like the sum of the "
        f"steps of v. Constant ones give the exponent {exponents['normalized'].mean:.3g}; ones like k^-2/3, the "
        f"shortest for which the bound can hold, {exponents['falling'].mean:.3g}. So the step sizes of the theorem "
        "decide, which the public abstract does not give; its proof's assumptions would be needed, not longer runs. "
        f"Plain steps, of which it does not speak, give {exponents['plain'].mean:.3g}.",
        numbers={labels[run]: exponents[run] for run in _STEPS}
        | {f"exponent of t in ||v||, {steps} steps": number(runs[run], "growth") for run, steps in _STEPS.items()},
        expected=dict.fromkeys((labels[run] for run in asked), _BOUND),
    )


@claim(
    "joint-rate:directions",
    _SOURCE,
    "When trained together, W converges in direction to W_mm, and v to the max-margin decoder of the relevant tokens.",
    _NEEDS,
)
def _directions(runs: Datasets) -> Judgement:
    summary = runs["normalized"]
    ends = ", ".join(f"{float(summary[f'off_{name}_50'][-1]):.2g} ({name})" for name in ("W", "v"))
    return Judgement(
        (
            above(f"share of seeds with 1 - cos of W and W_mm <= {_NEAR}", number(summary, "W_arrived"), _ALL),
            above(f"share with 1 - cos of v <= {_NEAR}", number(summary, "v_arrived"), _ALL),
        ),
        remark=f"Median 1 - cos at step {summary.attrs['steps']}: {ends}. Steps are constant and normalized, from "
        "random W and v. The max-margin decoder of the relevant tokens is mu itself.",
        counts=claims.counts_of(runs),
    )


_LOOKS = {"plain": (palette.GUIDE, ":"), "normalized": (palette.TEAL, "-"), "falling": (palette.AMBER, "-.")}
_LABELS = _STEPS | {"falling": r"normalized, falling like $k^{-2/3}$"}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw -log risk by all steps, and 1 - cos of W and v: medians over seeds."""
    with page.style():
        figure = page.full(3.6)
        risk, directions = (judgements[f"joint-rate:{name}"].verdict for name in ("risk", "directions"))
        figure.suptitle(f"Training v with W: the bound $t^{{1/3}}$ of -log risk: {risk}; both directions: {directions}")
        left, right = figure.subplots(1, 2)
        for run, (colour, dashes) in _LOOKS.items():
            summary = summaries[run]
            exponent = f"{_LABELS[run]}: $t^{{{float(summary['exponent']):.2f}}}$"
            for axes, name, mark, label in (
                (left, "fallen", "none", exponent),
                (right, "off_W", "none", f"$W$, {run}"),
                (right, "off_v", ".", f"$v$, {run}"),
            ):
                curve = (summary[f"{name}_{percent}"].values for percent in _PERCENTS)
                look = {"color": colour, "linestyle": dashes, "marker": mark, "label": label}
                page.band(axes, summary["snapshot"].values, *curve, **look)
        ends = summaries["falling"]["snapshot"].values[[0, -1]].astype(float)
        left.plot(ends, 0.5 * ends**_BOUND, color="black", linewidth=0.8, label=r"paper's bound, $\propto t^{1/3}$")
        left.set(xscale="log", yscale="log", xlabel="step t", ylabel="-log risk", ylim=(None, 1e5))
        left.set_title("(a) -log risk")
        left.legend(loc="upper left")
        right.axhline(_NEAR, color=palette.GUIDE, linewidth=0.7)
        place = {"xycoords": right.get_yaxis_transform(), "textcoords": "offset points"}
        right.annotate("asked for", (0, _NEAR), (2, -9), fontsize=page.SMALLEST, **place)
        right.set(xscale="log", yscale="log", xlabel="step t", ylabel="direction error, 1 - cos")
        right.set_title(r"(b) $W$ from $W_{mm}$, $v$ from $\mu$")
        right.legend(loc="lower left")
        counts = {"all three runs": xarray.Dataset(attrs=claims.total(summaries))}
        page.add_counts(figure, counts, "Medians over seeds; bands from the 10th to the 90th percentile.")
    return figure


EXPERIMENT = Experiment(measure, claims=(_risk, _directions), estimate=estimate, draw=draw)
