"""From the record of a training: the share of every token in the gradient along the steps, and its slack."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int

from jaxattn import attention, heads, losses, metrics, svm
from jaxattn.descent import gradients
from jaxattn.parallel import batch, lanes
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.measuring.comparison import compare


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Measure the share of each token in the gradient at every snapshot, and its slack.

    The gradient with respect to W is `sum_it a_it x_it z_i^T`; a token's share is `|a_it| / sum |a|`.

    Args:
        record: of a `Training` of W with a linear head and the logistic loss.
        solver: of the max-margin problems.

    Returns:
        For every kept seed `log_share`, (snapshot, input, other), natural logarithms, for the tokens that are not
        selected; their `slack`, (input, other), the margin of the Frobenius solution minus 1; and `growth`, `||W||_F /
        ||W_mm||_F`, at every snapshot.
    """
    compared = compare(record, (svm.frobenius,), solver)
    kept = np.isin(record["seed"].values, compared["seed"].values)
    problems = of_arrays({str(name): record[name].values[kept] for name in record.data_vars})
    W, W_mm = record["W_snapshots"].values[kept], compared["W_svm"].values[:, 0]
    if not kept.any():
        raise ValueError(f"gradient-share: expected a kept seed, found counts {compared.attrs}")
    log_share, slack, growth = batch.over_seeds(_shares, W, W_mm, problems, compared["selected"].values)
    return xarray.Dataset(
        {
            "log_share": (("seed", "snapshot", "input", "other"), log_share),
            "slack": (("seed", "input", "other"), slack),
            "growth": (("seed", "snapshot"), growth),
        },
        {name: compared[name].values for name in ("seed", "snapshot")},
        compared.attrs,
    )


def _shares(
    W: Float[Array, "snapshot d d"], W_mm: Float[Array, "d d"], problem: Problem, selected: Int[Array, " n"]
) -> tuple[Array, Array, Array]:
    others = jnp.arange(problem.T - 1)[None, :]
    others = others + (others >= selected[:, None])
    slack = svm.margins(svm.token_constraints(problem, selected), W_mm) - 1
    logs = jax.vmap(log_shares, in_axes=(0, None))(W, problem)
    of_others = jax.vmap(lambda one: jnp.take_along_axis(one, others, axis=1))(logs)
    return of_others, slack, jax.vmap(metrics.norm)(W) / metrics.norm(W_mm)


def log_shares(W: Float[Array, "d d"], problem: Problem) -> Float[Array, "n T"]:
    """Return the logarithm of every token's share in the gradient, `log(|a_it| / sum |a|)`, (n, T).

    For the logistic loss and a linear head. The coefficients are those of `gradients.direction`, computed factor by
    factor, so that shares far below the smallest floating-point number have a logarithm.
    """
    logits = attention.logits(W, problem)
    predictions, worth = gradients.reading(problem, heads.linear)(lanes.before(), jax.nn.softmax(logits, axis=1))
    slope = losses.log_slope(losses.logistic)
    assert slope is not None
    top = jnp.argmax(logits, axis=1, keepdims=True)
    apart = worth - jnp.take_along_axis(worth, top, axis=1)
    # For selected tokens the sum over all others, since the coefficients of an input sum to zero.
    relative = apart - jnp.sum(jax.nn.softmax(logits, axis=1) * apart, axis=1, keepdims=True)
    is_top = jnp.arange(problem.T)[None, :] == top
    logs = slope(problem.Y * predictions)[:, None] + jax.nn.log_softmax(logits, axis=1)
    logs = logs + jnp.log(jnp.abs(jnp.where(is_top, 1.0, relative)))
    sizes = jnp.where(is_top, 0.0, jnp.exp(logs - _largest(logs, is_top)) * jnp.sign(relative))
    of_top = jnp.log(jnp.abs(jnp.sum(sizes, axis=1, keepdims=True))) + _largest(logs, is_top)
    logs = jnp.where(is_top, of_top, logs)
    return logs - jax.scipy.special.logsumexp(logs)


def _largest(logs: Float[Array, "n T"], is_top: Array) -> Float[Array, "n 1"]:
    return jnp.max(jnp.where(is_top, -jnp.inf, logs), axis=1, keepdims=True)
