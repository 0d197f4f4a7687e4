"""Under JAX's strict promotion of types every solver, and training, runs as it does without."""

import jax
import numpy as np
import pytest

from jaxattn import descent, svm
from tests import instances


@pytest.fixture(autouse=True)
def strict():
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.mark.parametrize("norm", ["nuclear", "spectral", "max", "schatten_1.5", "2,1"])
def test_every_solver_and_the_certificate_can_be_traced(norm):
    rows = svm.soft(instances.lane(instances.constraints(4), 0), 0.4)
    assert jax.eval_shape(lambda posed: svm.solve(posed, norm=norm), rows).W.shape == (5, 5)


def test_rows_are_posed_and_solved_on_the_host():
    rows = svm.token_constraints(instances.problem(), [0, 1, 2])
    assert svm.solve(rows, norm="nuclear").status == svm.Status.OPTIMAL


def test_training_runs():
    run = descent.train_batch(np.zeros((2, 5, 5)), instances.problems(2), steps=5)
    assert np.isfinite(run.loss).all()
