"""Data laws: pure functions from a random key to one Problem.

To fix sizes use `functools.partial(data.sphere, n=6, T=8, d=10)`; `vmap` over keys draws a batch of problems. Each
array is drawn from its own key, split from the given one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxattn import checks
from jaxattn.data import draws
from jaxattn.problem import Problem, every_position, every_prefix

__all__ = [
    "Law",
    "Spheres",
    "causal",
    "five_tokens",
    "mlp",
    "orthonormal",
    "sequence",
    "sphere",
    "spread_scores",
    "stretched",
    "three_tokens",
]

Law = Callable[[PRNGKeyArray], Problem]


def sphere(key: PRNGKeyArray, n: int, T: int, d: int) -> Problem:
    """Draw tokens, queries and head direction uniformly from the unit sphere of R^d, and random labels +-1.

    Source: the law of the local-convergence, rank and probability figures (2308.16898, section 3).

    Raises:
        ValueError: n < 1, T < 2 or d < 1.

    Example:
        >>> problem = data.sphere(key, n=6, T=8, d=10)
        >>> bool(jnp.allclose(jnp.linalg.norm(problem.X, axis=-1), 1.0))
        True
    """
    draws.check_sizes(n=n, T=T, d=d)
    keys = jax.random.split(key, 4)
    X, Z, v = draws.normals(keys[jnp.array([0, 1, 3])], (n, T, d), (n, d), (d,))
    return _spherical(keys[2], X, Z, draws.unit(v))


def sequence(key: PRNGKeyArray, n: int, T: int, d: int) -> Problem:
    """Draw n sequences of T tokens, and make one input of each position: n T inputs.

    Tokens and head direction are uniform on the unit sphere of R^d; each position has a label +-1 (2308.16898,
    sequence-to-sequence attention). The inputs are those of `problem.every_position`.

    Raises:
        ValueError: n < 1, T < 2 or d < 1.

    Example:
        >>> data.sequence(key, n=2, T=3, d=4).n  # an input for every position
        6
    """
    return every_position(*_sequences(key, n, T, d))


def causal(key: PRNGKeyArray, n: int, T: int, d: int) -> Problem:
    """Draw the same sequences as `sequence` from the same key; each position sees only the tokens up to its own.

    The inputs are those of `problem.every_prefix`.

    Raises:
        ValueError: n < 1, T < 2 or d < 1.

    Example:
        >>> data.causal(key, n=2, T=3, d=4).present.sum(axis=1).tolist()  # tokens that a position sees
        [1, 2, 3, 1, 2, 3]
    """
    return every_prefix(*_sequences(key, n, T, d))


@dataclass(frozen=True)
class Spheres:
    """The sphere law in several dimensions, embedded in the largest one by zero coordinates.

    Embedding a problem embeds its solutions. All dimensions share one shape, and so compile once.

    Attributes:
        n: the number of inputs.
        T: the number of tokens per input.
        d: the dimensions.

    Raises:
        ValueError: no dimension, a repeated dimension, n < 1, T < 2 or a dimension < 1.
    """

    n: int
    T: int
    d: Sequence[int]

    def __post_init__(self) -> None:
        dimensions = tuple(self.d) if isinstance(self.d, Iterable) else ()
        if not 0 < len(set(dimensions)) == len(dimensions):
            raise ValueError(f"d: expected different dimensions, at least one, found {self.d!r}")
        for d in dimensions:
            draws.check_sizes(n=self.n, T=self.T, d=d)
        object.__setattr__(self, "d", dimensions)

    def __call__(self, key: PRNGKeyArray, d: Int[Array, ""]) -> Problem:
        """Draw `sphere(key, n, T, d)`, to rounding, with arrays padded to the width max(self.d); d may be traced."""
        keys = jax.random.split(key, 4)
        shapes = (self.n, self.T), (self.n,), ()
        flat = draws.normals(keys[jnp.array([0, 1, 3])], *((*shape, max(self.d)) for shape in shapes))
        X, Z, v = (_embedded(numbers, d) for numbers in flat)
        return _spherical(keys[2], X, Z, draws.unit(v))


def spread_scores(key: PRNGKeyArray, n: int, T: int, d: int, spread: float) -> Problem:
    """Draw sphere problems in which the scores of non-optimal tokens are moved closer together.

    The score of the optimal token is unchanged. The scores of the other tokens move towards their mean, to `spread`
    times their distance from it, and the other coordinates are rescaled to keep the tokens on the sphere. With spread 1
    this is the law of `sphere`, with spread 0 the assumption of equal scores in the global convergence theorem
    (2308.16898). The head direction is the first axis, which is no restriction for a rotation-invariant law, and makes
    equal scores equal to the last bit.

    Raises:
        ValueError: n < 1, T < 2, d < 2, or a spread outside 0..1.

    Example:
        >>> equal = data.spread_scores(key, n=2, T=4, d=5, spread=0.0)
        >>> bool(jnp.allclose(jnp.sort(tokens.scores(equal))[:, 0], jnp.sort(tokens.scores(equal))[:, 2]))
        True
    """
    draws.check_sizes(n=n, T=T, d=d)
    if d < 2:
        raise ValueError(f"d: expected an integer of at least 2, so that scores can be moved, found {d}")
    checks.number("spread", spread, "a number within 0..1", lambda spread: 0 <= spread <= 1)
    keys = jax.random.split(key, 3)
    X, Z = (draws.unit(vectors) for vectors in draws.normals(keys[:2], (n, T, d), (n, d)))
    Y = jax.random.rademacher(keys[2], (n,)).astype(float)
    scores = Y[:, None] * X[:, :, 0]
    optimal = scores == jnp.max(scores, axis=1, keepdims=True)
    common = jnp.mean(scores, axis=1, keepdims=True, where=~optimal)
    moved = jnp.where(optimal, scores, common + spread * (scores - common))
    # The moved scores do not exceed all original ones in absolute value, so the roots are real.
    others = X[:, :, 1:] * jnp.sqrt((1 - moved**2) / (1 - scores**2))[:, :, None]
    X = jnp.concatenate([(Y[:, None] * moved)[:, :, None], others], axis=2)
    return Problem(X=X, Z=Z, Y=Y, v=jnp.zeros(d).at[0].set(1.0))


def stretched(key: PRNGKeyArray, n: int, T: int, d: int, spread: float = 0.5) -> Problem:
    """Draw as `sphere`, and multiply each token and query by its own length `exp(spread * g)`, g standard normal.

    Raises:
        ValueError: as in `sphere`; a spread that is negative or not finite.

    Example:
        >>> problem = data.stretched(key, n=6, T=8, d=10)
        >>> bool(jnp.linalg.norm(problem.X, axis=-1).std() > 0.1)
        True
    """
    checks.at_least_zero("spread", spread)
    own, X_key, Z_key = jax.random.split(key, 3)
    problem = sphere(own, n, T, d)
    lengths = [jnp.exp(spread * jax.random.normal(k, shape)) for k, shape in ((X_key, (n, T, 1)), (Z_key, (n, 1)))]
    return Problem(X=lengths[0] * problem.X, Z=lengths[1] * problem.Z, Y=problem.Y, v=problem.v)


def three_tokens(key: PRNGKeyArray) -> Problem:
    """Draw two inputs of three tokens in the plane, the layout of the trajectory figure.

    Tokens are 0.3 times standard normal, shifted by (-1, 0) in the first and (1, 0) in the second input. Queries and
    head direction are unit vectors; labels are +1 (2308.16898, figure 1).

    Example:
        >>> data.three_tokens(key).X.shape
        (2, 3, 2)
    """
    X, Z, v = _planar(key, T=3)
    X = 0.3 * X + jnp.array([[[-1.0, 0.0]], [[1.0, 0.0]]])
    return Problem(X=X, Z=Z, Y=jnp.ones(2), v=v)


def five_tokens(key: PRNGKeyArray) -> Problem:
    """Draw two inputs of five tokens in the plane, with one distant token in each input.

    Tokens are 0.5 times standard normal. The first token of each input is then set to (1, 0.5) and (1, -0.5), and the
    others are shifted by (-1, 0). The rest is as in `three_tokens`.

    Example:
        >>> data.five_tokens(key).X.shape
        (2, 5, 2)
    """
    X, Z, v = _planar(key, T=5)
    X = (0.5 * X + jnp.array([-1.0, 0.0])[None, None]).at[:, 0].set(jnp.array([[1.0, 0.5], [1.0, -0.5]]))
    return Problem(X=X, Z=Z, Y=jnp.ones(2), v=v)


def mlp(key: PRNGKeyArray, n: int, T: int, d: int, width: int | None = None) -> Problem:
    """Draw tokens and queries uniformly from the unit sphere of R^d, labels +-1, and a layer of Frobenius norm 1.

    The layer v, (d, width), is a standard normal matrix divided by its norm. Default: width = d. Source: the law of the
    multi-token figure with the head `heads.mlp` (2308.16898, section on multiple tokens).

    Raises:
        ValueError: n < 1, T < 2, d < 1 or width < 1.

    Example:
        >>> data.mlp(key, n=3, T=4, d=5).v.shape  # a layer in place of a head direction
        (5, 5)
    """
    width = d if width is None else width
    draws.check_sizes(n=n, T=T, d=d, width=width)
    keys = jax.random.split(key, 4)
    X, Z, V = draws.normals(keys[jnp.array([0, 1, 3])], (n, T, d), (n, d), (d, width))
    return _spherical(keys[2], X, Z, V / jnp.linalg.norm(V))


def orthonormal(key: PRNGKeyArray, n: int, T: int, d: int) -> Problem:
    """Draw T orthonormal tokens per input, uniformly, and queries and head direction from the unit sphere.

    All labels are +1. The tokens are the orthonormal factor of a standard normal matrix. Source: the law of the figure
    on the penalty of `heads.Quadratic` (2308.16898, section on multiple tokens).

    Raises:
        ValueError: n < 1, T < 2, or T > d, since at most d vectors are orthonormal.

    Example:
        >>> X = data.orthonormal(key, n=2, T=3, d=4).X
        >>> bool(jnp.allclose(X[0] @ X[0].T, jnp.eye(3)))
        True
    """
    draws.check_sizes(n=n, T=T, d=d)
    if d < T:
        raise ValueError(f"T: expected at most d = {d} orthonormal tokens, found {T}")
    X, Z, v = draws.normals(jax.random.split(key, 3), (n, T, d), (n, d), (d,))
    Q, R = jnp.linalg.qr(jnp.swapaxes(X, -1, -2))
    # With the signs of Gram-Schmidt the factor is uniformly distributed.
    signs = jnp.sign(jnp.diagonal(R, axis1=-2, axis2=-1))
    return Problem(X=jnp.swapaxes(Q * signs[:, None, :], -1, -2), Z=draws.unit(Z), Y=jnp.ones(n), v=draws.unit(v))


def _planar(key: PRNGKeyArray, T: int) -> tuple[Float[Array, "2 T 2"], Float[Array, "2 2"], Float[Array, "2"]]:
    """Draw standard normal tokens of two inputs in the plane, their queries and the head direction."""
    X, Z, v = draws.normals(jax.random.split(key, 3), (2, T, 2), (2, 2), (2,))
    return X, draws.unit(Z), draws.unit(v)


def _sequences(
    key: PRNGKeyArray, n: int, T: int, d: int
) -> tuple[Float[Array, "n T d"], Float[Array, "n T"], Float[Array, " d"]]:
    """Draw tokens, labels of all positions, and the head direction."""
    draws.check_sizes(n=n, T=T, d=d)
    keys = jax.random.split(key, 3)
    X, v = draws.normals(keys[jnp.array([0, 2])], (n, T, d), (d,))
    return draws.unit(X), jax.random.rademacher(keys[1], (n, T)).astype(float), draws.unit(v)


def _spherical(
    key: PRNGKeyArray, X: Float[Array, "n T d"], Z: Float[Array, "n d"], v: Float[Array, "d ..."]
) -> Problem:
    """Scale tokens and queries to the unit sphere, and draw the labels."""
    Y = jax.random.rademacher(key, Z.shape[:1]).astype(float)
    return Problem(X=draws.unit(X), Z=draws.unit(Z), Y=Y, v=v)


def _embedded(numbers: Float[Array, "*shape width"], d: Int[Array, ""]) -> Float[Array, "*shape width"]:
    """Rearrange numbers as vectors of d coordinates, each padded with zeros.

    The first numbers of a flat draw do not depend on the length of the draw, so these equal a draw of vectors in R^d.
    """
    width = numbers.shape[-1]
    vector, coordinate = jnp.arange(numbers.size // width)[:, None], jnp.arange(width)[None, :]
    taken = numbers.ravel()[vector * d + jnp.minimum(coordinate, d - 1)]
    vectors = jnp.where(coordinate < d, taken, 0.0)
    # In R^1 many tokens are equal, and must be equal to the last bit: a rounding difference between two of them would
    # pose another problem.
    return jnp.where(d == 1, jnp.sign(vectors), vectors).reshape(numbers.shape)
