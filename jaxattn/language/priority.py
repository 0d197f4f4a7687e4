"""Token-priority graphs of a text, and the two parts of the limit of next-token prediction (arXiv 2403.08081).

Each last word k has a graph over the words, with an edge from the next word of each input that ends with k to each
other word of that input. Training W with the log-loss separates its strongly connected components by a growing margin,
along the Graph-SVM solution. Within a component the differences of logits converge to finite values, which minimize the
log-loss restricted to the components.

With the candidates `vocabulary` all words that follow k form one component, and the two parts are those of
`language.set_constraints` and `language.finite_constraints`. Functions take the choices of one text, and the
`components` of its `edges`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from jaxattn import svm
from jaxattn.language.choices import Choices, check_words
from jaxattn.language.slopes import pair_slopes
from jaxattn.problem import is_concrete

__all__ = ["components", "constraints", "cyclic", "edges", "finite_constraints", "finite_logits"]

# The number of Newton steps. The last ones are undamped, and from logits of 0 the damped ones are few.
_STEPS = 60


def edges(choices: Choices) -> Bool[Array, "V V V"]:
    """Return whether graph k has an edge from word y to t, (V, V, V): an input ends with k, precedes y and contains t.

    Raises:
        ValueError: choices with scores, which define no single next word; words outside 0..V-1; an input that is not
            excluded and does not contain its next word.

    Example:
        >>> from jaxattn.language import priority
        >>> own = language.of_text(jnp.eye(3), jnp.array([[0, 1, 0]]), candidates=language.prefix)
        >>> priority.edges(own)[1].tolist()  # word 0 before word 1, where 1 is the last word
        [[False, True, False], [False, False, False], [False, False, False]]
    """
    _check(choices)
    V = choices.E.shape[0]
    held = jnp.zeros((V, V, V), bool).at[choices.last, choices.next].max(choices.others)
    return held & ~jnp.eye(V, dtype=bool)[None]


def components(edges: Bool[Any, "*batch V V V"]) -> Int[np.ndarray, "*batch V V"]:
    """Return the strongly connected component of each word in each graph, (V, V), named by the component's first word.

    The edges may have leading batch axes. It does not work under `jit`.

    Raises:
        ValueError: not truth values (..., V, V, V).

    Example:
        >>> from jaxattn.language import priority
        >>> circle = np.zeros((3, 3, 3), bool)
        >>> circle[0, 1, 2] = circle[0, 2, 1] = True
        >>> priority.components(circle).tolist()
        [[0, 1, 1], [0, 1, 2], [0, 1, 2]]
    """
    graphs = np.asarray(edges)
    if graphs.ndim < 3 or len(set(graphs.shape[-3:])) != 1 or graphs.dtype != bool or graphs.size == 0:
        raise ValueError(f"edges: expected truth values (..., V, V, V), found {graphs.dtype} of shape {graphs.shape}")
    V = graphs.shape[-1]
    number, origin, end = np.nonzero(graphs.reshape(-1, V, V))
    words = graphs.size // V
    # One graph that contains all others as blocks.
    together = coo_array((np.ones(len(number), bool), (number * V + origin, number * V + end)), shape=(words, words))
    count, labels = connected_components(together, directed=True, connection="strong")
    first = np.full(count, words)
    np.minimum.at(first, labels, np.arange(words))
    return (first[labels] % V).reshape(graphs.shape[:-1])


def constraints(choices: Choices, components: Int[Any, "V V"]) -> svm.Constraints:
    """Return the constraints of the Graph-SVM.

    `(e_i - e_j)^T W e_k` is 0 within a component of graph k, and at least 1 along an edge from i to j between two
    components. To save rows, first words of components are related to each other, and to the other words of their
    component. The problem is feasible for any text with linearly independent embeddings.

    Raises:
        ValueError: as in `edges`; components of another shape than (V, V), or that are not words.

    Example:
        >>> from jaxattn.language import priority
        >>> own = language.of_text(jnp.eye(3), jnp.array([[0, 1, 0]]), candidates=language.prefix)
        >>> rows = priority.constraints(own, priority.components(priority.edges(own)))
        >>> svm.solve(rows).W.tolist()
        [[0.0, 0.5, 0.0], [0.0, -0.5, 0.0], [0.0, 0.0, 0.0]]
    """
    graphs, first = edges(choices), _checked(components, choices)
    E, V = choices.E, choices.E.shape[0]
    member, different = jax.nn.one_hot(first, V, dtype=E.dtype), ~jnp.eye(V, dtype=bool)[None]
    # Edges between components, as edges between their first words, (k, i, j).
    hard = (jnp.einsum("kia,kij,kjb->kab", member, graphs.astype(E.dtype), member) > 0) & different
    # A component's first word and another of its words.
    equal = (first[:, None, :] == jnp.arange(V)[None, :, None]) & different
    equal, present = equal.reshape(V, V * V), (hard | equal).reshape(V, V * V)
    differences = jnp.where(present[:, :, None], (E[:, None, :] - E[None, :, :]).reshape(1, V * V, -1), 0.0)
    return svm.Constraints(differences, E, jnp.where(equal, 0.0, 1.0).astype(E.dtype), equal, present)


def cyclic(choices: Choices, components: Int[Any, "V V"]) -> Choices:
    """Return the inputs restricted to words in the component of their next word; weight 0 for one without another.

    Errors are those of `constraints`.

    Example:
        >>> from jaxattn.language import priority
        >>> whole = priority.cyclic(text, priority.components(priority.edges(text)))
        >>> bool(whole.weight.sum() <= text.weight.sum())
        True
    """
    _check(choices)
    first = _checked(components, choices)[choices.last]
    of_next = jnp.take_along_axis(first, choices.next[:, None], axis=1)
    counts = jnp.ones_like(first, choices.E.dtype) if choices.counts is None else choices.counts
    # An excluded input keeps a candidate so that its softmax is finite.
    is_next = jax.nn.one_hot(choices.next, first.shape[1], dtype=bool)
    counts = jnp.where(first == of_next, counts, 0.0)
    counts = jnp.where(is_next & (choices.weight[:, None] == 0), 1.0, counts)
    chooses = jnp.sum(counts > 0, axis=1) > 1
    return choices._replace(counts=counts, weight=jnp.where(chooses, choices.weight, 0.0))


def finite_logits(choices: Choices, components: Int[Any, "V V"]) -> Float[Array, "V V"]:
    """Return the logits that minimize the log-loss of the `cyclic` part, (V, V); they sum to 0 over each component.

    They are found by Newton's method on each graph, with damping based on the derivatives of the softmax.

    Errors are those of `constraints`.

    Example:
        >>> from jaxattn.language import priority
        >>> priority.finite_logits(text, priority.components(priority.edges(text))).shape
        (5, 5)
    """
    part = cyclic(choices, components)
    first = _checked(components, choices)
    assert part.counts is not None
    counts, slopes = part.counts, pair_slopes(part)
    share, logs = part.share, jnp.log(jnp.where(counts > 0, counts, 1.0))
    # The added matrix makes the Hessian definite, and keeps the sums over components at 0.
    fixed = (first[:, :, None] == first[:, None, :]).astype(part.E.dtype)
    V, tiny = len(first), jnp.finfo(part.E.dtype).tiny

    def newton(_: Array, table: Array) -> Array:
        logits = jnp.where(counts > 0, table[part.last] + logs, -jnp.inf)
        p = jax.nn.softmax(logits, axis=1)
        of_inputs = share[:, None, None] * (jax.vmap(jnp.diag)(p) - p[:, :, None] * p[:, None, :])
        curvature = jax.ops.segment_sum(of_inputs, part.last, num_segments=V)
        gradient = slopes(jnp.asarray(0), table).coefficients
        step = jnp.linalg.solve(curvature + fixed, -gradient[:, :, None])[:, :, 0]
        # The third derivative along h is at most 2 max |h| times the second derivative.
        length = jnp.maximum(2 * jnp.max(jnp.abs(step), axis=1, keepdims=True), tiny)
        return table + step * jnp.log1p(length) / length

    return jax.lax.fori_loop(0, _STEPS, newton, jnp.zeros((V, V), part.E.dtype))


def finite_constraints(choices: Choices, components: Int[Any, "V V"], logits: Float[Array, "V V"]) -> svm.Constraints:
    """Return the equations of the finite part: differences within a component equal those of logits.

    The logits are `finite_logits`, or others to match. The least-norm solution is W_fin, in the span of the
    `(e_i - e_j) e_k^T` within components; graphs without a cycle contribute 0.

    Errors are those of `constraints`.

    Example:
        >>> from jaxattn.language import priority
        >>> groups = priority.components(priority.edges(text))
        >>> W_fin = svm.solve(priority.finite_constraints(text, groups, priority.finite_logits(text, groups))).W
    """
    rows = constraints(choices, components)
    assert rows.equal is not None
    V = len(logits)
    targets = (logits[:, :, None] - logits[:, None, :]).reshape(V, V * V)
    return rows._replace(targets=jnp.where(rows.equal, targets, 0.0), present=rows.equal)


def _check(choices: Choices) -> None:
    """Raise ValueError for choices that have no graph."""
    if choices.scores is not None:
        raise ValueError("choices: expected a next word of each input alone, found scores of all words")
    if not (is_concrete(choices.last) and is_concrete(choices.next)):
        return
    for name in ("last", "next"):
        check_words(name, getattr(choices, name), choices.E.shape[0])
    if choices.counts is not None and is_concrete(choices.counts) and is_concrete(choices.weight):
        counts = np.asarray(choices.counts)
        of_next = np.take_along_axis(counts, np.asarray(choices.next)[:, None], axis=1)[:, 0]
        wrong = np.flatnonzero((np.asarray(choices.weight) > 0) & ~(of_next > 0))
        if wrong.size:
            raise ValueError(f"counts: expected each input to hold its next word, found none in input {wrong[0]}")


def _checked(components: Any, choices: Choices) -> Int[Array, "V V"]:
    first, V = jnp.asarray(components), choices.E.shape[0]
    if first.shape != (V, V) or not jnp.issubdtype(first.dtype, jnp.integer):
        raise ValueError(f"components: expected words ({V}, {V}), found {first.dtype} of shape {first.shape}")
    check_words("components", first, V)
    return first
