"""Malformed arguments of functions of texts, each with what its one ValueError must say (a regular expression)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn import language as annotated_language
from tests.language import texts
from tests.language.texts import V, d

# Called with what their annotations forbid.
language: Any = annotated_language

TEXT = texts.of_words([[0, 1, 2, 3, 0], [0, 1, 3, 0, 1]])
SEVERAL = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), TEXT)
PAIRS, W, E = np.zeros((V, V)), np.zeros((d, d)), np.eye(V, d)
OF_A_TEXT, OF_ONE = "choices: expected those of a text, .*found ", r"choices: expected those of one text.*found \(3, "

TEXTS = {
    "a start in place of a text": (lambda: language.train(PAIRS, TEXT), OF_A_TEXT + "ndarray"),
    "words in place of a text": (lambda: language.train_batch(np.zeros((2, 3), int)), OF_A_TEXT + "ndarray"),
    "several texts to train on": (lambda: language.train(SEVERAL), OF_ONE),
    "one text as a batch": (lambda: language.train_batch(TEXT), "choices: expected those of a batch of texts"),
    "a text in place of pairs": (lambda: language.weights(TEXT, PAIRS), OF_A_TEXT + "ndarray"),
    "pairs of another vocabulary": (
        lambda: language.weights(np.zeros((V + 1, V + 1)), TEXT),
        r"pairs: expected coefficients \(4, 4\), found shape \(5, 5\)",
    ),
    "a text in place of weights": (lambda: language.risk(TEXT, W), OF_A_TEXT + "ndarray"),
    "a run in place of weights": (
        lambda: language.risk(language.TextRun(*[PAIRS] * 6), TEXT),
        "weights: expected W, .* language.weights makes .*found TextRun",
    ),
    "followers in several texts": (lambda: language.followers(SEVERAL), OF_ONE),
    "the constraints of several texts": (lambda: language.constraints(SEVERAL), OF_ONE),
    "the constraints of words": (lambda: language.soft(np.zeros((2, 3), int)), OF_A_TEXT + "ndarray"),
    "words to be compact": (lambda: language.compact(np.zeros((2, 3), int)), OF_A_TEXT + "ndarray"),
    "counts as a set": (
        lambda: language.set_constraints(TEXT, language.followers(TEXT)),
        r"selected: expected truth values \(4, 4\), found float64 \(4, 4\)",
    ),
    "a set of nothing": (
        lambda: language.set_constraints(TEXT, jnp.zeros((V, V), bool)),
        r"selected: expected a word for each query, found none for \[0, 1, 2, 3\]",
    ),
    "a start that is not a number": (
        lambda: language.train(TEXT, np.nan * PAIRS),
        "start: expected finite numbers, found NaN",
    ),
    "a step in place of an optimizer": (
        lambda: language.train(TEXT, optimizer=0.1),
        "optimizer: expected an optax transformation .*found 0.1",
    ),
    "a loss's name": (
        lambda: language.train(TEXT, loss="cross_entropy"),
        r"loss: expected a function loss\(score\), found 'cross_entropy'",
    ),
    "sequences of two lengths": (
        lambda: language.of_text(E, [[0, 1], [0, 1, 2]]),
        "words: expected sequences of equal length",
    ),
    "letters": (lambda: language.of_text(E, [["a", "b"]]), "words: expected integers .*found .*<U1"),
    "the name of candidates": (
        lambda: language.of_text(E, [[0, 1]], candidates="prefix"),
        r"candidates: expected a function candidates\(words, V\), found 'prefix'",
    ),
    "a text in place of embeddings": (
        lambda: language.dual_head(jax.random.key(0), TEXT),
        r"E: expected embeddings \(V, d\), found Choices",
    ),
    "embeddings of fewer dimensions, in coordinates of their span": (
        lambda: language.dual_head(jax.random.key(0), np.eye(V) * [1, 1, 1, 0]),
        "E: expected linearly independent embeddings, found rank 3 of 4 words",
    ),
}
