"""What attention to a word is worth: 1 for the next word, and little for the others."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from jaxattn.language.choices import Choices

__all__ = ["close_scores"]


def close_scores(key: PRNGKeyArray, choices: Choices, delta: float) -> Choices:
    """Return the same choices with scores of their own: 1 for the next word, uniform on [0, delta) for all others.

    So scores of words that are not to be chosen are within delta of each other, and equal for delta 0.

    Args:
        key: of the scores.
        choices: of one text, N prefixes and V words; scores that it has are replaced.
        delta: below 1, that the next word is worth most.

    Raises:
        ValueError: delta outside [0, 1).

    Example:
        >>> scored = language.close_scores(key, text, delta=0.0)
    """
    if not 0 <= delta < 1:
        raise ValueError(f"delta: expected a number within [0, 1), found {delta}")
    N, V = choices.last.shape[0], choices.E.shape[0]
    others = delta * jax.random.uniform(key, (N, V), choices.E.dtype)
    is_next = choices.next[:, None] == jnp.arange(V)[None, :]
    return choices._replace(scores=jnp.where(is_next, 1.0, others))
