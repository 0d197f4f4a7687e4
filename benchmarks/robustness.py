"""Solve 10,000 problems that are designed to be hard, and compare a sample with Clarabel."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.svm import lane
from jaxattn import Problem, data, svm
from jaxattn.parallel import batch
from jaxattn.svm import Constraints, Status

SHAPES = (
    *((2, 4, 2), (4, 6, 2), (3, 5, 3), (8, 4, 3), (5, 8, 4)),
    *((6, 8, 10), (10, 5, 10), (10, 5, 20), (5, 10, 50), (3, 20, 6)),
)
PER_LAW, SAMPLED = 200, 200
# Clarabel counts as converged at this gap; its value is then accurate to a few times the gap.
CONVERGED = svm.Tolerance(gap=1e-6, violation=1e-6, farkas=1e-6)


def duplicated(key: jax.Array, n: int, T: int, d: int) -> Problem:
    """Replace three of ten tokens by copies of others; infeasible if the selected token has a copy."""
    keys = jax.random.split(key, 3)
    problem = data.sphere(keys[0], n, T, d)
    copied = jax.random.bernoulli(keys[1], 0.3, (n, T))
    source = jnp.where(copied, jax.random.randint(keys[2], (n, T), 0, T), jnp.arange(T))
    return replace(problem, X=jnp.take_along_axis(problem.X, source[..., None], axis=1))


def nearly_parallel(key: jax.Array, n: int, T: int, d: int) -> Problem:
    """Draw tokens around half as many centres, at distances of 1e-6 to 1e-1."""
    keys = jax.random.split(key, 4)
    problem = data.sphere(keys[0], n, T, d)
    centre = jax.random.randint(keys[1], (n, T, 1), 0, max(2, T // 2))
    distance = 10.0 ** jax.random.uniform(keys[2], (n, T, 1), minval=-6, maxval=-1)
    noise = distance * jax.random.normal(keys[3], (n, T, d))
    return replace(problem, X=jnp.take_along_axis(problem.X, centre, axis=1) + noise)


def scaled(key: jax.Array, n: int, T: int, d: int) -> Problem:
    """Multiply all tokens by one number between 1e-6 and 1e6, and all queries by another."""
    keys = jax.random.split(key, 3)
    problem = data.sphere(keys[0], n, T, d)
    sizes = 10.0 ** jax.random.uniform(keys[1], (2,), minval=-6, maxval=6)
    return replace(problem, X=sizes[0] * problem.X, Z=sizes[1] * problem.Z)


def unevenly_scaled(key: jax.Array, n: int, T: int, d: int) -> Problem:
    """Multiply the tokens of each input by 1e-2 to 1e2, its query by 1e-1 to 1e1: rows of lengths 1e-3 to 1e3."""
    keys = jax.random.split(key, 3)
    problem = data.sphere(keys[0], n, T, d)
    X = problem.X * 10.0 ** jax.random.uniform(keys[1], (n, 1, 1), minval=-2, maxval=2)
    return replace(problem, X=X, Z=problem.Z * 10.0 ** jax.random.uniform(keys[2], (n, 1), minval=-1, maxval=1))


LAWS = (data.sphere, duplicated, nearly_parallel, scaled, unevenly_scaled)


def hard(shape: tuple[int, int, int]) -> Constraints:
    """Return the Att-SVMs of random tokens, for problems from each law in turn."""
    n, T, d = shape
    parts = []
    for number, law in enumerate(LAWS):
        keys = jax.random.split(jax.random.key(sum(shape) + 100 * number), (2, PER_LAW))
        problems = jax.jit(jax.vmap(partial(law, n=n, T=T, d=d)))(keys[0])
        alpha = jax.vmap(lambda key: jax.random.randint(key, (n,), 0, T))(keys[1])
        parts.append(batch.over_seeds(svm.token_constraints, problems, alpha))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def robustness() -> Iterator[dict[str, Any]]:
    """Yield, for each norm, the outcomes for the problems of each law, and the agreement of a sample with Clarabel."""
    for norm in ("frobenius", "nuclear"):
        counts, held = np.zeros((len(LAWS), len(Status)), int), np.zeros(2, int)
        for shape in SHAPES:
            constraints = hard(shape)
            solution = svm.solve_batch(constraints, norm)
            by_law = solution.status.reshape(len(LAWS), -1)
            counts += np.stack([np.bincount(part, minlength=len(Status)) for part in by_law])
            # Larger nuclear problems take Clarabel seconds to minutes.
            few = SAMPLED // len(SHAPES) if norm == "frobenius" or max(shape) <= 10 else 1
            held += _held(constraints, solution, norm, few)
        laws = {
            law.__name__: dict(zip(Status.__members__, map(int, row), strict=True))
            for law, row in zip(LAWS, counts, strict=True)
        }
        yield {"norm": norm, "laws": laws, "compared with Clarabel": int(held[0]), "agreeing": int(held[1])}


def _held(constraints: Constraints, solution: svm.Solution, norm: str, count: int) -> np.ndarray:
    """Return how many decided problems of a sample Clarabel decides too, and on how many of these it agrees."""
    decided = np.flatnonzero(solution.status != Status.NOT_CONVERGED)
    compared = agreeing = 0
    for i in np.random.default_rng(0).choice(decided, count, replace=False):
        witness = svm.solve(lane(constraints, i), norm, solver=svm.Cvxpy(), tolerance=CONVERGED)
        if int(witness.status) == Status.NOT_CONVERGED:
            continue
        compared += 1
        same = int(witness.status) == int(solution.status[i])
        infeasible = int(witness.status) == Status.INFEASIBLE
        agreeing += same and (
            infeasible or bool(np.isclose(witness.primal, solution.primal[i], rtol=3 * CONVERGED.gap))
        )
    return np.array([compared, agreeing])
