"""Optimizers with moments that are blind to the gradient's scale: exact however small the gradient is, or refused."""

from dataclasses import replace
from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxattn import descent, metrics
from jaxattn.descent.hyperparameters import shared
from jaxattn.descent.moment_rescaling import Rescaled, rescaled
from jaxattn.problem import every_prefix
from tests import instances
from tests.descent.test_gradients import exactly
from tests.instances import assert_close, slow

pytestmark = pytest.mark.compiled

STEPS = 60
ADAM = descent.ScaleFree(*optax.adam(0.5, eps=0.0))
GIVEN = {"optimizer": ADAM, "steps": STEPS, "snapshots": range(1, STEPS + 1)}
# Logits of some 10^5.
FAR = {"free": 3e5 * instances.free(), "factored": jax.tree.map(lambda leaf: 550.0 * leaf, instances.factored(m=2))}


def slopes(weights, problem):
    """The gradient of the logistic risk with respect to W, or K and Q, in 60 digits and any exponent."""
    if len(weights) == 1:
        return [exactly(weights[0], problem)]
    K, Q = weights
    G = exactly(K @ Q.T, problem)
    return [G @ Q, G.T @ K]


def adam(start, problem, steps, rate, b1, b2):
    """The weights after every step of Adam with eps = 0, and the logarithm of the last gradient's largest entry."""
    rate, b1, b2 = map(Decimal, (rate, b1, b2))
    weights = [np.vectorize(Decimal, otypes=[object])(np.asarray(leaf)) for leaf in jax.tree.leaves(start)]
    m = nu = [0 * leaf for leaf in weights]
    kept, slope = [], weights
    root = np.vectorize(Decimal.sqrt, otypes=[object])
    for k in range(1, steps + 1):
        slope = slopes(weights, problem)
        m = [b1 * old + (1 - b1) * g for old, g in zip(m, slope, strict=True)]
        nu = [b2 * old + (1 - b2) * g * g for old, g in zip(nu, slope, strict=True)]
        moments = zip(weights, m, nu, strict=True)
        weights = [w - rate * (a / (1 - b1**k)) / root(b / (1 - b2**k)) for w, a, b in moments]
        kept.append([leaf.astype(float) for leaf in weights])
    return kept, float(max(abs(entry) for leaf in slope for entry in leaf.ravel()).ln())


def test_a_state_may_hold_plain_numbers():
    optimizer = optax.optimistic_adam_v2(0.1, eps=0.0)  # It holds a bool.
    start, problem = instances.free(), instances.problem()
    run, plain = (
        descent.train(start, problem, optimizer=one, steps=20) for one in (descent.ScaleFree(*optimizer), optimizer)
    )
    assert_close(run.weights, plain.weights, rtol=1e-9)


# The gradient falls at most like sqrt(b2)^k: a short memory goes below all doubles from a usual start, too.
@pytest.mark.parametrize(
    ("start", "steps", "rate", "b1", "b2"),
    [
        (FAR["factored"], STEPS, 0.5, 0.9, 0.999),
        slow(instances.free(), 1100, 0.5, 0.6, 0.36),
        slow(FAR["free"], STEPS, 0.5, 0.9, 0.999),
        slow(instances.factored(m=2), 1100, 0.5, 0.6, 0.36),
    ],
)
def test_adam_is_adam_of_60_digits_where_the_gradient_is_below_all_doubles(start, steps, rate, b1, b2):
    problem = instances.problem()
    expected, log_size = adam(start, problem, steps, rate, b1, b2)
    assert log_size < -800  # 1e-308 is exp(-709).
    rule = descent.ScaleFree(*optax.adam(rate, b1, b2, eps=0.0))
    run = descent.train(start, problem, optimizer=rule, steps=steps, snapshots=range(1, steps + 1))
    assert run.gradient_norm[-1] == 0
    for number, leaf in enumerate(jax.tree.leaves(run.snapshots)):
        exact = np.stack([weights[number] for weights in expected])
        np.testing.assert_allclose(leaf, exact, rtol=0, atol=1e-12 * np.abs(exact).max())
        # They have gone somewhere.
        moved = np.abs(exact[-1] - np.asarray(jax.tree.leaves(start)[number])).max()
        assert moved > 1


OPTIMIZERS = {
    "adam": (optax.adam(0.1, eps=0.0), (0, 1, 2)),
    "rmsprop": (optax.rmsprop(0.1, eps=0.0, momentum=0.9), (2, 0)),
    "lion": (optax.lion(0.1), (0, 1)),
    "after clipping": (optax.chain(optax.clip_by_global_norm(1.0), optax.sign_sgd(0.1)), None),
    "without moments": (optax.sign_sgd(0.1), None),
}


