"""The certificate: it accepts what is optimal or infeasible, and nothing else, whoever proposes it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxattn import svm
from jaxattn.svm import Candidate, Status
from tests import instances
from tests.instances import NUMPY_NORMS, assert_close, assert_not_certified
from tests.svm import constructed

NORMS = {"frobenius": svm.frobenius, "nuclear": svm.nuclear}
KNOWN = {"frobenius": constructed.frobenius(0), "nuclear": constructed.nuclear(0)}
RNG = np.random.default_rng(0)


def certified(name, W, duals, tolerance=svm.DOUBLE, constraints=None) -> svm.Solution:
    candidate = Candidate(jnp.asarray(W), jnp.asarray(duals), jnp.asarray(7))
    return svm.certify(constraints or KNOWN[name].constraints, NORMS[name], candidate, tolerance)


@pytest.fixture(params=NORMS)
def norm(request):
    return request.param


@pytest.mark.parametrize(("w", "a"), [(1.0, 1.0), (3e-5, 1.0), (1.0, 4e7), (2e9, 1e-9)])
def test_a_known_solution_of_any_length_is_certified(norm, w, a):
    known = KNOWN[norm]
    solution = certified(norm, w * known.W, a * known.duals)
    assert Status(int(solution.status)) is Status.OPTIMAL
    assert_close(solution.W, known.W, rtol=1e-11)
    assert_close(solution.duals, known.duals, rtol=1e-11)
    np.testing.assert_allclose([solution.primal, solution.dual], known.value, rtol=1e-11)
    assert abs(solution.gap) < 1e-11
    assert solution.violation < 1e-11
    assert solution.iterations == 7


def test_the_evidence_is_what_numpy_computes_from_the_numbers_returned(norm):
    # Of an unfinished candidate, where primal and dual value differ.
    known, (value, dual_value) = KNOWN[norm], NUMPY_NORMS[norm]
    solution = certified(norm, known.W + 0.02 * RNG.normal(size=known.W.shape), known.duals + 0.05)
    A, W, a = instances.matrices(known.constraints), np.asarray(solution.W), np.asarray(solution.duals)
    np.testing.assert_allclose(np.einsum("nmde,de->nm", A, W).min(), 1, rtol=1e-12)
    np.testing.assert_allclose(solution.primal, value(W), rtol=1e-12)
    np.testing.assert_allclose(solution.dual, a.sum(), rtol=1e-12)
    np.testing.assert_allclose(solution.dual, a.sum() / dual_value(np.einsum("nm,nmde->de", a, A)), rtol=1e-12)
    np.testing.assert_allclose(solution.gap, 1 - solution.dual / solution.primal, rtol=1e-10)
    assert solution.dual < known.value < solution.primal
    assert_not_certified(solution)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda W: W + 1e-3 * RNG.normal(size=W.shape),
        lambda W: -W,
        lambda W: 0 * W,
        lambda W: W.T,
        lambda W: W + 10 * np.eye(len(W)),
    ],
    ids=["nearby", "opposite", "zero", "transposed", "shifted"],
)
def test_a_wrong_matrix_is_not_certified_by_right_multipliers(norm, wrong):
    assert_not_certified(certified(norm, wrong(KNOWN[norm].W), KNOWN[norm].duals))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda a: a + 1e-3 * RNG.uniform(size=a.shape),
        lambda a: np.ones_like(a),
        lambda a: 0 * a,
        lambda a: -a,
        lambda a: a[::-1],
    ],
    ids=["nearby", "uniform", "zero", "negative", "reordered"],
)
def test_the_right_matrix_is_not_certified_by_wrong_multipliers(norm, wrong):
    assert_not_certified(certified(norm, KNOWN[norm].W, wrong(KNOWN[norm].duals)))


def test_multipliers_of_either_sign_prove_nothing():
    # The least-norm W with all margins equal to 1 satisfies every constraint, and multipliers of either sign
    # would close its gap: those of the equalities.
    known = KNOWN["frobenius"]
    A = instances.matrices(known.constraints).reshape(9, 25)
    signed = np.linalg.solve(A @ A.T, np.ones(9))
    assert signed.min() < 0
    W = (signed @ A).reshape(5, 5)
    np.testing.assert_allclose(np.linalg.norm(W), signed.sum() / np.linalg.norm(signed @ A), rtol=1e-10)
    assert np.linalg.norm(W) > known.value * 1.01
    solution = certified("frobenius", W, signed.reshape(3, 3))
    assert_not_certified(solution)
    assert solution.dual <= known.value
    assert np.min(solution.duals) >= 0


def test_the_solution_of_one_norm_is_not_certified_for_the_other(norm):
    other = "nuclear" if norm == "frobenius" else "frobenius"
    solution = svm.solve(KNOWN[norm].constraints, norm=other)
    assert_not_certified(certified(norm, solution.W, solution.duals))


def test_a_matrix_that_violates_a_constraint_has_no_primal_value(norm):
    solution = certified(norm, -KNOWN[norm].W, KNOWN[norm].duals)
    assert solution.primal == solution.gap == np.inf
    assert solution.violation > 0


def test_the_gap_decides_at_its_tolerance(norm):
    # A matrix a little off: its gap is measured, and limits just above and just below it are tried.
    known = KNOWN[norm]
    W, a = known.W + 1e-6 * RNG.normal(size=known.W.shape), known.duals
    gap = float(certified(norm, W, a).gap)
    assert gap > 1e-8
    for share, status in ((1.01, Status.OPTIMAL), (0.99, Status.NOT_CONVERGED)):
        assert certified(norm, W, a, svm.Tolerance(gap=share * gap)).status == status


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", ["W", "duals"])
def test_a_candidate_with_nan_or_infinity_proves_nothing(norm, number, place):
    W, duals = KNOWN[norm].W.copy(), KNOWN[norm].duals.copy()
    (W if place == "W" else duals).flat[3] = number
    solution = certified(norm, W, duals)
    assert_not_certified(solution)
    np.testing.assert_array_equal(solution.W, 0)
    np.testing.assert_array_equal(solution.duals, 0)


@pytest.mark.parametrize(("part", "call"), [("value", 1), ("dual", 1), ("dual", 2), ("dual", 3)])
def test_a_norm_that_could_not_be_computed_proves_nothing(norm, part, call):
    """As where a decomposition of LAPACK's fails, which gives NaN: `certify` takes one value and three dual norms."""
    known, calls = KNOWN[norm], []

    def lost(W):
        calls.append(W)
        return jnp.asarray(jnp.nan) if len(calls) == call else getattr(NORMS[norm], part)(W)

    candidate = Candidate(jnp.asarray(known.W), jnp.asarray(known.duals), jnp.asarray(0))
    failing = replace(NORMS[norm], name="failing", **{part: lost})
    solution = svm.certify(known.constraints, failing, candidate, svm.DOUBLE)
    assert len(calls) == (1 if part == "value" else 3)
    assert Status(int(solution.status)) is Status.NOT_CONVERGED
    assert not any(np.isnan(leaf).any() for leaf in solution)


