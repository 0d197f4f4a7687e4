"""Max-margin problems of a text: each prefix attends to its next word rather than to any other candidate."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from jaxattn import svm
from jaxattn.language.choices import Choices, check, followers
from jaxattn.problem import is_concrete

__all__ = ["constraints", "finite_constraints", "set_constraints", "soft"]


def constraints(choices: Choices) -> svm.Constraints:
    """Return the hard constraints `(e_next - e_t)^T W e_last >= 1` for each prefix and each other candidate t.

    The problem is infeasible if two prefixes with the same last word have different next words. `language.compact`
    gives the same problem with fewer rows.

    Raises:
        ValueError: choices of several texts; `vmap` this function for them.

    Example:
        >>> status = svm.solve(language.constraints(language.compact(text))).status
    """
    check(choices)
    E, others = choices.E, choices.others
    differences = jnp.where(others[:, :, None], E[choices.next][:, None, :] - E[None, :, :], 0.0)
    return svm.Constraints(differences, E[choices.last], present=others)


def soft(choices: Choices, C: float = 10.0) -> svm.Constraints:
    """Return the same constraints with penalty C: `min ||W|| + C sum of shortfalls`, over all prefixes and candidates.

    For compact choices a row has the total penalty of all that were merged.

    Raises:
        ValueError: C is not positive.

    Example:
        >>> W_soft = svm.solve(language.soft(language.compact(text), C=10.0)).W
    """
    if not C > 0:
        raise ValueError(f"C: expected a positive price, found {C}")
    rows, times = constraints(choices), jnp.where(choices.weight > 0, choices.weight, 1.0)
    return svm.soft(rows, jnp.broadcast_to(C * times[:, None], rows.differences.shape[:-1]))


def set_constraints(choices: Choices, selected: Bool[Array, "V V"]) -> svm.Constraints:
    """Return the constraints on `(e_s - e_t)^T W e_a`: at least 1 if s is selected and t is not, 0 if both are.

    This is the Gen-SVM of 2308.16898 for the candidates `vocabulary`. If a single word is selected per query these are
    the rows of `constraints`. Row a of `selected` has the words that keep attention for query a, at least one; for
    cross entropy they are `followers(choices) > 0`, since its minimum has finite differences of their logits.

    Raises:
        ValueError: choices with counts, whose candidates may differ between prefixes with the same last word; selected
            other than truth values (V, V), or none of a word that is a query.

    Example:
        >>> short = language.compact(text)
        >>> W_mm = svm.solve(language.set_constraints(short, language.followers(short) > 0)).W
    """
    check(choices)
    if choices.counts is not None:
        raise ValueError("set_constraints: expected the vocabulary as candidates, found counts of others")
    E, V = choices.E, choices.E.shape[0]
    if selected.shape != (V, V) or selected.dtype != bool:
        raise ValueError(f"selected: expected truth values ({V}, {V}), found {selected.dtype} {selected.shape}")
    asked = jnp.sum(followers(choices), axis=1) > 0
    lacking = asked & ~jnp.any(selected, axis=1)
    if is_concrete(lacking) and np.any(np.asarray(lacking)):
        raise ValueError(f"selected: expected a word for each query, found none for {np.flatnonzero(lacking).tolist()}")
    first = jnp.argmax(selected, axis=1)
    present = asked[:, None] & (first[:, None] != jnp.arange(E.shape[0])[None, :])
    differences = jnp.where(present[:, :, None], E[first][:, None, :] - E[None, :, :], 0.0)
    targets = jnp.where(selected, 0.0, 1.0).astype(E.dtype)
    return svm.Constraints(differences, E, targets=targets, equal=present & selected, present=present)


def finite_constraints(choices: Choices) -> svm.Constraints:
    """Return the equations of the finite part: logits of words after one word differ by the log ratio of their counts.

    Cross entropy has its minimum there. The least-norm solution is `W_fin` of 2308.16898 (section on multiple tokens),
    which adds to the direction of `set_constraints`; 0 for a text without conflicts.

    Raises:
        ValueError: as in `set_constraints`.

    Example:
        >>> W_fin = svm.solve(language.finite_constraints(language.compact(text))).W
    """
    times = followers(choices)
    rows = set_constraints(choices, times > 0)
    of_first = jnp.take_along_axis(times, jnp.argmax(times > 0, axis=1)[:, None], axis=1)
    ratio = jnp.where(times > 0, of_first, 1.0) / jnp.where(times > 0, times, 1.0)
    return rows._replace(targets=jnp.log(ratio), present=rows.equal)
