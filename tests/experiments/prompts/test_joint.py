"""The max-margin problems of joint training: their ends, and the equation that the offsets satisfy."""

import jax
import numpy as np
import pytest

from jaxattn import batch, data, svm, tokens
from jaxattn.experiments.prompts import joint
from tests.instances import n, problems


@pytest.fixture(scope="module")
def posed():
    every = problems(6)
    return every, batch.over_seeds(tokens.optimal, every)


def solved(posed, ratio):
    every, alpha = posed
    return joint.solve(every, alpha, np.full(6, ratio), None)


@pytest.mark.slow
def test_the_offsets_lie_between_the_plain_and_the_relaxed_problem(posed):
    for ratio, problem in ((1e-9, "unrelaxed"), (1e9, "relaxed")):
        found = solved(posed, ratio)
        assert found.solved.all()
        W = found.W[:, joint.PROBLEMS.index(problem)]
        np.testing.assert_allclose(found.W[:, joint.PROBLEMS.index("offset")], W, atol=1e-5 * np.abs(W).max())
    unrelaxed, relaxed, offset = np.linalg.norm(solved(posed, 1.0).W, axis=(2, 3)).T
    assert (relaxed <= offset + 1e-9).all()
    assert (offset <= unrelaxed + 1e-9).all()
    # Some input of some problem is no support vector, or nothing of this was tried.
    assert not solved(posed, 1.0).support.all()


@pytest.fixture(scope="module")
def offset(posed):
    return solved(posed, 0.5)


def test_the_offset_solution_maximizes_the_smallest_sum_of_margins(posed, offset):
    every, alpha = posed
    found, ratio = offset, 0.5
    rows = batch.over_seeds(svm.token_constraints, every, alpha)

    def smallest(W):
        W = W / np.linalg.norm(W, axis=(1, 2), keepdims=True)
        margins = batch.over_seeds(svm.margins, rows, W)
        return (margins + ratio * found.excess[:, :, None]).min(axis=(1, 2))

    best = found.W[:, joint.PROBLEMS.index("offset")]
    random = np.random.default_rng(0)
    for _ in range(20):
        other = best + 0.05 * np.linalg.norm(best) * random.normal(size=best.shape)
        assert (smallest(other) <= smallest(best) + 1e-9).all()
    # The unrelaxed solution does no better, and worse where some input is no support vector.
    assert (smallest(found.W[:, 0]) <= smallest(best) + 1e-9).all()


def test_support_vectors_have_the_smallest_label_margin(offset):
    found = offset
    assert (found.excess[found.support] == 0).all()
    assert (found.excess[~found.support] > 0).all()
    assert found.support.any(axis=1).all()


def test_labels_that_no_head_separates_are_infeasible():
    one = data.sphere(jax.random.key(0), n=3, T=2, d=5)
    same = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], 2, axis=0), one)
    X = np.array(same.X)
    X[:, 1], Y = X[:, 0], np.array([[1.0, -1.0, 1.0]] * 2)
    found = joint.solve(type(one)(X=X, Z=same.Z, Y=Y, v=same.v), np.zeros((2, n), int), np.ones(2), None)
    assert not found.solved.any()
    assert found.infeasible.all()


def test_direction_errors_do_not_see_lengths():
    A, v = np.random.default_rng(1).normal(size=(3, 4, 4)), np.ones(4)
    of_W, of_v = jax.jit(joint.direction_errors)(A, np.outer([1.0, 2.0, 3.0], v), 5 * A[:2], 7 * v)
    assert of_W.shape == (2, 3)
    np.testing.assert_allclose([of_W[0, 0], of_W[1, 1]], 0.0, atol=1e-12)
    np.testing.assert_allclose(of_v, 0.0, atol=1e-12)
