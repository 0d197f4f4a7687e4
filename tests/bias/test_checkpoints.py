"""Weights given as arrays are ranked as runs of this package are, in one precision or the other."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import bias, descent, svm
from jaxattn.problem import Problem
from jaxattn.study import command
from tests import instances

SEEDS, STEPS = 8, (60, 200, 600)
NORMS = ["nuclear", "max"]
PROBLEMS = instances.problems(SEEDS)
X, Z = np.asarray(PROBLEMS.X[0]), np.asarray(PROBLEMS.Z[0])
HIDES_THE_FIRST = (np.arange(4) > 0) | (np.arange(3) > 0)[:, None]


@cache
def trained():
    rule = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
    return descent.train_batch(jnp.zeros((SEEDS, 5, 5)), PROBLEMS, optimizer=rule, steps=600, snapshots=STEPS)


def test_arrays_are_ranked_as_the_run_that_they_come_from():
    run = trained()
    given: dict[str, Any] = {"X": PROBLEMS.X, "Z": PROBLEMS.Z, "steps": STEPS, "norms": NORMS}
    expected = bias.rank(run, PROBLEMS, NORMS)
    W: Any = np.asarray(run.snapshots)
    found = bias.rank_arrays(**given, W=W)
    np.testing.assert_array_equal(found.margin_ratio, expected.margin_ratio)
    assert found.verdict == expected.verdict
    # Factors, of which the queries' side carries the scale.
    turn = np.broadcast_to(np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0], W.shape)
    factored = bias.rank_arrays(**given, K=4.0 * W @ turn, Q=turn, scale=0.25)
    np.testing.assert_allclose(factored.margin_ratio, expected.margin_ratio, rtol=1e-9)
    np.testing.assert_allclose(factored.probability, expected.probability, rtol=1e-9)
    given |= {name: np.asarray(given[name], np.float32) for name in "XZ"}
    single = bias.rank_arrays(**given, W=W)
    np.testing.assert_allclose(single.margin_ratio, expected.margin_ratio, rtol=1e-4)


def test_single_precision_stays_so_where_jax_has_no_other():
    single = instances.single((X, Z, np.asarray(trained().snapshots)[0]))
    expected = bias.rank_arrays(X, Z, W=single[2], steps=STEPS, norms=["nuclear"]).margin_ratio
    with jax.enable_x64(False):
        found = bias.rank_arrays(*single[:2], W=single[2], steps=STEPS, norms=["nuclear"], scale=np.float64(1.0))
        assert found.counts["kept"] == 1
        np.testing.assert_allclose(found.margin_ratio, expected, rtol=1e-3)
        with pytest.raises(ValueError, match=r"^X: expected float32 while JAX's x64 mode is off, found float64"):
            bias.rank_arrays(X, Z, W=single[2], steps=STEPS)


def test_one_run_has_ratios_and_no_verdict():
    W = np.asarray(trained().snapshots)[0]
    found = bias.rank_arrays(X, Z, W=W, steps=STEPS, norms=["frobenius"])
    assert found.margin_ratio.shape == (1, 1, 3)
    assert str(found.verdict) == "not decided: expected at least 8 seeds, found 1"
    last = bias.rank_arrays(X, Z, W=W[-1:], norms=["frobenius"])
    np.testing.assert_allclose(last.margin_ratio[..., 0], found.margin_ratio[..., -1], rtol=1e-9)


def test_selected_tokens_and_hidden_ones_pose_the_problem():
    alpha = np.array([2, 0, 1])
    posed = svm.token_constraints(Problem(X, Z, np.ones(3), np.zeros(5)), alpha)
    W = np.asarray(svm.solve(posed).W)[None]
    given = {"W": W, "norms": ["frobenius"]}
    assert bias.rank_arrays(X, Z, alpha=alpha, **given).margin_ratio == pytest.approx(1)
    # As a set of one token for each input, with a padding token that no input sees.
    chosen = np.arange(5) == alpha[:, None]
    padded = np.concatenate([X, 9 * np.ones((3, 1, 5))], axis=1)
    mask = np.arange(5) < np.full((3, 1), 4)
    assert bias.rank_arrays(padded, Z, alpha=chosen, mask=mask, **given).margin_ratio == pytest.approx(1)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, "weights: expected W, or K and Q, found none"),
        ({"K": np.eye(5)[None]}, "weights: expected W, or K and Q, found K"),
        ({"W": np.eye(5)[None], "K": np.eye(5)[None], "Q": np.eye(5)[None]}, "found W and K and Q"),
        ({"W": np.eye(5)}, r"W: expected 3 axes, as X is of one seed, found shape \(5, 5\)"),
        *(
            (
                {"W": np.ones((2, 5, 5)), "steps": steps},
                "steps: expected increasing whole numbers, .* 2 snapshots, found",
            )
            # Epochs in parts would become the same step.
            for steps in ((), 7, (0.5, 0.9), (2, 1), (1, np.nan), (1, 2, 3), np.ones((2, 1)))
        ),
        ({"scale": 0.0, "W": np.eye(5)[None]}, "scale: expected a finite number other than 0, found 0.0"),
        ({"scale": np.ones(3), "W": np.eye(5)[None]}, "scale: expected a finite number other than 0, found array"),
        ({"W": np.eye(5)[None] * 1j}, "W: expected dtype float64 as the tokens have, found complex128"),
        (
            {"W": np.eye(5)[None], "alpha": np.array([0, 1, 4])},
            r"alpha: expected tokens 0\.\.3 .*found others in 1 inputs",
        ),
        ({"W": np.eye(5)[None], "alpha": np.array([0, 1, -1])}, r"alpha: expected tokens 0\.\.3 that their inputs see"),
        ({"W": np.eye(5)[None], "alpha": np.zeros(3)}, "alpha: expected integers, or truth values, found float64"),
        ({"W": np.eye(5)[None], "alpha": np.zeros(2, int)}, r"alpha: expected shape \(3,\), found \(2,\)"),
        ({"W": np.eye(5)[None], "alpha": 0}, r"alpha: expected 1 axes, as X is of one seed, found shape \(\)"),
        (
            {"W": np.eye(5)[None], "alpha": np.zeros(3, int), "mask": HIDES_THE_FIRST},
            "alpha: .* found others in 1 inputs",
        ),
        ({"W": np.nan * np.eye(5)[None]}, "all of which diverged"),
        ({"W": np.eye(5)[None], "mask": np.ones(4, bool)}, "mask: expected 2 axes"),
    ],
)
def test_arrays_that_do_not_fit_are_named(given, error):
    with pytest.raises(ValueError, match=error):
        bias.rank_arrays(X, Z, **given)


def test_a_file_of_arrays_is_ranked_on_the_command_line(tmp_path, capsys):
    path, W = tmp_path / "run.npz", np.asarray(trained().snapshots)
    arrays: dict[str, Any] = {"X": PROBLEMS.X, "Z": PROBLEMS.Z, "W": W, "steps": np.array(STEPS)}
    np.savez(path, **arrays)
    command.main(["which", f"checkpoints={path}", "norms=[nuclear,max]"])
    expected = bias.rank_arrays(**arrays, norms=NORMS).table()
    assert capsys.readouterr().out.strip() == expected
    np.savez(tmp_path / "odd.npz", **arrays, weights=W)
    (tmp_path / "text.npz").write_text("no arrays")
    np.save(tmp_path / "one.npy", W)
    for line, error in (
        ([f"checkpoints={path}", "seeds=3"], "seeds=3: expected only norms="),
        ([f"checkpoints={tmp_path}/odd.npz"], "found ['weights']"),
        ([f"checkpoints={tmp_path}/text.npz"], "checkpoints: expected a NumPy file of arrays"),
        ([f"checkpoints={tmp_path}/one.npy"], "found ['an array']"),
        ([f"checkpoints={tmp_path}/none.npz"], "checkpoints: expected a NumPy file of arrays"),
    ):
        with pytest.raises(SystemExit) as ended:
            command.main(["which", *line])
        assert ended.value.code == 2
        assert error in capsys.readouterr().err
