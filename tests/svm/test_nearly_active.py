"""Problems of many rows, solved by the few that carry the solution, have the solution of all rows."""

from functools import partial
from typing import Any

import jax
import numpy as np

from jaxattn import svm
from jaxattn.svm import InteriorPoint, Status, batch_solver
from jaxattn.svm.solution import Candidate
from jaxattn.svm.solvers import nearly_active
from tests import instances
from tests.svm.test_working_set import drawn, flat, mixed, repeated, uneven


def as_batch(rows: svm.Constraints) -> Any:
    return jax.tree.map(lambda leaf: leaf[None], rows)


def test_problems_of_all_kinds_have_the_same_solutions(monkeypatch):
    problems = instances.stacked([kind(seed) for kind in (drawn, uneven, repeated, mixed, flat) for seed in (0, 1)])
    expected = svm.solve_batch(problems, "nuclear")
    monkeypatch.setattr(batch_solver, "_MOST", 1)
    found = svm.solve_batch(problems, "nuclear")
    np.testing.assert_array_equal(found.status, expected.status)
    optimal = expected.status == Status.OPTIMAL
    assert 6 <= optimal.sum() < 10
    assert set(expected.status[~optimal]) == {Status.INFEASIBLE}
    np.testing.assert_allclose(found.primal[optimal], expected.primal[optimal], rtol=1e-8)


def test_most_rows_are_never_solved(monkeypatch):
    rows, counts = as_batch(drawn(0, n=16, T=33, d=12)), []
    expected = svm.solve_batch(rows, "nuclear")
    monkeypatch.setattr(batch_solver, "_MOST", 1)
    monkeypatch.setattr(nearly_active, "solved", partial(counted, nearly_active.solved, counts))
    found = svm.solve_batch(rows, "nuclear")
    assert found.status.tolist() == [Status.OPTIMAL]
    np.testing.assert_allclose(found.primal, expected.primal, rtol=1e-8)
    assert 2 <= len(counts) <= 8
    assert max(counts) < 0.4 * rows.present.sum()


def counted(solved: Any, counts: list[int], improve: Any, *given: Any) -> Candidate:
    """Note how many rows each attempt solves."""

    def counting(some: Any, *rest: Any) -> Candidate:
        counts.append(int(some.present.sum()))
        return improve(some, *rest)

    return solved(counting, *given)


def test_rows_that_the_first_ones_do_not_suggest_are_added():
    rows: Any = as_batch(drawn(3))
    expected, start = (svm.solve_batch(rows, norm) for norm in ("nuclear", "frobenius"))
    one: Any = np.where(start.duals == start.duals.max(), start.duals, 0.0)
    counts = []

    def improve(some: Any, solver: InteriorPoint, first: Candidate) -> Candidate:
        answer = svm.solve_batch(some, "nuclear", solver=solver)
        return Candidate(answer.W, answer.duals, first.iterations + answer.iterations)

    first = Candidate(start.W, one, start.iterations)
    found = counted(nearly_active.solved, counts, improve, rows, InteriorPoint(), first)
    np.testing.assert_allclose(np.linalg.norm(found.W[0], "nuc"), expected.primal[0], rtol=1e-7)
    assert counts[0] == 1
    assert found.iterations > start.iterations
