"""The smallest text on which descent from far away leaves an input unserved.

One word asks twice, for `a` and for `b`, each time against a word `o` of score zero: the differences of the embeddings
are (-2, 1) and (1, 0). With `w = W z`, z the query, the logit gaps are `p = -2 w_1 + w_2` and `q = w_1`, and `W_mm z =
(1, 3)`.

With the logistic loss of the attended score, descent with any step size from `w = (3, 0)` never serves the first input.
The scores are 1 and 0, so that the loss has slopes between `-1/2` and `-1/(1 + e)`, and the contribution of an input to
the gradient is its slope times `s(gap) = exp(-|gap|) / (1 + exp(-|gap|))^2`. A step changes q and `p + q` by the step
size times

    q:      B s(q) - 2 A s(p)          p + q:  -B s(q) + 3 A s(p)

with A and B in [.268, .5], so that `A / B < 1.87`. Where `q >= 3` and `p + q <= -2`, `s(q) > .907 exp(-q)` and `s(p) <=
exp(p) <= exp(-2) exp(-q)`: q rises and `p + q` falls, so that the region is never left. There `p <= -2 - q`, and W
converges in direction to the solution (1, 0) of the second input alone, whose cosine with `W_mm` is .316.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from jaxattn.language import Choices


def crossed(key: PRNGKeyArray) -> Choices:
    """Return the text: word 0 asks for 1 and for 2, each against 3. Nothing is random."""
    del key
    E = jnp.array([[1.0, 0.0], [-2.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    candidates = jnp.array([[0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0]])
    scores = jnp.array([[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    return Choices(E, jnp.zeros(2, int), jnp.array([1, 2]), jnp.ones(2), candidates, scores)
