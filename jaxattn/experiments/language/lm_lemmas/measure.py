"""The errors of the gradient and the bounds stated in the second paper, for recorded texts.

The letters are the paper's: rows `A_t` of the block `A_j0` of `A1 kron A2`, x the weights, `f = softmax(A_j0 x)`, `h =
A3 y`, g the logistic function, b a label, `alpha = <exp(A_j0 x), 1>`.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, UInt32

from jaxattn import svm
from jaxattn.parallel import batch

# The lemma is about any real label.
LABELS = np.array([1.0, -1.0, 0.5, 2.0])
# Distances between two arguments of g', and the number drawn at each distance.
DISTANCES = np.geomspace(1e-3, 30.0, 10)
_CENTRES = 400
# The bounds on all norms, at least 4, and the number of pairs of weights drawn for each.
RADII = np.array([4.0, 6.0])
_PAIRS = 64
# The basic functions, in the order of section 3.3.
BOUNDS = ("exp(A x)", "alpha", "1 / alpha", "f", "c", "diag f", "f f^T")


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Check the lemmas on sequences of drawn texts, at drawn weights and labels.

    Args:
        record: of `Texts`, with sequences of `data.n` words.
        solver: not used; nothing is separated.

    Returns:
        For every seed `printed` and `mended`, by label: the relative difference of the gradient from automatic
        differentiation, as printed and with the label inside g'; `slope`, by distance: the largest `|g'(x) - g'(x')| /
        |x - x'|`; `share`, by radius and basic function: the decimal logarithm of the largest ratio of a difference to
        its bound. Sequences of a single repeated word, for which every gradient is zero, count as `labels`.

    Raises:
        ValueError: there is no sequence of several words.
    """
    del solver
    n = record.attrs["data.n"]
    words = np.concatenate([record["last"].values[:, : n - 1], record["next"].values[:, n - 2 : n - 1]], axis=1)
    several = np.asarray(np.any(words != words[:, :1], axis=1))
    if not several.any():
        raise ValueError(f"lm-lemmas: expected a sequence of several words, found none of {several.size}")
    A = np.take_along_axis(record["E"].values, words[:, :, None], axis=1)[several]
    found = batch.over_seeds(_of_one, A, record["draw_key"].values[several])
    dims = {"printed": ("label",), "mended": ("label",), "slope": ("distance",), "share": ("radius", "bound")}
    arrays = {name: (("seed", *axes), one) for (name, axes), one in zip(dims.items(), found, strict=True)}
    counts = {"attempted": several.size, "kept": len(A), "labels": int((~several).sum())}
    axes = {"label": LABELS, "distance": DISTANCES, "radius": RADII, "bound": np.array(BOUNDS, dtype=object)}
    return xarray.Dataset(arrays, {"seed": record["seed"].values[several], **axes}, counts)


def _of_one(A: Float[Array, "n d"], words: UInt32[Array, " words"]) -> tuple[Array, ...]:
    """Return what `measure` needs for one seed, in its order, from the embeddings of one sequence."""
    of_gradient, of_slope, of_bounds = jax.random.split(jax.random.wrap_key_data(words), 3)
    printed, mended = _gradients(A, of_gradient)
    return printed, mended, _slopes(of_slope), jnp.stack([_shares(A, R, of_bounds) for R in RADII])


def _gradients(A: Float[Array, "n d"], key: Array) -> tuple[Float[Array, " labels"], Float[Array, " labels"]]:
    d, keys = A.shape[1], jax.random.split(key, 2)
    block = _block(A)
    x, y = 2 * jax.random.normal(keys[0], (d * d,)), 2 * jax.random.normal(keys[1], (d,))
    h = A @ y
    g = jax.nn.sigmoid

    def loss(x: Array, b: Array) -> Array:
        return g((jax.nn.softmax(block @ x) @ h) * b)

    def apart(b: Array) -> tuple[Array, Array]:
        f = jax.nn.softmax(block @ x)
        s = f @ h
        inner = b * ((f * h) @ block - s * (f @ block))
        true = jax.grad(loss)(x, b)
        forms = (g(at) * (1 - g(at)) * inner for at in (s, s * b))
        first, second = (jnp.linalg.norm(form - true) / jnp.linalg.norm(true) for form in forms)
        return first, second

    return jax.vmap(apart)(jnp.asarray(LABELS))


