"""Every configured optimizer: its steps by hand, its lanes, and where it ends; and what single rules do beyond that."""

from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import attention, bias, descent, losses, norms
from jaxattn.descent.hyperparameters import shared
from jaxattn.descent.moment_rescaling import Rescaled, rescaled
from jaxattn.descent.optimizers import length_of
from jaxattn.study.configuration import composition
from tests import instances
from tests.descent.cases import CONFIGURED, STEPS, configured, reference
from tests.instances import assert_close, d, slow

# Rules that do not look at the length of the gradient.
NEVER_STALL = ["adam", "falling_polar", "falling_sign", "lion", "mirror"]
NEVER_STALL += ["momentum", "muon", "polar", "rmsprop", "sign"]
# `polyak` steps by the risk, which only its experiment has.
NAMES = sorted(set(CONFIGURED) - {"polyak"})
FREE = ["adam", "falling_polar", "gd", "lp_gd", "mirror", "momentum"]
FREE += ["muon", "normalized_gd", "scale_free_gd", "sign"]
DEFAULT = {"free": FREE, "factored": ["falling_gd", "normalized_gd", "relative_joint_gd"]}


def battery(names, kinds=tuple(DEFAULT), rarer=()):
    """Each optimizer on each kind of weights, most of them among the slow tests."""
    each = [(name, kind) for kind in kinds for name in names]
    marked = [(name, kind) if name in DEFAULT[kind] and name not in rarer else slow(name, kind) for name, kind in each]
    return pytest.mark.parametrize(("name", "kind"), marked)


GIVEN = {"steps": 4000, "snapshots": (1, STEPS, 3000, 4000), "record_every": 1000}
# After their first step the softmax has saturated, and automatic differentiation gives rounding errors.
LONG = ("long_first_gd", "mirror")
NORMS = ("frobenius", "nuclear", "spectral", "max", "l1", "l_1.5", "l_3", "schatten_1.5", "schatten_4")
NORMS += ("2,inf", "2,1", "2,inf of columns", "2,1 of columns", "gamma2")
G = jax.random.normal(jax.random.key(1), (d, d))
TALL = G[:, :4]


STARTS = {
    "free": jnp.stack([jnp.zeros((d, d)), instances.free(1)]),
    "factored": instances.stacked([instances.factored(i) for i in range(2)]),
}


risk_and_slope = jax.jit(jax.value_and_grad(losses.risk))


@cache
def alone(name, kind, i, v=1.0) -> Any:
    """A lone run of the i-th problem, its head multiplied by a number."""
    problem = instances.problem(i)
    start = instances.lane(STARTS[kind], i)
    return descent.train(start, replace(problem, v=v * problem.v), optimizer=configured(name), **GIVEN)


@battery(NAMES)
def test_its_steps_are_those_by_hand(name, kind):
    run, problem, start = alone(name, kind, 1), instances.problem(1), instances.lane(STARTS[kind], 1)
    expected = reference(configured(name), start, problem)
    for k, step in enumerate((1, STEPS)[: 1 if name in LONG else 2]):
        assert_close(instances.lane(run.snapshots, k), expected[step], rtol=1e-9)
    risk, slope = risk_and_slope(start, problem)
    assert_close(run.gradient_norm[0], length_of(slope, 0), rtol=1e-9)
    assert_close(run.loss[0], risk)


@battery(NAMES, rarer=set(NAMES) - {"adam", "mirror"})
def test_a_lane_is_a_lone_run(name, kind):
    together = descent.train_batch(STARTS[kind], instances.problems(2), optimizer=configured(name), **GIVEN)
    for i in range(2):
        runs = instances.lane(together, i), alone(name, kind, i)
        for k in range(2):  # Later steps may amplify the last digit.
            assert_close(*(instances.lane(run.snapshots, k) for run in runs), rtol=1e-9)


@battery(NAMES, ["free"])  # A penalty moves factors.
def test_a_gradient_of_zero_gives_no_step(name, kind):
    still = alone(name, kind, 1, v=0.0)
    assert_close(still.weights, instances.lane(STARTS[kind], 1), rtol=1e-14)
    assert still.stalled == (-1 if isinstance(configured(name), descent.ScaleFree) else 0)


