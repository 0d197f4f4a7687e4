"""Problems are kept on which the solutions of two norms differ most."""

import jax
import numpy as np
import pytest

from jaxattn import data, svm, tokens
from tests.svm.problems import NORMS


def confusion(problems, first, second):
    """The larger margin ratio of either solution in the other norm, for each problem."""
    posed = jax.jit(jax.vmap(lambda problem: svm.token_constraints(problem, tokens.optimal(problem))))(problems)
    found = {norm: svm.solve_batch(posed, norm) for norm in (first, second)}
    ratios = [
        np.asarray(found[own].primal) / np.array([NORMS[own][0](W) for W in found[other].W])
        for own, other in ((first, second), (second, first))
    ]
    return np.maximum(*ratios)


def test_the_most_telling_problems_are_kept_in_order():
    key = jax.random.key(0)
    kept = data.separating(key, ("frobenius", "nuclear"), n=3, T=3, d=6, count=6, tries=4)
    every = jax.vmap(lambda key: data.sphere(key, n=3, T=3, d=6))(jax.random.split(key, 24))
    order = np.argsort(confusion(every, "frobenius", "nuclear"))[:6]
    jax.tree.map(np.testing.assert_array_equal, kept, jax.tree.map(lambda leaf: leaf[order], every))


def test_other_than_two_norms_and_too_few_solutions_are_errors():
    with pytest.raises(ValueError, match="norms: expected two, found 1"):
        data.separating(jax.random.key(0), ("frobenius",), n=3, T=3, d=6)
    # In two dimensions most choices of tokens cannot be separated.
    with pytest.raises(ValueError, match=r"expected 4 problems with certified solutions, found [0-3] of 4"):
        data.separating(jax.random.key(0), ("frobenius", "nuclear"), n=8, T=4, d=2, count=4, tries=1)