def _slopes(key: Array) -> Float[Array, " distances"]:
    slope = jax.vmap(jax.vmap(jax.grad(jax.nn.sigmoid)))
    centre = jax.random.uniform(key, (1, _CENTRES), minval=-8.0, maxval=8.0)
    half = jnp.asarray(DISTANCES)[:, None] / 2
    return jnp.max(jnp.abs(slope(centre + half) - slope(centre - half)), axis=1) / DISTANCES


def _block(A: Float[Array, "n d"]) -> Float[Array, "n dd"]:
    """Return the block of `A1 kron A2` for the last word, with row t `a_last kron a_t`."""
    return jnp.einsum("i,tj->tij", A[-1], A).reshape(len(A), -1)


def _shares(A: Float[Array, "n d"], R: float, key: Array) -> Float[Array, " bounds"]:
    """Return the logarithms of the largest ratios over pairs of weights with `||A_j0 x|| <= R`, and `||A_j0|| = R`.

    Every other pair consists of close weights. beta is the smaller alpha of the pair: smaller values make all bounds
    larger. `||A3|| = R`, `||y|| = R`.
    """
    n, keys = len(A), jax.random.split(key, 4)
    block = _block(A)
    block = R * block / jnp.linalg.norm(block, ord=2)
    y = jax.random.normal(keys[0], A.shape[1:])
    h = (R * A / jnp.linalg.norm(A, ord=2)) @ (R * y / jnp.linalg.norm(y))
    first, second = jax.random.normal(keys[1], (2, _PAIRS, block.shape[1]))
    close = jnp.where(jnp.arange(_PAIRS)[:, None] % 2 == 0, 1.0, 1e-2)
    second = first + close * (second - first)
    longest = jax.random.uniform(keys[2], (_PAIRS, 1), minval=0.2) * R
    reach = jnp.maximum(*(jnp.linalg.norm(one @ block.T, axis=1) for one in (first, second)))[:, None]
    return jnp.max(
        jax.vmap(partial(_ratios, block, h, R, n))(longest * first / reach, longest * second / reach), axis=0
    )


def _ratios(
    block: Float[Array, "n dd"], h: Float[Array, " n"], R: float, n: int, x: Float[Array, " dd"], y: Float[Array, " dd"]
) -> Float[Array, " bounds"]:
    """Return the decimal logarithms of each difference over its bound, for one pair of weights."""
    u, v = jnp.exp(block @ x), jnp.exp(block @ y)
    alpha, other = jnp.sum(u), jnp.sum(v)
    f, k = u / alpha, v / other
    far = jnp.linalg.norm(x - y)
    log_beta, log_n = jnp.log(jnp.minimum(alpha, other)), jnp.log(n)
    apart = jnp.linalg.norm(u - v)
    # Differences that are zero never exceed a bound.
    least = jnp.finfo(u.dtype).tiny
    pairs = (
        (apart, jnp.log(R) + R**2 + jnp.log(far)),
        (jnp.abs(alpha - other), log_n / 2 + jnp.log(apart)),
        (jnp.abs(1 / alpha - 1 / other), -2 * log_beta + jnp.log(jnp.abs(alpha - other))),
        (jnp.linalg.norm(f - k), -2 * log_beta + log_n + 3 * R**2 + jnp.log(far)),
        (jnp.abs(f @ h - k @ h), 2 * jnp.log(R) - 2 * log_beta + log_n + 3 * R**2 + jnp.log(far)),
        (jnp.max(jnp.abs(f - k)), -2 * log_beta + log_n + 3 * R**2 + jnp.log(far)),
        (
            jnp.linalg.norm(jnp.outer(f, f) - jnp.outer(k, k), ord="fro"),
            jnp.log(2.0) - 3 * log_beta + 2 * log_n + 5 * R**2 + jnp.log(far),
        ),
    )
    return jnp.stack([jnp.log(jnp.maximum(size, least)) - bound for size, bound in pairs]) / jnp.log(10.0)
