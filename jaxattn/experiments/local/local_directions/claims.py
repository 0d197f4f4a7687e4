"""Where descent stays that starts far along an SVM solution (2308.16898, theorem on local convergence)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxattn import attention, metrics, svm, tokens
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.claims import Claim, Verdict, counts_of, too_few, too_short
from jaxattn.study.statistics import pooled

# A run has stayed if it selects alpha at the end and its direction is this close to W_alpha.
STAYED = 0.99
# At the largest radius, the largest share of locally optimal choices that may be left.
_FEW = 0.1


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Hold every run against the solution that it started along, solved and certified once more.

    Args:
        record: of a `Directions`.
        solver: of the Att-SVM; this package's own if None.

    Returns:
        A dataset with axis `start`, a kept choice of tokens of a problem in dimension `d`, and `radius`: whether
        descent `stayed`, and its final `correlation` with W_alpha; whether alpha is locally optimal (`locally`), its
        least lead in score over a support neighbour (`gap`), the `slack` of the tokens that outscore alpha and are
        none (how far the smallest of their margins exceeds 1; inf without any), and the `length` of W_alpha. The
        choices whose Att-SVM is not solved count as `infeasible` or `unsolved`.
    """
    seeds, dimensions, choices = record["alpha"].shape[:3]
    arrays = {str(name): record[name].values.reshape(-1, *record[name].shape[2:]) for name in record.data_vars}
    problems = of_arrays({name: np.repeat(arrays[name], choices, axis=0) for name in ("X", "Z", "Y", "v")})
    alpha, final = (arrays[name].reshape(-1, *arrays[name].shape[2:]) for name in ("alpha", "W"))
    solution = svm.solve_batch(batch.over_seeds(svm.token_constraints, problems, alpha), solver=solver)
    of_start, of_run = batch.over_seeds(_held_against, problems, alpha, solution.W, final)
    kept = solution.status == svm.Status.OPTIMAL
    infeasible = int((solution.status == svm.Status.INFEASIBLE).sum())
    variables = {name: (("start",), values[kept]) for name, values in of_start.items()}
    variables |= {name: (("start", "radius"), values[kept]) for name, values in of_run.items()}
    variables["d"] = (("start",), np.tile(np.repeat(record["d"].values, choices), seeds)[kept])
    variables["seed"] = (("start",), np.repeat(record["seed"].values, dimensions * choices)[kept])
    return xarray.Dataset(
        variables,
        {"radius": record["radius"].values},
        attrs={
            "run": "all starts",
            "steps": int(json.loads(record.attrs["config"])["steps"]),
            "attempted": kept.size,
            "kept": int(kept.sum()),
            "infeasible": infeasible,
            "unsolved": int((~kept).sum()) - infeasible,
        },
    )