@battery(NEVER_STALL)
def test_a_rule_that_is_blind_to_the_scale_goes_on_for_thousands_of_steps(name, kind):
    """In the last thousand of 4,000 steps, where the gradient of a naive form is rounding, W still grows."""
    run = alone(name, kind, 0)
    before, after = np.linalg.norm(np.asarray(attention.matrix(run.snapshots))[2:], axis=(1, 2))
    assert int(run.stalled) == -1
    assert float(run.probability[-1]) > 0.99
    assert after > (1.005 if name == "adam" else 1.05) * before


@pytest.mark.parametrize("name", NEVER_STALL)
def test_it_is_blind_and_keeps_single_precision(name):
    rule = configured(name)
    assert isinstance(rule, descent.ScaleFree)
    W = jax.ShapeDtypeStruct((d, d), np.dtype(np.float32))
    state = jax.eval_shape(rule.init, W)
    assert jax.eval_shape(rule.update, W, state, W) == (W, state)


def test_every_configuration_is_an_optimizer():
    assert all(hasattr(configured(name), "update") for name in CONFIGURED)


@pytest.mark.parametrize("name", [name if name == "adam" else slow(name) for name in NEVER_STALL])
def test_the_command_line_takes_it(name):
    # As `jaxattn train` does before it trains: composed, traced, and its blindness to the scale tried out.
    composition.check([[f"optimizer={name}", "weights=factored", "data.n=3", "data.T=4", "data.d=5", "steps=20"]])


def moves(optimizer: Any, gradients, start=None):
    """The moves for some gradients, one after the other."""
    W = jax.tree.map(jnp.zeros_like, gradients[0]) if start is None else start
    state, kept = optimizer.init(W), []
    for gradient in gradients:
        move, state = optimizer.update(gradient, state, W)
        W = jax.tree.map(jnp.add, W, move)
        kept.append(move)
    return kept


def lengths(trees):
    return np.array([length_of(tree, 0) for tree in trees])


def test_a_step_can_be_a_schedule_of_optax_on_the_command_line():
    decay = "{_target_:optax.exponential_decay,init_value:0.1,transition_steps:10,decay_rate:0.5}"
    setting: Any = composition.setting_of(composition.compose(["optimizer=sign", f"optimizer.step={decay}"]))
    taken = [float(jnp.abs(move).max()) for move in moves(setting.optimizer, [G] * 11)]
    # Optax reckons them in single precision.
    np.testing.assert_allclose([taken[0], taken[10]], [0.1, 0.05], rtol=1e-6)


@pytest.mark.parametrize(
    "make", [lambda step: descent.steepest("frobenius", step), lambda step: descent.mirror(2.0, step)]
)
def test_a_schedule_counts_the_steps(make):
    for schedule in (descent.falling_step(0.1, power=1.0), lambda k: 0.1 / (1 + k)):
        np.testing.assert_allclose(lengths(moves(make(schedule), [G] * 3)), [0.1, 0.05, 0.1 / 3], rtol=1e-10)


def test_equal_schedules_are_one_optimizer():
    one, other = (descent.steepest("max", descent.falling_step(0.1)) for _ in range(2))
    assert one is other
    np.testing.assert_allclose(descent.falling_step(0.3)(jnp.arange(3)), [0.3, 0.3 / 2**0.5, 0.3 / 3**0.5], rtol=1e-15)


def test_a_long_first_step_is_followed_by_short_ones():
    found = moves(descent.long_first_gd(0.1, first=7.0), [G, 2 * G, G])
    for move, length in zip(found, (7, 0.1, 0.1), strict=True):
        assert_close(move, -length * G / jnp.linalg.norm(G))


def test_momentum_is_that_of_the_gradient_itself():
    other = jax.random.normal(jax.random.key(2), G.shape)
    found = moves(descent.momentum(descent.steepest("frobenius", 0.1), decay=0.8), [G, other])
    heavy = 0.8 * G + other
    assert_close(found, [-0.1 * G / jnp.linalg.norm(G), -0.1 * heavy / jnp.linalg.norm(heavy)])
    found = moves(descent.momentum(descent.steepest("max", 0.1), decay=0.0), [G, other])
    assert_close(found, moves(descent.steepest("max", 0.1), [G, other]), rtol=0)


def test_the_penalty_is_added_to_the_gradient_of_factors_and_never_of_a_free_matrix():
    rule, start = descent.normalized_gd(0.1, floor=0.0, penalty=3.0), instances.factored(m=2)
    slope = attention.Factored(G[:, :2], G[:, 2:4])
    whole = jax.tree.map(lambda w, g: g + 6.0 * w, start, slope)
    assert_close(moves(rule, [slope], start)[0], jax.tree.map(lambda g: -0.1 * g / jnp.linalg.norm(g), whole))
    assert_close(moves(rule, [G], instances.free())[0], -0.1 * G / jnp.linalg.norm(G))


