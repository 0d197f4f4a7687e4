"""Data laws: pure functions from a random key to a problem, a text, or the tokens to select.

To fix sizes use `functools.partial(data.sphere, n=6, T=8, d=10)`; `vmap` over keys draws a batch.
"""

from jaxattn.data.problems import (
    Law,
    Spheres,
    causal,
    five_tokens,
    mlp,
    orthonormal,
    sequence,
    sphere,
    spread_scores,
    stretched,
    three_tokens,
)
from jaxattn.data.selection import TokenLaw, optimal_tokens, uniform_tokens
from jaxattn.data.separating import separating
from jaxattn.data.texts import language, read_language, scored_language

__all__ = [
    "Law",
    "Spheres",
    "TokenLaw",
    "causal",
    "five_tokens",
    "language",
    "mlp",
    "optimal_tokens",
    "orthonormal",
    "read_language",
    "scored_language",
    "separating",
    "sequence",
    "sphere",
    "spread_scores",
    "stretched",
    "three_tokens",
    "uniform_tokens",
]
