"""The max-margin problem of a text: every prefix attends to its next word rather than to any other candidate."""

from __future__ import annotations

import jax.numpy as jnp

from jaxattn import svm
from jaxattn.language.choices import Choices


def constraints(choices: Choices) -> svm.Constraints:
    """Return the rows `(e_next - e_t)^T W e_last >= 1` for every prefix and every other candidate t, hard.

    Two prefixes with one last word and different next words ask for opposite things: such a text has no hard solution.

    Args:
        choices: of one text; `language.compact` ones pose the same problem with fewer rows.
    """
    E, others = choices.E, choices.others
    differences = jnp.where(others[:, :, None], E[choices.next][:, None, :] - E[None, :, :], 0.0)
    return svm.Constraints(differences, E[choices.last], present=others)


def soft(choices: Choices, C: float = 10.0) -> svm.Constraints:
    """Return the same rows at the price C each: `min ||W|| + C sum of shortfalls`, over all prefixes and candidates.

    Of compact choices a row has the price of all that were put together.

    Raises:
        ValueError: C is not positive.
    """
    if not C > 0:
        raise ValueError(f"C: expected a positive price, found {C}")
    rows, times = constraints(choices), jnp.where(choices.weight > 0, choices.weight, 1.0)
    return svm.soft(rows, jnp.broadcast_to(C * times[:, None], rows.differences.shape[:-1]))