@pytest.mark.parametrize("size", [1e200, 1.0, 1e-150, 1e-200, 1e-300, 1e-307])
def test_without_a_floor_a_gradient_of_any_size_gives_a_full_step(size):
    np.testing.assert_allclose(
        length_of({"a": jnp.full((2, 3), size), "b": jnp.full(3, size)}, 0), 3 * size, rtol=1e-14
    )
    direction = jnp.array([[0.6, 0.0], [0.0, -0.8]])
    assert_close(
        moves(descent.normalized_gd(0.1, floor=0.0, penalty=0.0), [size * direction])[0], -0.1 * direction, 1e-10
    )
    assert 0 < length_of(moves(descent.normalized_gd(0.1), [1e-30 * direction])[0], 0) < 1e-14


SEPARATE, JOINT = descent.normalized_gd(0.3, floor=0.0, penalty=0.0), descent.jointly_normalized_gd(0.3, penalty=0.0)
SLOPES = [attention.Factored(2.0**k * G[:, :2], G[:, 2:4]) for k in range(4)]


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_the_kth_step_is_k_to_the_power_shorter(power):
    expected = 0.3 * np.arange(1, 5) ** -power
    for part in zip(*moves(descent.falling(SEPARATE, power), SLOPES), strict=True):
        np.testing.assert_allclose(lengths(part), expected, rtol=1e-9)
    np.testing.assert_allclose(lengths(moves(descent.falling(JOINT, power), SLOPES)), expected, rtol=1e-9)


def test_a_relative_step_is_divided_by_the_length_of_what_it_moves():
    start = instances.factored(m=2)
    for rule in (SEPARATE, JOINT):
        taken = moves(descent.relative(rule), SLOPES, start)
        weights = [start]
        for move in taken:
            weights.append(jax.tree.map(jnp.add, weights[-1], move))
        pairs = [(taken, weights[:-1])] if rule is JOINT else zip(zip(*taken), zip(*weights[:-1]))  # noqa: B905
        for part, before in pairs:
            np.testing.assert_allclose(lengths(part) * lengths(before), 0.3, rtol=1e-9)
    # Weights of zero move by a whole step.
    np.testing.assert_allclose(lengths(moves(descent.relative(SEPARATE), [G])), 0.3, rtol=1e-12)


@partial(jax.jit, static_argnames="norm")
def steepest(norm, G):
    """The move of a step of 1, its length, the dual norm of the gradient, and how far the move reaches along it."""
    (D,) = moves(descent.steepest(norm, 1.0), [G])
    value = norms.named(norm)
    return -D, value.value(-D), value.dual(G), -jnp.sum(G * D)


@pytest.mark.parametrize("norm", NORMS)
def test_a_steepest_step_has_length_one_reaches_the_dual_norm_and_is_blind_to_the_scale(norm):
    for rank in (1, 3, 4):
        left, right = jax.random.normal(jax.random.key(rank), (2, d, rank))
        _, length, dual, reached = steepest(norm, left @ right[1:].T)
        np.testing.assert_allclose(length, 1, rtol=1e-10)
        np.testing.assert_allclose(reached, dual, rtol=1e-10)
    np.testing.assert_array_equal(steepest(norm, TALL * 2.0**-600)[0], steepest(norm, TALL)[0])
    np.testing.assert_array_equal(steepest(norm, jnp.zeros_like(TALL))[0], 0)


def test_known_rules_are_steepest_descent():
    frobenius, largest, spectral, nuclear = (
        steepest(norm, TALL)[0] for norm in ("frobenius", "max", "spectral", "nuclear")
    )
    np.testing.assert_allclose(frobenius, TALL / jnp.linalg.norm(TALL), rtol=1e-14)
    np.testing.assert_array_equal(largest, np.sign(TALL))
    U, _, Vt = np.linalg.svd(TALL, full_matrices=False)
    np.testing.assert_allclose(spectral, U @ Vt, atol=1e-14)
    np.testing.assert_allclose(nuclear, np.outer(U[:, 0], Vt[0]), atol=1e-12)
    # A gradient of low rank moves along its own directions alone.
    low = jnp.zeros_like(TALL).at[0, 0].set(3.0).at[1, 1].set(1e-3)
    np.testing.assert_allclose(steepest("spectral", low)[0], np.sign(low), atol=1e-14)