def _held_against(
    problem: Problem, alpha: Int[Array, " n"], W: Float[Array, "d d"], final: Float[Array, "radii d d"]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return what is known of a choice of tokens with solution W, and of the runs that started along W."""
    scores = tokens.scores(problem)
    margins = svm.margins(svm.token_constraints(problem, alpha), W)
    neighbours = tokens.support_neighbours(margins, alpha)
    lead = jnp.take_along_axis(scores, alpha[:, None], axis=1) - scores
    logits = attention.logits(W, problem)
    above = jnp.take_along_axis(logits, alpha[:, None], axis=1) - logits
    correlation = jax.vmap(metrics.correlation, in_axes=(0, None))(final, W)
    selects = (jax.vmap(tokens.selected, in_axes=(0, None))(final, problem) == alpha[None, :]).all(axis=1)
    of_start = {
        "locally": tokens.is_locally_optimal(scores, alpha, neighbours),
        "gap": jnp.min(jnp.where(neighbours, lead, jnp.inf)),
        "slack": jnp.min(jnp.where((lead < 0) & ~neighbours, above - 1, jnp.inf)),
        "length": metrics.norm(W),
    }
    # Where weights are not finite the correlation is NaN, and the run has not stayed.
    return of_start, {"correlation": correlation, "stayed": selects & (correlation > STAYED)}


def summarize(
    datasets: Mapping[str, xarray.Dataset], key: PRNGKeyArray
) -> tuple[dict[str, xarray.Dataset], list[Claim]]:
    """Count where descent stayed against where the tokens are locally optimal, and judge the claim.

    Args:
        datasets: of `measure`, "all starts" alone.
        key: of the bootstrap; whole problems' seeds are resampled, since choices of tokens of one depend on each other.

    Returns:
        The dataset with axes `of`, locally optimal or not, and `radius` in addition: the share of starts that were
        left, its interval, and how many there are; the claim.

    Raises:
        ValueError: no start was kept.
    """
    (summary,) = datasets.values()
    if not summary.sizes["start"]:
        raise ValueError(f"local-directions: expected a solved choice of tokens, found counts {counts_of(datasets)}")
    shape = 2, summary.sizes["radius"]
    table = {name: np.full(shape, np.nan) for name in ("left", "left_low", "left_high")}
    number = np.zeros(2, int)
    keys = jax.random.split(key)
    for k, locally in enumerate((False, True)):
        those = summary["locally"].values == locally
        own = summary["stayed"].values[those]
        number[k] = len(own)
        if len(own):
            estimate = pooled(~own, summary["seed"].values[those], keys[k])
            for name, values in zip(table, estimate[:3], strict=True):
                table[name][k] = values
    summary = summary.assign({name: (("of", "radius"), values) for name, values in table.items()})
    summary = summary.assign(starts=(("of",), number)).assign_coords(of=["not local", "local"])
    return {summary.attrs["run"]: summary}, [_claim(summary, counts_of(datasets))]


def _claim(summary: xarray.Dataset, counts: Mapping[str, Mapping[str, int]]) -> Claim:
    measured, interval, expected = {}, {}, {}
    for of, goal, radius in itertools.product(("local", "not local"), (0.0, 1.0), summary["radius"].values):
        if (of == "local") == (goal == 0.0):
            here = summary.sel(of=of, radius=radius)
            label = f"{of}, share left, R = {radius:g}"
            if int(here["starts"]):
                measured[label], expected[label] = float(here["left"]), goal
                interval[label] = (float(here["left_low"]), float(here["left_high"]))
    wrongly = int((summary["stayed"] & ~summary["locally"]).sum())
    left = summary["left"].sel(of="local").values
    falls = bool((np.diff(left) <= 0).all())
    if wrongly:
        verdict = Verdict.FAILS
    elif left[-1] == 0:
        verdict = Verdict.HOLDS
    else:
        verdict = Verdict.CORRECTED if falls and left[-1] <= _FEW else Verdict.FAILS
    undecided = too_short(summary.attrs["steps"]) or too_few(int(summary["starts"].min()))
    apart = _slack_of(summary)
    return Claim(
        id="local-directions:exactly",
        source="arXiv 2308.16898, theorem on local convergence of gradient descent",
        statement="Descent that starts far along W_alpha stays at alpha exactly where alpha is locally optimal.",
        expected=expected,
        measured=measured,
        interval=interval,
        counts=counts,
        verdict=Verdict.OPEN if undecided else verdict,
        note=undecided
        or f"Stayed: selects alpha, correlation above {STAYED} after the last step. {wrongly} runs stayed at tokens "
        "that are not locally optimal. Locally optimal ones are left where R is too small for the slack of a token of "
        f"higher score: the median of slack R / ||W_alpha|| is {apart[0]:.1f} where they were left and {apart[1]:.1f} "
        "where not. Holds if at the largest R none is left, with a correction (R large enough for alpha) if the share "
        f"falls with every larger R, to at most {_FEW}; does not hold if any run stays where alpha is not locally "
        "optimal.",
    )


def _slack_of(summary: xarray.Dataset) -> tuple[float, float]:
    """Return the median of `slack R / ||W_alpha||` over locally optimal starts that were left, and that were not.

    Of those that some token outscores; NaN without any.
    """
    scaled = (summary["slack"] * summary["radius"] / summary["length"]).values
    counted = summary["locally"].values[:, None] & np.isfinite(scaled)
    parts = (scaled[counted & (summary["stayed"].values == stayed)] for stayed in (False, True))
    left, kept = (float(np.median(part)) if part.size else np.nan for part in parts)
    return left, kept
