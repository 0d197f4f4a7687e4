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


def set_constraints(choices: Choices) -> svm.Constraints:
    """Return rows of 0 between words that follow one word in turn, and of at least 1 between them and the others.

    Where a text goes on in several ways, cross entropy is least at finite differences of their logits, and the limit
    direction of descent has none: the Gen-SVM of 2308.16898, with the words that follow as the selected tokens. A text
    without conflict has the rows of `constraints`. For candidates `vocabulary`, which are the same for all prefixes.

    Raises:
        ValueError: choices with counts.
    """
    if choices.counts is not None:
        raise ValueError("set_constraints: expected the vocabulary as candidates, found counts of others")
    V = choices.E.shape[0]
    follows = jnp.zeros((V, V), bool).at[choices.last, choices.next].max(choices.weight > 0)
    rows = constraints(choices)
    assert rows.present is not None
    equal = follows[choices.last] & rows.present
    return rows._replace(equal=equal, targets=jnp.where(equal, 0.0, jnp.ones(equal.shape, choices.E.dtype)))


def finite_constraints(choices: Choices) -> svm.Constraints:
    """Return the equations of the finite part: words that follow one word differ by the log ratio of their counts.

    There cross entropy is least; the least-norm solution is `W_fin` of 2308.16898 (section on multiple tokens), beside
    the direction of `set_constraints`. A text without conflict has no equations, and its finite part is 0.

    Raises:
        ValueError: as `set_constraints`.
    """
    rows = set_constraints(choices)
    assert rows.equal is not None
    V = choices.E.shape[0]
    times = jnp.zeros((V, V), choices.E.dtype).at[choices.last, choices.next].add(choices.weight)
    of_next = jnp.take_along_axis(times[choices.last], choices.next[:, None], axis=1)
    ratio = jnp.where(rows.equal, of_next, 1.0) / jnp.where(rows.equal, times[choices.last], 1.0)
    return rows._replace(targets=jnp.log(ratio), present=rows.equal)
