"""The cost of the scores of sequences, by the form in which they are computed: counted, not timed."""

from __future__ import annotations

FORMS = ("tensor trick", "matrix form", "pairs of words")


def costs(m: int, n: int, d: int, V: int) -> tuple[dict[str, int], dict[str, int]]:
    """Count the cost of the scores of m sequences of n words: multiply-adds, and numbers in memory at a time, by form.

    In a sequence k = n - 1 words ask. The tensor trick forms `A1 kron A2` of every sequence, k^2 d^2 products, and
    multiplies x by it; one matrix is held at a time. The matrix form is `(A1 X) A2^T` of every sequence, and holds `A1
    X` and the scores. The engine forms the table of all pairs of words once, `(E W^T) E^T`, and looks up V logits for
    each of the m k prefixes. Embeddings and weights themselves, which all forms need, are not counted.
    """
    k = n - 1
    products = m * 2 * k**2 * d**2, m * (k * d**2 + k**2 * d), V * d**2 + V**2 * d
    held = k**2 * d**2 + k**2, k * d + k**2, V * d + V**2 + m * k * V
    return dict(zip(FORMS, products, strict=True)), dict(zip(FORMS, held, strict=True))
