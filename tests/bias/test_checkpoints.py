"""Weights given as arrays are ranked as runs of this package are, in one precision or the other."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import bias, data, descent, svm
from jaxattn.problem import Problem
from jaxattn.study import command

SEEDS, STEPS = 9, (60, 200, 600)
NORMS = ["frobenius", "max"]


def problems():
    keys = jax.random.split(jax.random.key(1), SEEDS)
    return jax.vmap(lambda key: data.sphere(key, n=3, T=4, d=5))(keys)


def trained():
    rule = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
    return descent.train_batch(jnp.zeros((SEEDS, 5, 5)), problems(), optimizer=rule, steps=600, snapshots=STEPS)


def test_arrays_are_ranked_as_the_run_that_they_come_from():
    run = trained()
    expected = bias.rank(run, problems(), NORMS)
    W, X, Z = np.asarray(run.snapshots), problems().X, problems().Z
    found = bias.rank_arrays(X, Z, W=W, steps=STEPS, norms=NORMS)
    np.testing.assert_array_equal(found.margin_ratio, expected.margin_ratio)
    assert found.verdict == expected.verdict
    # Factors, of which the queries' side carries the scale.
    K, Q = 4.0 * W, np.broadcast_to(np.eye(5), W.shape)
    factored = bias.rank_arrays(X, Z, K=K, Q=Q, scale=0.25, steps=STEPS, norms=NORMS)
    np.testing.assert_allclose(factored.margin_ratio, expected.margin_ratio, rtol=1e-9)
    np.testing.assert_allclose(factored.probability, expected.probability, rtol=1e-9)
    single = bias.rank_arrays(*(np.asarray(one, np.float32) for one in (X, Z)), W=W, steps=STEPS, norms=NORMS)
    np.testing.assert_allclose(single.margin_ratio, expected.margin_ratio, rtol=1e-4)


def test_one_run_has_ratios_and_no_verdict():
    W = np.asarray(trained().snapshots)[0]
    found = bias.rank_arrays(problems().X[0], problems().Z[0], W=W, steps=STEPS, norms=NORMS)
    assert found.margin_ratio.shape == (1, 2, 3)
    assert str(found.verdict) == "not decided: expected at least 8 seeds, found 1"
    last = bias.rank_arrays(problems().X[0], problems().Z[0], W=W[-1:], norms=NORMS)
    np.testing.assert_allclose(last.margin_ratio[..., 0], found.margin_ratio[..., -1], rtol=1e-9)


def test_selected_tokens_and_hidden_ones_pose_the_problem():
    X, Z = np.asarray(problems().X[0]), np.asarray(problems().Z[0])
    alpha = np.array([2, 0, 1])
    posed = svm.token_constraints(Problem(X, Z, np.ones(3), np.zeros(5)), alpha)
    W = np.asarray(svm.solve(posed).W)[None]
    assert bias.rank_arrays(X, Z, W=W, alpha=alpha, norms=NORMS).margin_ratio[0, 0, 0] == pytest.approx(1)
    # As a set of one token for each input, with a padding token that no input sees.
    chosen = np.arange(5) == alpha[:, None]
    padded = np.concatenate([X, 9 * np.ones((3, 1, 5))], axis=1)
    mask = np.arange(5) < np.full((3, 1), 4)
    found = bias.rank_arrays(padded, Z, W=W, alpha=chosen, mask=mask, norms=NORMS)
    assert found.margin_ratio[0, 0, 0] == pytest.approx(1)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, "weights: expected W, or K and Q, found none"),
        ({"K": np.eye(5)[None]}, "weights: expected W, or K and Q, found K"),
        ({"W": np.eye(5)[None], "K": np.eye(5)[None], "Q": np.eye(5)[None]}, "found W and K and Q"),
        ({"W": np.eye(5)}, r"W: expected 3 axes, as X is of one seed, found shape \(5, 5\)"),
        ({"W": np.zeros((2, 5, 5)) + np.eye(5)}, "steps: expected one for each of the 2 snapshots, found 0"),
        ({"W": np.nan * np.eye(5)[None]}, "all of which diverged"),
        ({"W": np.eye(5)[None], "mask": np.ones(4, bool)}, "mask: expected 2 axes"),
    ],
)
def test_arrays_that_do_not_fit_are_named(given, error):
    with pytest.raises(ValueError, match=error):
        bias.rank_arrays(problems().X[0], problems().Z[0], **given)


def test_a_file_of_arrays_is_ranked_on_the_command_line(tmp_path, capsys):
    path, W = tmp_path / "run.npz", np.asarray(trained().snapshots)
    arrays: dict[str, Any] = {"X": problems().X, "Z": problems().Z, "W": W, "steps": np.array(STEPS)}
    np.savez(path, **arrays)
    command.main(["which", f"checkpoints={path}", "norms=[frobenius,max]"])
    expected = bias.rank_arrays(**arrays, norms=NORMS).table()
    assert capsys.readouterr().out.strip() == expected
    np.savez(tmp_path / "odd.npz", **arrays, weights=W)
    (tmp_path / "text.npz").write_text("no arrays")
    for line, error in (
        ([f"checkpoints={path}", "seeds=3"], "seeds=3: expected only norms="),
        ([f"checkpoints={tmp_path}/odd.npz"], "found ['weights']"),
        ([f"checkpoints={tmp_path}/text.npz"], "checkpoints: expected a NumPy file of arrays"),
        ([f"checkpoints={tmp_path}/none.npz"], "checkpoints: expected a NumPy file of arrays"),
    ):
        with pytest.raises(SystemExit) as ended:
            command.main(["which", *line])
        assert ended.value.code == 2
        assert error in capsys.readouterr().err
