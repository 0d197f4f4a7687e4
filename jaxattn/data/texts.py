"""Laws of texts: pure functions from a random key to the selection problems of a text."""

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
    """Draw a language, m sequences of n of its words, and their embeddings: one selection problem a prefix.

    The language is a `language.Markov` law of its own for every key; embeddings are uniform on the unit sphere of R^d.
    The query of a prefix is its last word, its optimal token the next one. Causal language modelling after the
    withdrawn ICLR 2024 submission, which gives no law.

    Args:
        key: of all this, each drawn from a key of its own.
        m: number of sequences.
        n: words of a sequence.
        d: dimension of an embedding.
        V: words of the language.
        entropy: of the next word in every context, in nats.
        order: how many words the next one depends on.
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
    """Draw the text that `language` draws from this key, and scores within delta of each other for its other words.

    The assumptions of the convergence theorems of the withdrawn ICLR 2024 submission (3.14, 3.15): equal scores of
    non-optimal tokens, at delta 0, and close ones.

    Args:
        key: of all this; the scores are drawn from a key of their own, so that delta changes nothing else.
        m: number of sequences.
        n: words of a sequence.
        d: dimension of an embedding.
        V: words of the language.
        entropy: of the next word in every context, in nats.
        delta: see `language.close_scores`.
        order: how many words the next one depends on.
        candidates: `language.vocabulary`, or `language.prefix`.

    Raises:
        ValueError: as `language`; delta outside [0, 1).

    Example:
        >>> data.scored_language(key, m=3, n=4, d=6, V=5, entropy=0.1, delta=0.0).scores.shape[1]
        5
    """
    drawn = language(key, m, n, d, V, entropy, order, candidates)
    # Beside the three keys of the text.
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
    """Draw the text that `language` draws from this key, whose tokens have the scores that a fixed head reads.

    The model of the withdrawn ICLR 2024 submission: every prefix attends to its own positions, its last token asks, and
    the head's direction of the next word tells the scores. See `language.head_scores`.

    Args:
        key: of all this; the head is drawn from a key of its own, so that it changes no text.
        m: number of sequences.
        n: words of a sequence.
        d: dimension of an embedding.
        V: words of the language.
        entropy: of the next word in every context, in nats.
        head: law of the head, given the embeddings.
        order: how many words the next one depends on.
        candidates: `language.prefix`, or `language.vocabulary`.

    Raises:
        ValueError: as `language`, and as the law of the head.

    Example:
        >>> read = data.read_language(key, m=3, n=4, d=6, V=5, entropy=0.1)
        >>> bool((read.counts.sum(axis=1) >= 1).all())  # the positions of a prefix
        True
    """
    drawn = language(key, m, n, d, V, entropy, order, candidates)
    # Beside the three keys of the text and that of `scored_language`.
    return head_scores(drawn, head(jax.random.fold_in(key, 4), drawn.E))
