"""When sequences become separable, how both layers grow, and which hyperplane the linear layer approaches."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxattn import attention, svm
from jaxattn.bias import limits
from jaxattn.experiments.tasks.regular_languages.law import answered
from jaxattn.losses import logistic
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.statistics import Estimate, variables
from jaxattn.study.estimates import estimated, geometric_mean, mean, power_law, share
from jaxattn.study.measuring import exclusions
from jaxattn.study.settings.parameters import finite_seeds, weights_of

# The rounding error of 1 - cos for equal directions in double precision.
_SAME = 1e-16
# Growth in the first phase is read off its last part, from this share of its steps.
_EARLY = 1 / 4


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Solve the max-margin problem of the attention's outputs at every snapshot, and compare the linear layer v.

    The first phase ends at the snapshot from which on the model is right on every sequence. A seed is kept if its
    weights stayed finite, if this happens (else "infeasible"), and if the problem is certified there, at the start,
    where it may be infeasible, and over the last decade of steps (else "unsolved"). Between, snapshots are dropped at
    which it is not solved for all kept seeds; the attributes count the problems after the first phases, `points`, and
    `unsolved_points` of them.

    Returns:
        By seed: `phase`, the step at which the first phase ends, `rise_W` and `rise_v`, the exponents of t in the norms
        in its last part, and `answered`, the share of sequences whose parity the chain of thought finds. Along the
        snapshots: `size_W` and `size_v`, the norms; `loss`; `moved`, the largest change of a probability of attention
        until the end; and `off_first`, 1 - cos of v and the hyperplane of the outputs at the end of the first phase.
        From the end of all seeds' first phases, along `later`: `off` and `ratio`, 1 - cos and the margin ratio of v and
        the hyperplane of the outputs at that step. By attempt: whether its outputs are not separable at the
        `start`, and whether the first phase ends within a hundredth of all steps (`soon`).
    """
    arrays = {str(name): record[name].values for name in record.data_vars}
    steps = record["snapshot"].values
    weights, begun = weights_of(arrays, "_snapshots"), weights_of(arrays, "_initial")
    W, v = (np.concatenate([first[:, None], rest], axis=1) for first, rest in zip(begun, weights, strict=True))
    distinct = np.unique(arrays["X"][0].reshape(len(arrays["X"][0]), -1), axis=0, return_index=True)[1]
    s, outputs, loss = batch.over_seeds(_along, W, v, of_arrays(arrays))
    rows = arrays["Y"][:, None, distinct, None] * outputs[:, :, distinct]
    solved = svm.solve_batch(_hyperplane(rows), svm.frobenius, solver=solver)
    status = np.asarray(solved.status).reshape(W.shape[:2])
    best = np.asarray(solved.W)[..., 0].reshape(v.shape)
    margin = np.einsum("sknd,skd->skn", rows, v).min(axis=2)[:, 1:]

    finite = finite_seeds(weights)
    ends, since = _separated(margin)
    optimal = status[:, 1:] == svm.Status.OPTIMAL
    known = optimal[np.arange(len(since)), since] & optimal[:, limits.last_decade(steps)].all(axis=1)
    known &= np.isin(status[:, 0], (svm.Status.OPTIMAL, svm.Status.INFEASIBLE))
    kept = finite & ends & known
    soon = finite & ends & (steps[since] * 100 <= steps[-1])
    since, W, v, best, s = since[kept], W[kept, 1:], v[kept, 1:], best[kept, 1:], s[kept, 1:]
    late = np.arange(len(steps)) >= since.max(initial=0)
    after = late & optimal[kept].all(axis=0)
    size_W, size_v = np.linalg.norm(W, axis=(2, 3)), np.linalg.norm(v, axis=2)
    ratio = margin[kept] / size_v * np.linalg.norm(best, axis=2)
    found = jax.vmap(partial(answered, length=record.attrs["data.length"]))(
        jnp.asarray(W[:, -1]), jnp.asarray(v[:, -1])
    )
    points, seeds = optimal[kept][:, late], record["seed"].values
    along, own, later, attempt = ("seed", "snapshot"), ("seed",), ("seed", "later"), ("attempt",)
    return xarray.Dataset(
        {
            "size_W": (along, size_W),
            "size_v": (along, size_v),
            "loss": (along, loss[kept, 1:]),
            "moved": (along, abs(s - s[:, -1:]).max(axis=(2, 3))),
            "off_first": (along, _off(v, best[np.arange(len(since)), since][:, None])),
            "phase": (own, steps[since]),
            "rise_W": (own, _rise(size_W, steps, since)),
            "rise_v": (own, _rise(size_v, steps, since)),
            "answered": (own, np.asarray(found)),
            "off": (later, _off(v, best)[:, after]),
            "ratio": (later, ratio[:, after]),
            "start": (attempt, status[:, 0] == svm.Status.INFEASIBLE),
            "soon": (attempt, soon),
        },
        {"seed": seeds[kept], "attempt": seeds, "snapshot": steps, "later": steps[after]},
        exclusions.count(kept, diverged=~finite, infeasible=~ends)
        | {"points": points.size, "unsolved_points": int((~points).sum())},
    )


