"""The multi-token limit: the finite part `W_fin`, the max-margin part `W_mm`, and their sum (2308.16898, section 5)."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn import metrics
from jaxattn.svm.pivoting import positive

__all__ = ["with_finite_part"]


def with_finite_part(
    W: Float[Array, "d e"], W_fin: Float[Array, "d e"], W_mm: Float[Array, "d e"]
) -> Float[Array, "d e"]:
    """Return `W_SVMeq = W_fin + C W_mm` with the `C >= 0` that brings it closest to the trained W in least squares.

    In the limit of training W approaches `W_fin` plus a growing multiple of `W_mm`; C is the multiple reached so far.
    (The unnormalized inner product with W has no maximum in C.)

    Args:
        W: trained weights, (d, e).
        W_fin: the least-norm solution of `svm.finite_constraints`, (d, e).
        W_mm: the solution of `svm.set_constraints`, (d, e). If it is zero, as for an infeasible problem, W_fin is
            returned.

    Example:
        >>> W = svm.with_finite_part(run.weights, jnp.zeros((5, 5)), solution.W)
        >>> round(float(metrics.correlation(W, solution.W)), 9)
        1.0
    """
    length = metrics.norm(W_mm)
    direction = W_mm / positive(length)
    return W_fin + jnp.maximum(jnp.sum((W - W_fin) * direction), 0.0) * direction
