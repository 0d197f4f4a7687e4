"""Which inputs a run serves (attends to their optimal tokens), and whether the others can still be served.

The gradient of an input falls like the exponential of a logit gap: its smallest margin if it attends to its optimal
token, and otherwise the logit deficit of its optimal token. Let all other tokens have equal scores, and let the loss
have bounded slopes. Then W follows the max-margin solution `W_S` of the served inputs alone, and an input stays
unserved if its optimal token is more than 1 behind along `W_S`, where served inputs have margin 1.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxattn import svm


def served(W: Float[Array, "d e"], constraints: svm.Constraints) -> Bool[Array, " n"]:
    """Return whether each input attends most to its optimal token; one without rows of constraints does."""
    return jnp.all((svm.margins(constraints, W) > 0) | ~_present(constraints), axis=1)


def alone(constraints: svm.Constraints, inputs: Bool[Array, " n"]) -> svm.Constraints:
    """Return the constraints of some inputs only."""
    return constraints._replace(present=_present(constraints) & inputs[:, None])


def behind(W: Float[Array, "d e"], constraints: svm.Constraints, inputs: Bool[Array, " n"]) -> Float[Array, " n"]:
    """Return how far the optimal token of each of these inputs is behind the first one, (n,); inf for other inputs."""
    worst = jnp.min(jnp.where(_present(constraints), svm.margins(constraints, W), jnp.inf), axis=1)
    return jnp.where(inputs, -worst, jnp.inf)


def _present(constraints: svm.Constraints) -> Bool[Array, "n m"]:
    shape = constraints.differences.shape[:2]
    return jnp.ones(shape, bool) if constraints.present is None else constraints.present
