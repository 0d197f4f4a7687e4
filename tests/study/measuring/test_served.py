"""Which inputs are served, and how far the others are behind."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import svm
from jaxattn.study.measuring import served

# Three inputs of one query with differences (-2, 1), (1, 0) and, twice, (0, 1) and (1, 1); the last has no rows.
DIFFERENCES = jnp.array([[[-2.0, 1.0]] * 2, [[1.0, 0.0]] * 2, [[0.0, 1.0], [1.0, 1.0]], [[5.0, 5.0]] * 2])
PRESENT = jnp.array([[True, False], [True, False], [True, True], [False, False]])
CONSTRAINTS = svm.Constraints(DIFFERENCES, jnp.array([[1.0, 0.0]] * 4), present=PRESENT)


def of(*w):
    return jnp.zeros((2, 2)).at[:, 0].set(jnp.array(w))


def test_an_input_is_served_where_its_optimal_token_is_first():
    assert served.served(of(1.0, 3.0), CONSTRAINTS).tolist() == [True, True, True, True]
    assert served.served(of(3.0, 0.0), CONSTRAINTS).tolist() == [False, True, False, True]
    assert served.served(of(-1.0, 0.5), CONSTRAINTS).tolist() == [True, False, False, True]


def test_the_others_are_behind_by_their_worst_row():
    inputs = jnp.array([True, False, True, False])
    np.testing.assert_allclose(served.behind(of(3.0, -1.0), CONSTRAINTS, inputs), [7.0, np.inf, 1.0, np.inf])


@pytest.mark.slow
def test_the_solution_of_some_inputs_leaves_the_others_out():
    alone = served.alone(CONSTRAINTS, jnp.array([False, True, False, True]))
    np.testing.assert_allclose(svm.solve(alone).W, of(1.0, 0.0), atol=1e-9)
    np.testing.assert_allclose(served.behind(of(1.0, 0.0), CONSTRAINTS, jnp.arange(4) == 0)[0], 2.0)
