"""Problems whose tokens are patches of handwritten digits.

`digits.npz` holds 60 images of each digit, 8 x 8 pixels of 0 to 16: the first of each class in the copy of "Optical
Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998, CC BY 4.0,
doi 10.24432/C50P49) that scikit-learn ships.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8

from jaxattn.data import draws
from jaxattn.problem import Problem

__all__ = ["D", "T", "class_queries", "first_patch", "load", "tokens"]

FILE = Path(__file__).with_name("digits.npz")
# Fingerprints cover source files only, so the pixels are identified by their hash here.
SHA256 = "c08392beed7bca20a51ef5d769893f457d978d55e7bf50c9cff06ee6c69e9884"
# Patches per image, and pixels per patch.
T, D = 4, 16


@lru_cache(maxsize=4)
def load(path: Path = FILE) -> UInt8[np.ndarray, "10 60 8 8"]:
    """Return the images, by digit.

    Raises:
        ValueError: the file holds other pixels.
    """
    with np.load(path) as arrays:
        images = arrays["images"]
    found = hashlib.sha256(images.tobytes()).hexdigest()
    if found != SHA256:
        raise ValueError(f"{path.name}: expected pixels of SHA-256 {SHA256[:12]}..., found {found[:12]}...")
    return images


@lru_cache(maxsize=1)
def tokens() -> Float[np.ndarray, "10 60 4 16"]:
    """Return the four quadrants of every image as tokens, minus their overall mean, with mean square norm 1."""
    images = load().astype(float)
    quadrants = images.reshape(*images.shape[:2], 2, 4, 2, 4).swapaxes(3, 4).reshape(*images.shape[:2], T, D)
    centred = quadrants - quadrants.mean(axis=(0, 1, 2))
    return centred / np.sqrt((centred**2).sum(axis=-1).mean())


def class_queries(key: PRNGKeyArray, n: int) -> Problem:
    """Draw two digits and n / 2 images of each; the query is that of the image's class.

    Tokens are the four quadrants of an image, labels +-1 its class, queries are two vectors on the unit sphere, one per
    class. The head direction v is the difference of the classes' mean tokens, a unit vector. The optimal tokens can
    always be separated: `W z = Y v` does.

    Raises:
        ValueError: n is not an even number from 2 to 120.
    """
    X, Y, v, own = _drawn(key, n)
    Z = draws.unit(jax.random.normal(own, (2, D)))
    return Problem(X=X, Z=Z[(Y < 0).astype(int)], Y=Y, v=v)


def first_patch(key: PRNGKeyArray, n: int) -> Problem:
    """Draw as `class_queries` does, from the same key; an image's query is its first patch, as in self-attention.

    Raises:
        ValueError: as `class_queries`.
    """
    X, Y, v, _ = _drawn(key, n)
    return Problem(X=X, Z=X[:, 0], Y=Y, v=v)


def _drawn(
    key: PRNGKeyArray, n: int
) -> tuple[Float[Array, "n T d"], Float[Array, " n"], Float[Array, " d"], PRNGKeyArray]:
    """Return tokens, labels and head direction of two digits, and a key for the queries."""
    known = tokens()
    digits, images = known.shape[:2]
    if not isinstance(n, int) or isinstance(n, bool) or n % 2 or not 2 <= n <= 2 * images:
        raise ValueError(f"n: expected an even number from 2 to {2 * images}, found {n!r}")
    of_digits, of_images, of_queries = jax.random.split(key, 3)
    pair = jax.random.permutation(of_digits, digits)[:2]
    chosen: Int[Array, "2 n_half"] = jnp.stack(
        [jax.random.permutation(k, images)[: n // 2] for k in jax.random.split(of_images)]
    )
    X = jnp.asarray(known)[pair[:, None], chosen]
    difference = X[0].mean(axis=(0, 1)) - X[1].mean(axis=(0, 1))
    Y = jnp.repeat(jnp.array([1.0, -1.0]), n // 2)
    return X.reshape(n, T, D), Y, draws.unit(difference), of_queries
