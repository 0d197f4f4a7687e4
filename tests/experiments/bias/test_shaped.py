"""Synthetic measurements of runs with weight decay; the decay, its law, and what trained records give."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import attention, data, descent, initial, losses, models, svm
from jaxattn.experiments.bias.flow.model import Diagonal
from jaxattn.experiments.bias.shaped import EXPERIMENT, decay, measure
from jaxattn.study.settings import schedule
from tests.experiments.bias import synthetic
from tests.recorded import recorded

KEY = jax.random.key(0)
DECAYS = (0.0, 0.004, 0.006, 0.008, 0.01)
VERDICTS = {"shaped:after": "does not hold", "shaped:gradual": "not decided", "shaped:throughout": "does not hold"}


def measured():
    """Decay that changes matrices but not diagonals; two decays of equal form; a diagonal that is not stationary."""
    found = {}
    for model, sparse in (("diagonal", "l1"), ("matrices", "nuclear")):
        for k, lost in enumerate(DECAYS):
            norm = sparse if lost and model == "matrices" else "frobenius"
            found[f"{model}, decay {lost:g}"] = run({norm: 0.99}, sparse, form=2.0 - 0.1 * min(k, 3), turn=k)
        found[f"{model}, decay throughout"] = run({}, sparse, gap=0.2 if model == "diagonal" else 1e-4)
        found[f"{model}, short steps"] = run({}, sparse)
    of_W = synthetic.run({"frobenius": 0.99}, ("frobenius", "nuclear"))
    return found | {f"W, decay {lost:g}": of_W for lost in (0, 0.01)}


def run(ratios, sparse, form=2.0, gap=1e-4, turn=0):
    found = synthetic.run(ratios, ("frobenius", sparse))
    curve, spread = ("seed", "snapshot"), np.resize([-0.05, 0.05], synthetic.SEEDS)
    # Two runs of the same mean form differ seed by seed.
    shifted = form + np.roll(spread, turn) * np.linspace(0.5, 1.5, synthetic.SEEDS)
    found = found.assign(
        nuclear=found["size"] * shifted[:, None],
        imbalance=(curve, np.full(found["size"].shape, 1e-4)),
        balance=("snapshot", 9e6 / found["snapshot"].values),
        gap=("seed", gap * synthetic.SPREAD),
        filled=("seed", 1 + 1e-5 * spread),
    )
    return found.assign(off_mirror=("seed", 1e-3 * synthetic.SPREAD)) if sparse == "l1" else found


def trained(start, problem, rule, steps, model, snapshots=()) -> Any:
    return descent.train(
        start, problem, optimizer=rule, steps=steps, snapshots=snapshots, loss=losses.exponential, model=model
    )


def test_decay_ends_after_its_steps_and_steps_are_relative():
    rule, weights = decay.decaying(0.5, 0.1, until=1), attention.Factored(3 * jnp.eye(2), 4 * jnp.eye(2))
    slope = attention.Factored(jnp.zeros((2, 2)), 7 * jnp.ones((2, 2)))
    update: Any = rule.update
    first, state = update(slope, rule.init(weights), weights)
    second, _ = update(slope, state, weights)
    step = 0.5 / np.sqrt(2 * 9 + 2 * 16) / 2
    np.testing.assert_allclose(first.K, -0.1 * weights.K)
    np.testing.assert_allclose(first.Q, -step * np.ones((2, 2)) - 0.1 * weights.Q)
    np.testing.assert_allclose(second.K, 0)
    np.testing.assert_allclose(second.Q, -step * np.ones((2, 2)))
    for changed in ({"step_size": 0.0}, {"decay": 1.0}, {"decay": -0.1}):
        with pytest.raises(ValueError, match=f"^{next(iter(changed))}: expected"):
            decay.decaying(**{"step_size": 1.0, "decay": 0.0} | changed)


def test_diagonals_are_those_of_matrices():
    whole, parts = decay.matrices(KEY, 4, scale=3.0), decay.diagonals(KEY, 4, scale=3.0)
    for one, part in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(decay.in_full(part), one)
        np.testing.assert_array_equal(decay.in_full(one), one)
    assert decay.imbalance(whole, 9.0) == decay.imbalance(parts, 9.0) == 0
    assert decay.imbalance(whole, 10.0) == pytest.approx(0.1)


def test_diagonal_weights_follow_mirror_flow_with_the_decayed_parameter_and_no_other():
    problem, law, steps = data.sphere(KEY, n=2, T=3, d=5), (5.0, 0.002, 500), (100, 500, 1000)
    rule = decay.decaying(0.05, *law[1:])
    run = trained(decay.diagonals(KEY, 5, law[0]), problem, rule, 1000, Diagonal(), steps)
    b = decay.balance(*law, jnp.array(steps))
    assert max(decay.imbalance(jax.tree.map(lambda leaf, k=k: leaf[k], run.snapshots), b[k]) for k in range(3)) < 1e-2
    w = (run.snapshots.K * run.snapshots.Q)[:, :, 0]
    # W is far beyond the decayed parameter, so the potential matters.
    assert np.linalg.norm(w[-1]) > b[-1]
    expected = decay.mirrored(problem, law[0], 0.05, *law[1:], steps)
    assert np.max(np.linalg.norm(w - expected, axis=1) / np.linalg.norm(w, axis=1)) < 1e-2
    other = decay.mirrored(problem, law[0], 0.05, 0.0, law[2], steps)
    assert np.linalg.norm(w[-1] - other[-1]) / np.linalg.norm(w[-1]) > 0.1


@pytest.mark.parametrize(("law", "model"), [(decay.matrices, models.plain), (decay.diagonals, Diagonal())])
def test_with_decay_throughout_the_nuclear_norm_is_that_of_balance_and_there_is_no_gap(law, model):
    problem, rule = data.sphere(KEY, n=2, T=3, d=6), decay.decaying(0.2, 0.01)
    start = law(KEY, 6, scale=3.0)
    ends = trained(start, problem, rule, 6000, model).weights
    assert float(decay.nuclear(ends)) == pytest.approx(10, rel=1e-3)
    assert float(decay.gap(ends, problem)) == pytest.approx(0, abs=1e-3)
    assert decay.gap(start._replace(Q=start.K), problem) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("weights", [decay.matrices, decay.diagonals, initial.free])
def test_a_record_is_measured(tmp_path, weights):
    numbers = {"step_size": 0.5, "decay": 0.01, "until": 50}
    law, kept = partial(data.sphere, n=2, T=3, d=5), schedule.Logarithmically(4)
    start = weights if weights is initial.free else partial(weights, scale=5.0)
    setting: dict[str, Any] = {"seeds": 3, "steps": 200, "snapshots": kept}
    config: dict[str, Any] = {"optimizer": numbers, "weights": {"scale": 5.0}}
    if weights is decay.diagonals:
        setting["model"] = Diagonal()
        config["model"] = {"_target_": "jaxattn.experiments.bias.flow.model.Diagonal"}
    found = measure(record := recorded(tmp_path, law, start, decay.decaying(**numbers), config, **setting))
    sparse = {decay.matrices: "nuclear", decay.diagonals: "l1"}.get(weights)
    like = run({}, sparse) if sparse else synthetic.run({}, ("frobenius", "nuclear"))
    assert {name: found[name].dims for name in found} == {name: array.dims for name, array in like.items()}
    assert EXPERIMENT.measure is measure
    with pytest.raises(ValueError, match=r"^svm: expected native"):
        measure(record, solver=svm.Cvxpy())
