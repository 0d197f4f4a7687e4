"""Known numbers are computed with at once, inside a traced function too, but programs keep their constants."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn import svm
from jaxattn.parallel import eager
from jaxattn.study import costs
from jaxattn.study.events import unheard


def test_known_numbers_can_be_read_inside_a_traced_function():
    read = []

    @jax.jit
    def traced(x):
        with eager.computing():
            read.append(float(jnp.ones(2).sum()))
        return x

    traced(1.0)
    assert read == [2.0]


def test_constants_of_a_program_that_is_traced_outside_are_not_computed_apart():
    with eager.computing():
        traced = jax.make_jaxpr(lambda x: x + jnp.arange(3))(0)
    assert [str(equation.primitive) for equation in traced.eqns if equation.primitive.name == "iota"] == ["iota"]


def test_a_batch_compiles_few_programs_and_not_one_for_each_of_their_constants():
    # A shape of its own, so that nothing is compiled yet.
    rows = svm.Constraints(jnp.ones((23, 2, 3, 19)), jnp.ones((23, 2, 2)))
    with costs.counted(unheard) as spent:
        solution = svm.solve_batch(rows, "frobenius")
    np.testing.assert_array_equal(solution.status, svm.Status.OPTIMAL)
    assert 0 < spent.programs < 10