def test_no_two_singular_value_decompositions_are_independent():
    """On a CPU of two threads, batched LAPACK calls that may run together can wait for each other for ever."""
    optimizer: Any = descent.steepest("spectral", 1.0)
    # Too many columns for rotations, and matrices of two shapes, which are not decomposed together.
    keys = jax.random.split(jax.random.key(0))
    factors = attention.Factored(jax.random.normal(keys[0], (20, 19)), jax.random.normal(keys[1], (20, 18)))

    def moved(G):
        return optimizer.update(G, optimizer.init(G), G)[0]

    for move, slope in zip(jax.jit(moved)(factors), factors, strict=True):
        assert_close(-move, steepest("spectral", slope)[0])
    jaxpr = jax.make_jaxpr(jax.vmap(moved))(jax.tree.map(lambda leaf: leaf[None], factors)).jaxpr
    reached: set[Any] = set()
    waiting = 0
    for equation in jaxpr.eqns:
        calls = "svd" in str(equation)
        if reached.isdisjoint(map(id, equation.invars)):
            assert not (calls and waiting), "a second decomposition that knows nothing of the first"
        if calls:
            waiting += 1
            reached = set(map(id, equation.outvars))
        elif not reached.isdisjoint(map(id, equation.invars)):
            reached |= set(map(id, equation.outvars))
    assert waiting == 2


@pytest.mark.parametrize("p", [1.3, 2.0, 3.0, 10.0])
@pytest.mark.parametrize("make", [descent.mirror, descent.lp_gd])
def test_the_slope_of_the_potential_moves_along_the_gradient(make, p):
    start = instances.free()
    slope = jax.jit(jax.grad(lambda W: jnp.sum(jnp.abs(W) ** p) / p))
    size = jnp.linalg.norm(G) if make is descent.mirror else 1.0
    (move,) = moves(make(p, 0.2), [G], start)
    np.testing.assert_allclose(slope(start + move), slope(start) - 0.2 * G / size, rtol=1e-9)


@pytest.mark.parametrize(
    ("make", "p"), [(descent.mirror, 1.05), (descent.mirror, 10.0), (descent.lp_gd, 1.1), (descent.lp_gd, 3.0)]
)
def test_from_zero_every_number_is_finite_and_the_scale_shows_in_no_bit(make, p):
    optimizer: Any = make(p, 0.1)
    first, still = moves(optimizer, [G, jnp.zeros_like(G)])
    assert np.isfinite(first).all()
    assert (np.asarray(first) != 0).any()
    np.testing.assert_allclose(still, 0, atol=1e-15 * np.abs(first).max())
    if make is descent.mirror:
        np.testing.assert_array_equal(moves(optimizer, [G * 2.0**-600])[0], first)
        # Accepted by what tries that out, too, and without a scale to carry.
        assert not isinstance(rescaled(*shared(optimizer, G), G)[1], Rescaled)


def test_no_rounding_error_of_the_weights_is_kept():
    """After many steps W still is where the slope of the potential says, not where its moves add up to."""
    W = sum(moves(descent.mirror(1.5, 0.1), [jnp.ones((3, 3)) / 3] * 50))
    np.testing.assert_allclose(W, -np.full((3, 3), (50 * 0.1 / 3) ** 2), rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "norm", "others"),
    [
        *(
            (descent.steepest(norm, step), norm, None)
            for norm, step in (("frobenius", 0.1), ("spectral", 0.03), ("max", 0.01), ("l1", 0.1))
        ),
        *((descent.mirror(p, step), f"l_{p:g}", ("frobenius", "max", "l1")) for p, step in ((3.0, 10.0), (1.5, 0.1))),
    ],
)
def test_a_free_matrix_obeys_the_norm_it_descends_in(rule, norm, others):
    problems = instances.problems(10)

    def ranked(optimizer, *norms):
        given = {"optimizer": optimizer, "steps": 10_000, "snapshots": (1000, 3000, 10_000)}
        return bias.rank(descent.train_batch(jnp.zeros((10, d, d)), problems, **given), problems, *norms)

    ranking = ranked(rule) if others is None else ranked(rule, (norm, *others))
    assert ranking.verdict.norms == (norm,)
    if others is not None:
        # Above the others, and nearer than normalized descent comes.
        other = ranked(descent.normalized_gd(0.1, floor=0.0, penalty=0.0), (norm,))
        assert ranking.ratio.low[0, -1] > max(ranking.ratio.high[1:, -1].max(), other.ratio.high[0, -1])
