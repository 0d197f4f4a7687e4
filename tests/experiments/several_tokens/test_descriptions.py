"""The descriptions of a run that selects several tokens: those of the published code, and their distances from W.

The instances in tests/data were computed by the authors' published code from recorded initial weights.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, attention, descent, heads, metrics, svm
from jaxattn.experiments.several_tokens import descriptions, screening

PUBLISHED = [
    (path, seed)
    for path in sorted((Path(__file__).parents[2] / "data").glob("relu_*.npz"))
    for seed in sorted({name.partition("_")[0] for name in np.load(path)})
]


class Recorded:
    """One recorded instance."""

    def __init__(self, path: Path, seed: str) -> None:
        arrays = np.load(path)
        self.of = {name.partition("_")[2]: arrays[name] for name in arrays if name.startswith(f"{seed}_")}
        self.problem = Problem(self.of["X"], self.of["Z"], self.of["Y"], self.of["V"])
        self.selected = self.of["softmax"] >= 1e-3


def described(recorded: Recorded, W: np.ndarray | None = None):
    """The descriptions by name, of the published W if none is given, and the statuses of their problems."""
    trained = recorded.of["W_final"] if W is None else W
    problems = jax.tree.map(lambda leaf: leaf[None], recorded.problem)
    solutions, status = descriptions.describe(problems, trained[None], recorded.selected[None])
    return dict(zip(descriptions.SOLUTIONS, solutions[0], strict=True)), status


@pytest.fixture(scope="module", params=PUBLISHED, ids=lambda one: f"{one[0].stem} {one[1]}")
def recorded(request):
    return Recorded(*request.param)


def off(A, B) -> float:
    return 1 - float(metrics.correlation(jnp.asarray(A), jnp.asarray(B)))


def test_all_recorded_instances_are_here():
    assert len(PUBLISHED) == 6


def test_descent_from_the_recorded_start_ends_where_the_published_run_does(recorded):
    run = descent.train(jnp.asarray(recorded.of["W0"]), recorded.problem, steps=2001, snapshots=(2000,), head=heads.mlp)
    # Late iterates drift on rounding, the published ones too: direction and selected tokens are what stays.
    assert off(run.weights, recorded.of["W_final"]) < 5e-3
    before_the_last = attention.probabilities(run.snapshots[0], recorded.problem)
    np.testing.assert_array_equal(before_the_last >= 1e-3, recorded.selected)
    np.testing.assert_array_equal(before_the_last > 1e-6, recorded.selected)


def test_the_descriptions_are_the_published_ones(recorded):
    W, status = described(recorded)
    assert (status == svm.Status.OPTIMAL).all()
    # Theirs are solved to about 1e-5.
    assert off(W["W_mm"], recorded.of["W_mm"]) < 1e-8
    assert off(W["W_1token"], recorded.of["W_1token"]) < 1e-8
    # Their finite part is that of one step before, and a step of 0.1 changes the logits by up to 0.1.
    assert off(W["W_SVMeq"], recorded.of["W_svmeq"]) < 5e-4


def test_the_descriptions_have_the_margins_that_define_them(recorded):
    W, _ = described(recorded)
    logits = {name: np.asarray(attention.logits(jnp.asarray(one), recorded.problem)) for name, one in W.items()}
    descended = np.asarray(attention.logits(jnp.asarray(recorded.of["W_final"]), recorded.problem))
    for i, inside in enumerate(recorded.selected):
        own = {name: one[i][inside] for name, one in logits.items()}
        np.testing.assert_allclose(np.ptp(own["W_mm"]), 0, atol=1e-8)
        assert own["W_mm"].min() - logits["W_mm"][i][~inside].max(initial=-np.inf) > 1 - 1e-8
        for name in ("W_fin", "W_SVMeq"):
            np.testing.assert_allclose(np.ptp(own[name] - descended[i][inside]), 0, atol=1e-8)
        top = descended[i].argmax()
        assert logits["W_1token"][i][top] - np.delete(logits["W_1token"][i], top).max() > 1 - 1e-8
    # C is the least-squares fit.
    rest = recorded.of["W_final"] - W["W_SVMeq"]
    assert abs(np.sum(rest * W["W_mm"])) < 1e-9 * np.linalg.norm(rest) * np.linalg.norm(W["W_mm"])


@pytest.mark.parametrize("of", ["the run", "chance"])
def test_that_the_fitted_W_SVMeq_is_before_W_mm_is_an_identity(recorded, of):
    """W_fin is orthogonal to W_mm, so W_SVMeq is the projection of W on both: of a W that no descent has seen, too."""
    W = recorded.of["W_final"]
    if of == "chance":
        W = np.random.default_rng(0).normal(size=W.shape)
    W_SVMeq, W_mm, _, W_fin = described(recorded, W)[0].values()
    assert abs(np.sum(W_fin * W_mm)) < 1e-8 * np.linalg.norm(W_fin) * np.linalg.norm(W_mm)
    both = np.stack([W_fin.ravel(), W_mm.ravel()], axis=1)
    projection = both @ np.linalg.lstsq(both, W.ravel(), rcond=None)[0]
    np.testing.assert_allclose(W_SVMeq.ravel(), projection, atol=1e-7 * float(np.linalg.norm(W)))
    squares = [(1 - off(W, one)) ** 2 for one in (W_SVMeq, W_fin, W_mm)]
    np.testing.assert_allclose(squares[0], squares[1] + squares[2], atol=1e-8)


@pytest.mark.slow
def test_distances_are_those_of_the_weights(record):
    runs = screening.runs_of(record)
    seeds = np.flatnonzero(screening.unselected(runs) < 0)
    own = screening.taken(runs, seeds)
    solutions, _ = descriptions.describe(own.problems, own.W, screening.selected_sets(own))
    expected = [[off(W, one) if np.any(one) else 1.0 for one in of] for W, of in zip(own.W, solutions, strict=True)]
    found = descriptions.compared(runs, seeds)["off"].isel(snapshot=-1)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
