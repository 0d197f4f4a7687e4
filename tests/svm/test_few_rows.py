"""Few rows in many dimensions: the answer lies in a small space, and so do the programs and the evidence."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import norms, svm
from jaxattn.svm import constraints as cons
from jaxattn.svm.evidence import of_each, of_rank
from jaxattn.svm.packing import packed
from tests.instances import slow

d, INF = 48, float("inf")
TOKENS, QUERIES = np.random.default_rng(0).normal(size=(2, 3, d)), np.random.default_rng(1).normal(size=(2, d))


def of_one_row(p: float) -> float:
    """The value of the dual problem of one row: 1 over the dual norm of its matrix."""
    first, second = (np.linalg.norm(one, norms.conjugate(p)) for one in (TOKENS[0, 0] - TOKENS[0, 1], QUERIES[0]))
    return 1 / float(first * second)


@pytest.mark.parametrize(
    ("norm", "p", "unique"),
    [
        ("nuclear", 2.0, "YES"),
        ("spectral", 2.0, "NO"),
        *(slow(*case) for case in (("max", INF, "YES"), ("schatten_1.5", 2.0, "YES"), ("l1", 1.0, "YES"))),
    ],
)
def test_one_row_has_the_value_of_its_dual_norm(norm, p, unique):
    solution = svm.att(TOKENS[:1, :2], QUERIES[:1], [0], norm=norm)
    assert svm.Status(int(solution.status)) is svm.Status.OPTIMAL
    assert svm.Unique(int(solution.unique)).name == unique
    np.testing.assert_allclose(float(solution.primal), of_one_row(p), rtol=1e-8)


@pytest.mark.parametrize("norm", ["nuclear", slow("spectral")])
def test_a_few_rows_have_the_value_that_they_have_in_their_spans(norm):
    rows = svm.Constraints(jnp.asarray(TOKENS[:, :1] - TOKENS[:, 1:]), jnp.asarray(QUERIES))
    whole, reduced = svm.solve(rows, norm=norm), svm.solve(cons.reduce(rows).constraints, norm=norm)
    assert whole.status == reduced.status == svm.Status.OPTIMAL
    np.testing.assert_allclose(whole.primal, reduced.primal, rtol=1e-8)
    assert svm.Unique(int(whole.unique)) is (svm.Unique.YES if norm == "nuclear" else svm.Unique.NO)


@pytest.mark.parametrize("C", [None, slow(0.7)])
@pytest.mark.parametrize("targets", [slow(None), [1.0, -0.5, 0.0]])
@pytest.mark.parametrize("norm", [svm.entrywise(INF), slow(svm.entrywise(1.5))])
def test_rows_of_one_query_have_the_value_of_rows_that_repeat_it(norm, targets, C):
    rng = np.random.default_rng(2)
    differences, z = rng.normal(size=(1, 3, 5)), rng.normal(size=(1, 5))
    z[0, 1] = 0.0
    values = []
    for shape in ((1, 3), (3, 1)):
        b, penalty = (None if one is None else jnp.full(3, jnp.asarray(one)).reshape(shape) for one in (targets, C))
        queries = jnp.asarray(np.repeat(z, shape[0], axis=0))
        rows = svm.Constraints(jnp.asarray(differences.reshape(*shape, 5)), queries, targets=b, penalty=penalty)
        values.append(svm.solve(rows, norm))
    assert values[0].status == values[1].status == svm.Status.OPTIMAL
    np.testing.assert_allclose(values[0].primal, values[1].primal, rtol=1e-8)


@pytest.mark.parametrize("norm", [norms.nuclear, norms.spectral, norms.schatten(1.5)], ids=lambda norm: norm.name)
def test_a_bound_by_the_range_is_the_value_and_other_matrices_keep_theirs(norm):
    rng = np.random.default_rng(3)
    low = np.einsum("lar,lbr->lab", *rng.normal(size=(2, 3, d, 2)))
    bound, value = of_rank(norm, norm.value, low, 2), of_each(norm.value, low)
    np.testing.assert_allclose(bound, value, rtol=1e-12)
    assert (bound >= value * (1 - 1e-14)).all()
    other = low + 1e-6 * rng.normal(size=low.shape)
    np.testing.assert_array_equal(of_rank(norm, norm.value, other, 2), of_each(norm.value, other))


def test_few_rows_are_packed_in_their_spans_and_many_are_not():
    rows = svm.Constraints(jnp.ones((1, 2, 3, d)), jnp.ones((1, 2, d)))
    (few,) = packed(rows, 1, shared=False, in_spans=True)
    assert few.rows.differences.shape == (1, 2, 3, 6)
    assert few.rows.queries.shape == (1, 2, 2)
    many = rows._replace(differences=rows.differences[..., :20])
    (same,) = packed(many, 1, shared=False, in_spans=True)
    assert same.rows is many
