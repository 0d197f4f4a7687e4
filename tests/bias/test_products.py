"""Products of norms of K and Q: the least one by hand, its bounds, planted factors, and bad input."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import bias, norms, svm
from jaxattn.attention import Factored
from jaxattn.bias import products
from jaxattn.bias.checkpoints import as_run
from tests import instances
from tests.instances import assert_close
from tests.svm.problems import one_row

SEEDS = 8
U, Z = np.array([3.0, -4.0, 0.0]), np.array([1.0, 2.0, 0.0])
# For one row A = u z^T and m = 5: the largest <A, K Q^T> with factors of norm 1.
BY_HAND = {
    ("frobenius", "frobenius"): 5.0 * 5**0.5,
    ("frobenius", "spectral"): 5.0 * 5**0.5,
    ("frobenius", "max"): 5.0 * 3.0 * 5**0.5,
    ("max", "frobenius"): 7.0 * 5**0.5 * 5**0.5,
    ("max", "max"): 7.0 * 3.0 * 5,
    ("2,inf", "2,inf"): 7.0 * 3.0,
}


@pytest.mark.parametrize("pair", BY_HAND)
def test_one_row_by_hand(pair):
    rows = instances.stacked([one_row(U, Z)] * SEEDS)
    of_K, of_Q = map(norms.named, pair)
    expected = np.full(SEEDS, 1 / BY_HAND[pair])
    assert_close(products._bound(rows, of_K, of_Q, 5), expected, rtol=1e-6)
    # From random factors the alternation may end above it, but not from the best Q, here in the last lane.
    Q, z = np.random.default_rng(0).normal(size=(SEEDS, 5, 5)), np.array([*Z, 0.0, 0.0])
    best = {"max": np.outer(np.sign(z), np.ones(5)), "2,inf": np.outer(np.sign(z), np.eye(5)[0])}
    Q[-1] = best.get(pair[1], np.outer(z, np.ones(5)))
    found = products._lowered(rows, Q, of_K, of_Q)
    assert (found >= expected * (1 - 1e-6)).all()
    assert_close(found[-1], expected[-1], rtol=1e-6)


def test_factors_of_a_solution_obey_the_product_that_it_attains(monkeypatch):
    """The Frobenius solution is K with Q the identity, of spectral norm 1."""
    # Enough to tell the products apart, not to settle.
    monkeypatch.setattr(products, "_MOST", 5)
    W = np.asarray(svm.solve_batch(instances.constraints(SEEDS), "frobenius").W)
    sizes = np.array([10.0, 30.0, 100.0])[None, :, None, None]
    eye = jnp.broadcast_to(jnp.eye(W.shape[-1]), (SEEDS, 3, *W.shape[1:]))
    factors = Factored(jnp.asarray(sizes * W[:, None]), eye)
    run = as_run(factors, np.array([100, 300, 1000]))
    found = bias.rank_factors(run, instances.problems(SEEDS), "frobenius", "spectral", starts=1)
    assert_close(found.at_least, np.ones((SEEDS, 3)), rtol=1e-6)
    assert_close(found.at_most, np.ones((SEEDS, 3)), rtol=1e-6)
    assert found.verdict.norms == ("frobenius of K and spectral of Q",)
    other = bias.rank_factors(run, instances.problems(SEEDS), "spectral", "frobenius", starts=0)
    assert other.at_most.max() < 0.97
    assert str(other.verdict) == "none of these"


def test_other_weights_are_refused():
    run = as_run(np.ones((SEEDS, 2, 5, 5)), (1, 2))
    with pytest.raises(ValueError, match=r"^run: expected one that trained attention.Factored\(K, Q\)"):
        bias.rank_factors(run, instances.problems(SEEDS), "max", "max")


def test_a_negative_number_of_starts_is_refused_before_anything_is_solved(monkeypatch):
    monkeypatch.setattr(svm, "solve_batch", None)
    run = as_run(Factored(*jnp.ones((2, SEEDS, 2, 5, 5))), np.array([1, 2]))
    with pytest.raises(ValueError, match=r"^starts: expected at least 0, found -1"):
        bias.rank_factors(run, instances.problems(SEEDS), "max", "max", starts=-1)


def test_factors_without_a_direction_are_refused_before_anything_is_solved(monkeypatch):
    """As LoRA starts: K is zero, and Q is not."""
    monkeypatch.setattr(svm, "solve_batch", None)
    Q = jnp.ones((SEEDS, 2, 5, 5))
    K = Q.at[:, 0].set(0.0)
    with pytest.raises(ValueError, match=r"^run: expected weights with a direction at .*, found zeros at step 0"):
        bias.rank_factors(as_run(Factored(K, Q), (0, 1)), instances.problems(SEEDS), "max", "max")


def test_without_a_known_bound_the_run_is_compared_from_one_side(monkeypatch):
    monkeypatch.setattr(products, "_MOST", 1)
    Q, rows = np.random.default_rng(0).normal(size=(SEEDS, 5, 5)), instances.constraints(SEEDS)
    assert (products._bound(rows, norms.named("l_3"), norms.frobenius, 2) == 0).all()
    assert (products._lowered(rows, Q, norms.named("l_3"), norms.frobenius) > 0).all()
