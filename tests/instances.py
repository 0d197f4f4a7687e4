"""Instances that several tests share. One shape is used wherever any shape would do: it compiles once."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from jaxattn import Problem, attention, data, descent, initial, svm, tokens

n, T, d = 3, 4, 5


def slow(*values: Any) -> Any:
    """A case that is among the slow tests."""
    return pytest.param(*values, marks=pytest.mark.slow)


@cache
def problem(seed: int = 0) -> Problem:
    """One sphere problem of the shared shape."""
    return data.sphere(jax.random.key(seed), n, T, d)


@cache
def problems(count: int, seed: int = 0) -> Problem:
    """A batch of them, lane i that of seed + i."""
    return stacked([problem(seed + i) for i in range(count)])


def single(tree):
    """The same numbers in single precision."""
    return jax.tree.map(lambda leaf: leaf.astype(np.float32) if leaf.dtype == np.float64 else leaf, tree)


@cache
def constraints(count: int, seed: int = 0) -> svm.Constraints:
    """Those of a batch that select the optimal tokens. Feasible: n <= d, T <= d + 1."""
    lanes = [problem(seed + i) for i in range(count)]
    return stacked([svm.token_constraints(one, tokens.optimal(one)) for one in lanes])


def free(seed: int = 0) -> Array:
    """Free initial weights of the shared shape."""
    return initial.free(jax.random.key(100 + seed), d)


def factored(seed: int = 0, m: int | None = None) -> attention.Factored:
    """Factored initial weights of the shared shape."""
    return initial.factored(jax.random.key(200 + seed), d, m)


def stacked(trees):
    """A batch of pytrees of equal shapes."""
    # By NumPy, since each shape would compile a program.
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *trees)


def lane(tree, i: int):
    """Lane i of a pytree with a leading batch axis."""
    return jax.tree.map(lambda leaf: leaf[i], tree)


def pair_of_opposites() -> tuple[svm.Constraints, np.ndarray]:
    """Two inputs with equal queries that ask for opposite things, and the multipliers that prove it."""
    one = problem()
    constraints = svm.token_constraints(one, tokens.optimal(one))
    differences = constraints.differences.at[1, 2].set(-2 * constraints.differences[0, 1])
    proof = np.zeros((n, T - 1))
    proof[0, 1], proof[1, 2] = 2.0, 1.0
    return svm.Constraints(differences, constraints.queries.at[1].set(constraints.queries[0])), proof


def token_inside_hull() -> tuple[svm.Constraints, np.ndarray]:
    """An input that is to select a convex combination of its other tokens, and the multipliers that prove it."""
    weights, one = np.array([0.2, 0.3, 0.5]), problem()
    X = one.X.at[1, 0].set(jnp.asarray(weights) @ one.X[1, 1:])
    proof = np.zeros((n, T - 1))
    proof[1] = weights
    return svm.token_constraints(Problem(X=X, Z=one.Z, Y=one.Y, v=one.v), [0, 0, 0]), proof


INFEASIBLE = {"opposites": pair_of_opposites, "inside the hull": token_inside_hull}


def assert_close(actual, expected, rtol: float = 1e-12, atol: float = 0.0) -> None:
    """Hold two pytrees of arrays against each other, each leaf relative to its largest entry; of runs the arrays."""
    actual, expected = (one._replace(rule=None) if isinstance(one, descent.Run) else one for one in (actual, expected))
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for found, wanted in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        found, wanted = np.asarray(found), np.asarray(wanted)
        assert found.shape == wanted.shape
        size = float(np.max(np.abs(wanted), initial=0.0))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=rtol * size + atol)


def assert_not_certified(solution: svm.Solution) -> None:
    """Hold that a solution claims nothing and holds no NaN."""
    assert svm.Status(int(solution.status)) is svm.Status.NOT_CONVERGED
    for number in jax.tree.leaves(solution):
        assert not np.isnan(number).any()


def gives_up(constraints: svm.Constraints, norm: svm.Norm) -> svm.Candidate:
    """A solver that proposes nothing."""
    del norm
    *shape, width = constraints.differences.shape
    return svm.Candidate(jnp.zeros((width, constraints.queries.shape[-1])), jnp.zeros(shape), jnp.asarray(0))


def drawn_lines(axes, least: int = 2) -> list[np.ndarray]:
    """The points, (2, points), of every line of a panel that has so many; a legend's own have none."""
    lines = [np.array(line.get_data(), float) for line in axes.lines]
    return [points for points in lines if points.shape[1] >= least]


def planted(seed: int, n: int, T: int, d: int) -> tuple[Problem, np.ndarray]:
    """A problem and the tokens that some matrix selects in it: feasible whatever the sizes."""
    rng = np.random.default_rng(seed)
    W, X, Z = rng.normal(size=(d, d)), rng.normal(size=(n, T, d)), rng.normal(size=(n, d))
    one = Problem(X=X, Z=Z, Y=np.ones(n), v=rng.normal(size=d))
    return one, np.einsum("ntd,de,ne->nt", X, W, Z).argmax(axis=1)


def all_within(folder: Path) -> dict[str, bytes | bool]:
    """The content of every file below a folder, but for what Python keeps."""
    found = (path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.is_file() and path.read_bytes() for path in found}


def matrices(constraints: svm.Constraints) -> np.ndarray:
    """Every A_k written out, (n, m, d, d), in NumPy."""
    return np.einsum("nmd,ne->nmde", *map(np.asarray, constraints[:2]))
