"""Which inputs a run serves, and whether those that it leaves behind can still be served.

The gradient of an input falls like the exponential of a logit gap: of its smallest margin where it attends to its
optimal token, of what the optimal token is behind where it does not. Where all other tokens have equal scores and the
loss has bounded slopes, an input that is left behind by more than the margin of those that are served therefore has a
share of the gradient that vanishes. Then W follows the max-margin solution `W_S` of the served inputs alone, and the
input stays behind if its optimal token is more than 1 behind along `W_S`, where the served ones have the margin 1.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxattn import svm


def served(W: Float[Array, "d e"], constraints: svm.Constraints) -> Bool[Array, " n"]:
    """Whether each input has its optimal token first.

    Args:
        W: weights.
        constraints: of the optimal tokens, a row for each other token; an input without rows is served.
    """
    return jnp.all((svm.margins(constraints, W) > 0) | ~_present(constraints), axis=1)


def alone(constraints: svm.Constraints, inputs: Bool[Array, " n"]) -> svm.Constraints:
    """Return the constraints of some inputs alone."""
    return constraints._replace(present=_present(constraints) & inputs[:, None])


def behind(W: Float[Array, "d e"], constraints: svm.Constraints, inputs: Bool[Array, " n"]) -> Float[Array, " n"]:
    """Return how far the optimal token of each of these inputs is behind the first, (n,); inf for all other inputs."""
    worst = jnp.min(jnp.where(_present(constraints), svm.margins(constraints, W), jnp.inf), axis=1)
    return jnp.where(inputs, -worst, jnp.inf)


def _present(constraints: svm.Constraints) -> Bool[Array, "n m"]:
    shape = constraints.differences.shape[:2]
    return jnp.ones(shape, bool) if constraints.present is None else constraints.present