def begun(rule):
    return rescaled(*shared(rule, instances.free()), instances.free())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_powers_of_the_scale_are_found(name):
    rule, powers = OPTIMIZERS[name]
    state = jax.tree.leaves(rule.init(instances.free()))
    _, found = begun(rule)
    assert powers == (found.powers[: len(state)] if isinstance(found, Rescaled) else None)
    # The numbers of the optimizer, which come next in its state, do not change.
    assert not isinstance(found, Rescaled) or not any(found.powers[len(state) :])


@pytest.mark.parametrize("name", [name if name == "adam" else slow(name) for name in OPTIMIZERS])
def test_the_steps_are_those_for_the_gradient_itself(name):
    # Causal attention: inputs that do not see all tokens.
    one = instances.problem()
    problem = every_prefix(one.X[:2], jnp.array([[1.0, -1.0, 1.0, 1.0], [-1.0, 1.0, 1.0, -1.0]]), one.v)
    ours, theirs = (
        descent.train(instances.free(), problem, optimizer=kind(*OPTIMIZERS[name][0]), steps=20)
        for kind in (descent.ScaleFree, descent.Exact)
    )
    assert_close(ours.weights, theirs.weights)


def test_the_scale_of_one_lane_does_not_show_in_another():
    start = jnp.moveaxis(instances.free()[None], 0, -1)
    init, update = begun(optax.adam(0.1, eps=0.0))

    def moves(log_scales):
        """The moves of a lane for gradients of these scales, one row a lane."""
        weights = jnp.repeat(start, len(log_scales), axis=-1)
        state = jax.tree.map(lambda leaf: jnp.repeat(leaf[..., None], len(log_scales), axis=-1), init(start[..., 0]))
        found = []
        for scales in jnp.asarray(log_scales).T:
            move, state = update(weights, state, weights, scales)
            found.append(move)
        return np.stack(found), state.exponent

    falling = [0.0, -500.0, -1000.0]
    together, exponents = moves([falling, [0.0, -1.0, -2.0]])
    np.testing.assert_array_equal(exponents == 0, [False, True])
    for lane, scales in enumerate((falling, [0.0, -1.0, -2.0])):  # Twice, so that nothing else is compiled.
        np.testing.assert_array_equal(together[..., lane], moves([scales] * 2)[0][..., 0])


def by_decomposition(G):
    U, _, Vt = jnp.linalg.svd(G, full_matrices=False)
    return -0.03 * U @ Vt


def by_inverse_root(G):
    """Shampoo's step from one gradient, whose roots are those of eigenvalues."""
    values, vectors = jnp.linalg.eigh(G @ G.T)
    return -0.03 * (vectors * values[None] ** -0.5) @ vectors.T @ G


@pytest.mark.parametrize("step", [by_decomposition, by_inverse_root])
def test_a_step_that_rounds_otherwise_at_another_scale_is_taken(step):
    rule = optax.stateless_with_tree_map(lambda G, _: step(G))
    assert begun(rule) == shared(rule, instances.free())


def as_logged():
    """Signs of the gradient, with a state that follows no power of it."""

    def update(updates, state, params=None):
        return jax.tree.map(jnp.sign, updates), {"log": jnp.log(1 + metrics.norm(updates))}

    return optax.GradientTransformation(lambda params: {"log": jnp.zeros(())}, update)


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        *(
            (rule, "a step that changes with it")
            for rule in (
                optax.adam(0.1),
                optax.adam(0.1, eps=1e-100),
                optax.sgd(0.1, momentum=0.9),
                optax.adagrad(0.1, eps=0.0),
                optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1, eps=0.0)),
                optax.contrib.muon(0.03),
                optax.yogi(0.01),
                optax.adafactor(0.01),
            )
        ),
        (as_logged(), r"a state whose \['log'\] follows no power of it"),
    ],
)
def test_a_rule_that_looks_at_the_length_is_refused(rule, found):
    with pytest.raises(
        ValueError, match=rf"^optimizer: expected one that is blind to the gradient's scale.*found {found}.*Exact"
    ):
        descent.train(instances.free(), instances.problem(), optimizer=descent.scale_free(rule), steps=2)


def test_an_entry_that_never_has_a_gradient_does_not_move():
    one, W = instances.problem(), FAR["free"]
    run = descent.train(W, replace(one, Z=one.Z.at[:, 2].set(0.0)), **GIVEN)
    moved = np.asarray(run.weights) - np.asarray(W)
    np.testing.assert_array_equal(moved[:, 2], 0)
    assert np.isfinite(moved).all()
    assert (np.abs(moved)[:, :2] > 0.5).all()


def test_single_precision_follows_double():
    W = 3e4 * instances.free()
    double = descent.train(W, instances.problem(), **GIVEN)
    start, problem = instances.single((W, instances.problem()))
    single = descent.train(start, problem, **GIVEN)
    assert double.gradient_norm[-1] < 1e-48
    assert single.gradient_norm[-1] == 0
    assert single.weights.dtype == np.float32
    assert_close(single.weights - start, double.weights - W, rtol=1e-3)