@pytest.mark.slow
def test_a_bad_lane_leaves_the_others_alone(norm):
    W, duals, constraints = KNOWN[norm].W, KNOWN[norm].duals, KNOWN[norm].constraints
    lanes = Candidate(jnp.stack([W, W * np.nan, -W]), jnp.stack([duals] * 3), jnp.zeros(3, int))
    solutions = jax.jit(jax.vmap(lambda one: svm.certify(constraints, NORMS[norm], one, svm.DOUBLE)))(lanes)
    assert list(solutions.status) == [Status.OPTIMAL, Status.NOT_CONVERGED, Status.NOT_CONVERGED]
    lone = certified(norm, W, duals)._replace(iterations=jnp.asarray(0))
    assert_close(instances.lane(solutions, 0)._replace(gap=0, violation=0), lone._replace(gap=0, violation=0))
    assert not any(np.isnan(leaf).any() for leaf in solutions)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(NORMS)), st.integers(0, 2**31 - 1))
def test_any_multipliers_bound_the_value_from_below_and_any_separator_from_above(name, seed):
    rng, known = np.random.default_rng(seed), KNOWN[name]
    W = known.W + rng.uniform(0, 3) * rng.normal(size=known.W.shape)
    duals = rng.exponential(size=known.duals.shape) * rng.integers(0, 2, size=known.duals.shape)
    solution = certified(name, W, duals)
    assert 0 <= solution.dual <= known.value * (1 + 1e-12) <= solution.primal * (1 + 2e-12)
    assert solution.status != Status.INFEASIBLE


@pytest.mark.parametrize("kind", instances.INFEASIBLE)
def test_a_right_combination_to_zero_is_a_proof_of_infeasibility_and_a_wrong_one_is_not(norm, kind):
    constraints, duals = instances.INFEASIBLE[kind]()
    assert np.abs(np.einsum("nm,nmde->de", duals, instances.matrices(constraints))).max() < 1e-15
    zero = np.zeros((5, 5))
    solution = certified(norm, zero, 5 * duals, constraints=constraints)
    assert Status(int(solution.status)) is Status.INFEASIBLE
    assert_close(solution.duals, duals / duals.sum())
    assert solution.primal == solution.gap == np.inf
    # Rounded tokens are combined to zero up to rounding: so far is a W excluded, and no farther.
    assert 1e13 < solution.dual < np.inf
    np.testing.assert_array_equal(solution.W, zero)
    nearly = duals.copy()
    nearly[1, 2] += 1e-9
    assert_not_certified(certified(norm, zero, nearly, constraints=constraints))
    assert_not_certified(certified(norm, np.eye(5), 0 * duals, constraints=constraints))


def test_a_token_to_be_told_from_its_copy_is_infeasible(norm):
    differences = KNOWN[norm].constraints.differences.at[1, 1].set(0.0)
    constraints = KNOWN[norm].constraints._replace(differences=differences)
    proof = np.zeros((3, 3))
    proof[1, 1] = 1.0
    assert certified(norm, KNOWN[norm].W, proof, constraints=constraints).status == Status.INFEASIBLE
    assert_not_certified(certified(norm, KNOWN[norm].W, KNOWN[norm].duals, constraints=constraints))


def test_every_status_has_a_sentence():
    for status in Status:
        assert status.message.startswith(status.name.lower().replace("_", " "))
