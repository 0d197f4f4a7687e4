"""Plots of a user's own runs: what is drawn, and what cannot be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

from jaxattn import data, descent, plots, svm, tokens
from tests.instances import drawn_lines, free, problem

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def planar():
    one = jax.jit(data.three_tokens)(jax.random.key(3))
    return one, descent.train(jnp.zeros((2, 2)), one, steps=40, snapshots=(10, 20, 40))


def test_paths_are_those_of_the_snapshots_scaled_to_the_panel(planar):
    one, run = planar
    alpha = tokens.selected(run.weights, one)
    (axes,) = plots.trajectory(run, one, svm.solve(svm.token_constraints(one, alpha))).axes
    paths = [line for line in drawn_lines(axes) if line.shape[1] == 4]
    assert len(paths) == one.n
    for i, path in enumerate(paths):
        wanted = np.asarray(run.snapshots) @ np.asarray(one.Z)[i]
        np.testing.assert_allclose(path[:, 0], 0.0)
        scale = np.linalg.norm(path[:, -1]) / np.linalg.norm(wanted[-1])
        np.testing.assert_allclose(path[:, 1:].T, scale * wanted, rtol=1e-9)
    # With a solution a line more an input: the one that separates the star.
    assert len(drawn_lines(axes)) == 2 * one.n
    (alone,) = plots.trajectory(run, one).axes
    assert len(drawn_lines(alone)) == one.n


def test_what_cannot_be_drawn_is_named(planar):
    (one, run), other = planar, problem()
    with pytest.raises(ValueError, match="problem: expected d = 2, which can be drawn, found d = 5"):
        plots.trajectory(descent.train(free(), other, steps=2, snapshots=(1,)), other)
    with pytest.raises(ValueError, match="run: expected snapshots, found none"):
        plots.trajectory(descent.train(jnp.zeros((2, 2)), one, steps=40), one)
    with pytest.raises(ValueError, match="run: expected finite snapshots, found NaN"):
        plots.trajectory(run._replace(snapshots=run.snapshots * np.nan), one)
    with pytest.raises(ValueError, match="problem: expected one, with X of shape"):
        plots.trajectory(run, jax.tree.map(lambda leaf: leaf[None], one))
    both = one.X.at[:, 1].set(one.X[:, 0])  # equal tokens cannot be separated
    infeasible = svm.att(both, one.Z, [0, 0])
    with pytest.raises(ValueError, match="solution: expected W with a direction, found W = 0 of status INFEASIBLE"):
        plots.trajectory(run, one, infeasible)
    axes = Figure().subplots()
    with pytest.raises(ValueError, match=r"values: expected one curve a seed, \(seeds, points\), found shape \(3,\)"):
        plots.bands(axes, np.arange(3), np.arange(3.0), KEY)
    with pytest.raises(ValueError, match="expected finite values"):
        plots.bands(axes, np.arange(3), np.full((2, 3), np.nan), KEY)


def test_a_band_holds_the_mean():
    axes, values = Figure().subplots(), np.random.default_rng(0).normal(size=(30, 4))
    plots.bands(axes, np.arange(4), values, KEY, label="mean")
    (line,) = drawn_lines(axes)
    np.testing.assert_allclose(line[1], values.mean(axis=0))
    (band,) = axes.collections
    bounds = np.asarray(band.get_paths()[0].vertices)[:, 1]
    assert bounds.min() < line[1].min() < line[1].max() < bounds.max()
