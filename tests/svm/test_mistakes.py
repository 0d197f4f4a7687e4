"""What is handed to the public functions by mistake: one ValueError each that says what was expected and found."""

from typing import Any

import jax
import jaxtyping
import numpy as np
import pytest

from jaxattn import Problem, norms, tokens
from jaxattn import metrics as annotated_metrics
from jaxattn import svm as annotated
from tests import instances
from tests.instances import T, n

# Called with what its annotations forbid.
svm: Any = annotated
metrics: Any = annotated_metrics


@pytest.fixture
def unchecked():
    """As a user has it: without the tests' own checks of all annotations."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def lists() -> dict[str, Any]:
    return {name: np.asarray(array).tolist() for name, array in instances.problem().arrays.items()}


def rows() -> annotated.Constraints:
    problem = instances.problem()
    return svm.token_constraints(problem, tokens.optimal(problem))


def proposed() -> annotated.Candidate:
    differences, queries = rows()[:2]
    W = np.zeros((differences.shape[-1], queries.shape[-1]))
    return svm.Candidate(W, np.zeros(differences.shape[:-1]), np.zeros((), int))


SOLVER = "solver: expected a solver such as svm.ActiveSet.*found "
TOLERANCE = r"tolerance: expected a Tolerance such as svm.Tolerance\(gap=1e-6\), found "
CONSTRAINTS = "constraints: expected Constraints, as svm.token_constraints.*found "
PROBLEM = "problem: expected a Problem.*found "
MISTAKES = {
    "a solver's name": (lambda: svm.solve(rows(), solver="cvxpy"), SOLVER + "'cvxpy'"),
    "a solver's name in a list": (lambda: svm.solve(rows(), solver=["cvxpy"]), SOLVER + "'cvxpy'"),
    "a solver's class": (lambda: svm.solve(rows(), solver=svm.Cvxpy), SOLVER + "<class"),
    "a number as a solver": (lambda: svm.solve(rows(), solver=5), SOLVER + "5"),
    "a solver's name for a batch": (
        lambda: svm.solve_batch(jax.tree.map(lambda leaf: leaf[None], rows()), solver="cvxpy"),
        SOLVER + "'cvxpy'",
    ),
    "a problem to solve": (lambda: svm.solve(instances.problem()), CONSTRAINTS + "Problem"),
    "a problem to solve in a batch": (lambda: svm.solve_batch(instances.problem()), CONSTRAINTS + "Problem"),
    "margins of a problem": (lambda: svm.margins(instances.problem(), np.eye(5)), CONSTRAINTS + "Problem"),
    "margins of another shape": (lambda: svm.margins(rows(), np.eye(2)), r"margins: expected W \(.*found \(2, 2\)"),
    "a combination of a matrix": (lambda: svm.combination(np.eye(5), np.ones(3)), CONSTRAINTS + "ndarray"),
    "a combination with too few multipliers": (
        lambda: svm.combination(rows(), np.ones(3)),
        r"duals: expected \(.*found \(3,\)",
    ),
    "a problem to certify": (
        lambda: svm.certify(instances.problem(), "frobenius", proposed(), svm.DOUBLE),
        CONSTRAINTS + "Problem",
    ),
    "a norm to certify in that is none": (
        lambda: svm.certify(rows(), "frobenios", proposed(), svm.DOUBLE),
        "norm: expected one of.*found 'frobenios'",
    ),
    "a matrix to certify": (
        lambda: svm.certify(rows(), "frobenius", proposed().W, svm.DOUBLE),
        "candidate: expected a Candidate, found",
    ),
    "a candidate of another shape": (
        lambda: svm.certify(rows(), "frobenius", proposed()._replace(W=np.eye(2)), svm.DOUBLE),
        r"candidate: expected W \(.*found \(2, 2\)",
    ),
    "a number to certify to": (
        lambda: svm.certify(rows(), "frobenius", proposed(), 1e-6),
        TOLERANCE + "1e-06",
    ),
    "a norm to square that is none": (lambda: norms.squared("frobenios"), "norm: expected one of.*found 'frobenios'"),
    "a margin ratio of a problem": (
        lambda: metrics.margin_ratio(np.eye(5), instances.problem(), "frobenius", None),
        "margin_ratio: expected constraints of svm, found Problem",
    ),
    "a margin ratio without a solution": (
        lambda: metrics.margin_ratio(np.eye(5), rows(), "frobenius", np.eye(5)),
        "margin_ratio: expected solution of svm, found ndarray",
    ),
    "a problem to make soft": (lambda: svm.soft(instances.problem()), CONSTRAINTS + "Problem"),
    "a list of constraints": (lambda: svm.solve_batch([rows(), rows()]), CONSTRAINTS + "list"),
    "nothing": (lambda: svm.solve(None), CONSTRAINTS + "NoneType"),
    "lists in constraints": (
        lambda: svm.solve(svm.Constraints(rows().differences.tolist(), rows().queries.tolist())),
        "constraints: expected differences to be an array, found list",
    ),
    "nothing in constraints": (
        lambda: svm.solve(svm.Constraints(rows().differences, None)),
        "constraints: expected queries to be an array, found NoneType",
    ),
    "lists for a problem": (lambda: svm.token_constraints(lists()["X"], [0] * n), PROBLEM + "list"),
    "a dictionary for a problem": (lambda: svm.token_constraints(lists(), [0] * n), PROBLEM + "dict"),
    "constraints for a problem": (lambda: svm.set_constraints(rows(), [[True] * T] * n), PROBLEM + "Constraints"),
    "a number as a tolerance": (lambda: svm.solve(rows(), tolerance=1e-6), TOLERANCE + "1e-06"),
    "no tolerance": (lambda: svm.solve(rows(), tolerance=0), TOLERANCE + "0"),
    "a number as a tolerance for a batch": (
        lambda: svm.solve_batch(jax.tree.map(lambda leaf: leaf[None], rows()), tolerance=1e-6),
        TOLERANCE + "1e-06",
    ),
    "a name for a number of starts": (
        lambda: svm.LowRank(starts="a"),
        "LowRank: expected at least one start, found 'a'",
    ),
    "a chunk of no problem": (
        lambda: svm.solve_batch(jax.tree.map(lambda leaf: leaf[None], rows()), chunk=0),
        "chunk: expected at least 1, found 0",
    ),
    "a chunk of half a problem": (
        lambda: svm.solve_batch(jax.tree.map(lambda leaf: leaf[None], rows()), chunk=0.5),
        "chunk: expected an integer, found 0.5",
    ),
    "a solver that returns a matrix": (
        lambda: svm.solve(rows(), solver=lambda constraints, norm: np.eye(5)),
        "solver: expected .* to return a Candidate of shapes .*found ndarray",
    ),
    "a solver that returns another shape": (
        lambda: svm.solve(rows(), solver=lambda constraints, norm: svm.Candidate(np.eye(4), np.ones((n, T - 1)), 0)),
        r"solver: expected .*'W': \(5, 5\).*found .*'W': \(4, 4\)",
    ),
    "numbers for a list": (lambda: svm.listed(5, 5), "differences: expected a list of groups.*found int"),
    "nothing for a list": (lambda: svm.listed(None, np.eye(2)), "differences: expected a list of groups.*found None"),
    "a list of numbers": (lambda: svm.listed([1, 2], np.eye(2)), "listed: expected queries"),
    "a batch of problems": (
        lambda: svm.token_constraints(instances.problems(2), [0] * n),
        r"problem: expected one, with X of shape \(n, T, d\), found X of shape \(2,.*use jax.vmap",
    ),
    "sets of a batch of problems": (
        lambda: svm.set_constraints(instances.problems(2), [[True] * T] * n),
        "problem: expected one, with X",
    ),
    "a ragged alpha": (lambda: svm.token_constraints(instances.problem(), [[0], [1, 2]]), "alpha: expected an array"),
    "ragged sets": (lambda: svm.set_constraints(instances.problem(), [[True], []]), "selected: expected an array"),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.usefixtures("unchecked")
def test_a_mistake_is_one_error(name):
    call, message = MISTAKES[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_lists_are_taken_for_arrays():
    problem = instances.problem()
    alpha = np.asarray(tokens.optimal(problem))
    jax.tree.map(
        np.testing.assert_array_equal,
        svm.token_constraints(Problem(**lists()), alpha.tolist()),
        svm.token_constraints(problem, alpha),
    )
    selected = np.eye(T, dtype=bool)[alpha]
    logits = np.zeros((n, T))
    jax.tree.map(
        np.testing.assert_array_equal,
        svm.finite_constraints(problem, selected.tolist(), logits.tolist()),
        svm.finite_constraints(problem, selected, logits),
    )
