"""The Att-SVM of plain arrays is that of the problem."""

import numpy as np
import pytest

from jaxattn import svm, tokens
from tests import instances


@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
def test_it_is_the_solution_of_the_problem_with_these_tokens(norm):
    one = instances.problem()
    alpha = tokens.optimal(one)
    found = svm.att(np.asarray(one.X), np.asarray(one.Z), np.asarray(alpha), norm=norm)
    expected = svm.solve(svm.token_constraints(one, alpha), norm)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_lists_are_taken_too():
    """Two tokens in R^1, one query: W x z >= 1 with x - x' = 2 and z = 0.5."""
    found = svm.att([[[1.0], [-1.0]]], [[0.5]], [0])
    np.testing.assert_allclose(found.W, [[1.0]], rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.zeros((3, 4))}, r"^X: expected shape \(n, T, d\), found \(3, 4\)"),
        ({"X": np.full((3, 4, 5), np.nan)}, r"^X: expected finite numbers"),
        ({"X": np.zeros((3, 1, 5))}, r"^X: expected at least T = 2 tokens"),
        ({"Z": np.zeros((3, 4))}, r"^Z: expected shape \(3, 5\)"),
        ({"alpha": [0, 1, 4]}, r"^alpha: expected tokens 0\.\.3, found \[4\]"),
        ({"alpha": [0, 1]}, r"^alpha: expected 3 integers"),
        ({"norm": "frobenus"}, r"^norm: expected one of"),
    ],
)
def test_bad_input_is_named(change, message):
    one = instances.problem()
    given = {"X": np.asarray(one.X), "Z": np.asarray(one.Z), "alpha": [0, 1, 2]} | change
    with pytest.raises(ValueError, match=message):
        svm.att(**given)
