"""Data laws for texts: pure functions from a random key to the selection problems of a text."""

from __future__ import annotations

import jax
from jaxtyping import PRNGKeyArray

from jaxattn.data import draws
from jaxattn.language.choices import Candidates, Choices, of_text, prefix, vocabulary
from jaxattn.language.law import Markov
from jaxattn.language.scores import Head, close_scores, dual_head, head_scores

__all__ = ["language", "read_language", "scored_language"]


def language(
    key: PRNGKeyArray,
    m: int,
    n: int,
    d: int,
    V: int,
    entropy: float,
    order: int = 1,
    candidates: Candidates = vocabulary,
) -> Choices:
    """Draw a language, m sequences of n of its words, and word embeddings; each prefix gives a selection problem.

    Each key draws a `language.Markov` law. Embeddings are uniform on the unit sphere of R^d. The query of a prefix is
    its last word, and its optimal token is the next word. Causal language modelling as in the withdrawn ICLR 2024
    submission, which specifies no law.

    Args:
        key: the random key, split for each draw.
        m: the number of sequences.
        n: the number of words per sequence.
        d: the dimension of an embedding.
        V: the number of words of the language.
        entropy: the entropy of the next word in each context, in nats.
        order: the number of preceding words that the next one depends on.
        candidates: `language.vocabulary`, or `language.prefix`.

    Raises:
        ValueError: m, d or order < 1, V < 2, n <= order, an entropy outside 0..log V.

    Example:
        >>> data.language(key, m=3, n=4, d=6, V=5, entropy=0.1).E.shape  # an embedding a word
        (5, 6)
    """
    draws.check_sizes(m=m, n=n, d=d)
    law = Markov(V, entropy, order)
    keys = jax.random.split(key, 3)
    (E,) = draws.normals(keys[1:2], (V, d))
    return of_text(draws.unit(E), law.sample(keys[2], law.table(keys[0]), m, n), candidates)


def scored_language(
    key: PRNGKeyArray,
    m: int,
    n: int,
    d: int,
    V: int,
    entropy: float,
    delta: float,
    order: int = 1,
    candidates: Candidates = vocabulary,
) -> Choices:
    """Draw the same text as `language` from this key, with scores of the other words within delta of each other.

    These are the assumptions of the convergence theorems of the withdrawn ICLR 2024 submission (3.14, 3.15): equal
    scores of non-optimal tokens (delta = 0), and close ones.

    Arguments as in `language`; delta as in `language.close_scores`. The scores have a key of their own, so that delta
    does not change the text.

    Raises:
        ValueError: as in `language`; delta outside [0, 1).

    Example:
        >>> data.scored_language(key, m=3, n=4, d=6, V=5, entropy=0.1, delta=0.0).scores.shape[1]
        5
    """
    drawn = language(key, m, n, d, V, entropy, order, candidates)
    # `language` uses the keys 0 to 2.
    return close_scores(jax.random.fold_in(key, 3), drawn, delta)


def read_language(
    key: PRNGKeyArray,
    m: int,
    n: int,
    d: int,
    V: int,
    entropy: float,
    head: Head = dual_head,
    order: int = 1,
    candidates: Candidates = prefix,
) -> Choices:
    """Draw the same text as `language` from this key, with the token scores that a fixed head reads.

    This is the model of the withdrawn ICLR 2024 submission: each prefix attends to its own positions, its last token is
    the query, and the head's direction of the next word gives the scores. See `language.head_scores`.

    Arguments as in `language`, and the law of the head, given the embeddings. The head has a key of its own, so that it
    does not change the text.

    Raises:
        ValueError: as in `language`, and those of the law of the head.

    Example:
        >>> read = data.read_language(key, m=3, n=4, d=6, V=5, entropy=0.1)
        >>> bool((read.counts.sum(axis=1) >= 1).all())  # the positions of a prefix
        True
    """
    drawn = language(key, m, n, d, V, entropy, order, candidates)
    # `language` uses the keys 0 to 2, and `scored_language` the key 3.
    return head_scores(drawn, head(jax.random.fold_in(key, 4), drawn.E))