def _along(
    W: Float[Array, "k d d"], v: Float[Array, "k d"], problem: Problem
) -> tuple[Float[Array, "k n T"], Float[Array, "k n d"], Float[Array, " k"]]:
    """Return the probabilities of attention, the attention's outputs and the risk at every snapshot."""

    def one(W: Array, v: Array) -> tuple[Array, Array, Array]:
        s = attention.probabilities(W, problem)
        outputs = attention.attended(s, problem)
        return s, outputs, jnp.mean(logistic(problem.Y * (outputs @ v)))

    return jax.vmap(one)(W, v)


def _hyperplane(rows: Float[np.ndarray, "seed k n d"]) -> svm.Constraints:
    """Return `<y_i x_i, v> >= 1` for every seed and snapshot on one axis, with v as a (d, 1) matrix."""
    flat = jnp.asarray(rows.reshape(-1, rows.shape[2], 1, rows.shape[3]))
    return svm.Constraints(flat, jnp.ones((*flat.shape[:2], 1)))


def _separated(margin: Float[np.ndarray, "seed k"]) -> tuple[np.ndarray, Int[np.ndarray, " seed"]]:
    """Return whether the model is right on every sequence at the end, and the first snapshot since which it is."""
    wrong = ~(margin > 0)
    since = np.where(wrong.any(axis=1), margin.shape[1] - wrong[:, ::-1].argmax(axis=1), 0)
    ends = since < margin.shape[1]
    return ends, np.where(ends, since, margin.shape[1] - 1)


def _rise(
    size: Float[np.ndarray, "seed k"], steps: Int[np.ndarray, " k"], since: Int[np.ndarray, " seed"]
) -> Float[np.ndarray, " seed"]:
    """Return the exponent of t in a norm between a quarter of the first phase and its end."""
    early = abs(np.log(steps / (_EARLY * steps[since][:, None]))).argmin(axis=1)
    early = np.minimum(early, since - 1)
    seeds = np.arange(len(since))
    return np.log(size[seeds, since] / size[seeds, early]) / np.log(steps[since] / steps[early])


def _off(a: Float[np.ndarray, "seed k d"], b: Float[np.ndarray, "seed #k d"]) -> Float[np.ndarray, "seed k"]:
    """Return the direction error 1 - cos, computed without cancellation."""
    a, b = (x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), np.finfo(float).tiny) for x in (a, b))
    return np.maximum(np.sum((a - b) ** 2, axis=-1) / 2, _SAME)


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate both phases.

    Over the last decade of steps: `exponent`, that of t in the loss; `turned`, the largest change of a probability of
    attention; `more_W` and `more_v`, the relative growth of the norms; `steady_W` and `steady_v`, their growth in its
    second half over that in its first, 1 for a logarithm. At the last step: `off_end` and `off_first_end`. `limit` is
    the margin ratio of v, extrapolated in its norm.
    """
    steps = run["snapshot"].values
    tenth, half = (int(abs(np.log(steps * by / steps[-1])).argmin()) for by in (10, np.sqrt(10)))
    at = {name: [run[name].isel(snapshot=k, drop=True) for k in (tenth, half, -1)] for name in ("size_W", "size_v")}
    late = run["size_v"].sel(snapshot=run["later"].values).values
    limit = limits.extrapolated(run["ratio"].values[:, None], late, run["later"].values)
    if limit is None:
        raise ValueError("steps: expected three snapshots of the last decade after the first phase, found fewer")
    found = estimated(
        run,
        key,
        phase=geometric_mean(run["phase"]),
        exponent=power_law(run["loss"], steps[-1] / 10),
        turned=mean(run["moved"].isel(snapshot=tenth, drop=True)),
        start=share(run["start"].rename(attempt="seed")),
        soon=share(run["soon"].rename(attempt="seed")),
        **{name: mean(run[name]) for name in ("rise_W", "rise_v", "answered", "size_W", "size_v")},
        **{name: geometric_mean(run[name]) for name in ("off", "off_first", "loss")},
        off_end=geometric_mean(run["off"].isel(later=-1, drop=True)),
        off_first_end=geometric_mean(run["off_first"].isel(snapshot=-1, drop=True)),
        **{f"more{name[4:]}": mean(end / first - 1) for name, (first, _, end) in at.items()},
        **{f"steady{name[4:]}": mean((end - middle) / (middle - first)) for name, (first, middle, end) in at.items()},
    )
    median = Estimate(*(part[0] for part in limit.clipped(-1.0, 1.0).median(jax.random.fold_in(key, len(found)))))
    return found.assign(variables({"limit": ((), median)}))
