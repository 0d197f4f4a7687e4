"""The two regular languages as problems, and how a trained model answers parity by a chain of thought (2505.00926).

A sequence of bits is in "even pairs" if 01 and 10 together occur an even number of times, that is, if its first and
last bits are equal. It is in "parity" if it has an even number of ones.
"""

from __future__ import annotations

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxattn import checks
from jaxattn.problem import Problem


def even_pairs(key: PRNGKeyArray, length: int) -> Problem:
    """Return all sequences of 1 to `length` bits, labelled +1 if first and last bit are equal. Nothing is random.

    A token is the one-hot vector of its bit and position, the query is the last token. A sequence is repeated so often
    that all lengths count equally in the risk.

    Raises:
        ValueError: a length below 2.
    """
    del key
    checks.count("length", length, least=2)
    return _problem([(bits, bits[0] == bits[-1]) for bits in _balanced(range(1, length + 1), length)], length)


def parity(key: PRNGKeyArray, length: int) -> Problem:
    """Return the steps of the chain of thought on all sequences of `length` bits, and even pairs on shorter ones.

    Step t appends bit t XOR the last one, so that step `length - 1` appends the parity. Its label is +1 if these two
    are equal. Tokens, queries and repetitions are as in `even_pairs`.

    Raises:
        ValueError: a length below 2.
    """
    del key
    checks.count("length", length, least=2)
    rows = [(bits, bits[0] == bits[-1]) for bits in _balanced(range(1, length), length)]
    for bits in product((0, 1), repeat=length):
        for t in range(length - 1):
            rows.append((bits, bits[t] == bits[-1]))
            bits = (*bits, bits[t] ^ bits[-1])
    return _problem(rows, 2 * length - 2)


def _balanced(lengths: range, longest: int) -> list[tuple[int, ...]]:
    """Return all sequences of these lengths, each so often that there are as many of each length as of the longest."""
    return [bits for L in lengths for bits in product((0, 1), repeat=L) for _ in range(2 ** (longest - L))]


def _problem(rows: list[tuple[tuple[int, ...], bool]], T: int) -> Problem:
    """Return sequences of at most T bits and their labels as a problem over one-hot tokens, d = 2 T."""
    ends = np.array([len(bits) for bits, _ in rows])
    padded = np.array([bits + (0,) * (T - len(bits)) for bits, _ in rows])
    tokens = np.eye(2 * T)[2 * np.arange(T) + padded]
    present = np.arange(T) < ends[:, None]
    X = jnp.asarray(tokens * present[:, :, None])
    Y = np.where([is_equal for _, is_equal in rows], 1.0, -1.0)
    Z = X[np.arange(len(rows)), ends - 1]
    return Problem(X=X, Z=Z, Y=jnp.asarray(Y), v=jnp.zeros(2 * T), present=jnp.asarray(present))


def answered(W: Float[Array, "d d"], v: Float[Array, " d"], length: int) -> Float[Array, ""]:
    """Return the share of all sequences of `length` bits whose parity a chain of thought finds.

    The model appends 0 if it says that two bits are equal, otherwise 1, `length - 1` times. It sees the last T bits, T
    being the number of its positions: trained on even pairs, it drops the first bit of each step; trained on the steps
    of parity, it drops none.
    """
    T = v.shape[0] // 2
    bits = jnp.asarray(list(product((0, 1), repeat=length)))
    truth = jnp.sum(bits, axis=1) % 2
    for _ in range(length - 1):
        seen = bits[:, -T:]
        places = 2 * jnp.arange(seen.shape[1])[None] + seen
        s = jax.nn.softmax(W[places, places[:, -1:]], axis=1)
        unequal = jnp.sum(s * v[places], axis=1) < 0
        bits = jnp.concatenate([bits, unequal[:, None].astype(bits.dtype)], axis=1)
    return jnp.mean(bits[:, -1] == truth)
