"""Synthetic measurements of training on digits, the problems drawn of them, and what a trained record gives."""

from functools import cache, partial

import jax
import numpy as np
import pytest

from jaxattn import svm, tokens
from jaxattn.experiments.beyond.digits import images, summarize
from jaxattn.experiments.beyond.digits.measure import NORMS
from tests.experiments.bias import synthetic

KEY = jax.random.key(0)
VERDICTS = {
    "digits:w-patch": "does not hold",
    "digits:kq-patch": "not decided",
    "digits:rate-w": "does not hold",
    "digits:rate-kq": "does not hold",
    "digits:separable": "does not hold",
}
# The norm that each training obeys, and about the exponent of its distance.
TRAINED = {"W": ("free_zero", "frobenius", -2.0), "KQ": ("factored", "nuclear", -0.4)}


def measured():
    """With a query for each image W obeys no norm and is slow, and (K, Q) still moves and is faster than on spheres."""
    runs = {f"{weights}, {law}": run(weights) for law in ("class", "patch", "sphere") for weights in TRAINED}
    return runs | {
        "W, patch": run("W", 0.9, exponent=-1.6, separable=0.8),
        "KQ, patch": run("KQ", 0.9, moving=0.05, exponent=-0.8),
    }


def run(weights, ratio=0.99, moving=0.0, exponent=None, separable=1.0):
    """A run with this margin ratio in its own norm, and this exponent of the distance from its solution."""
    start, norm, usual = TRAINED[weights]
    found = synthetic.run({norm: ratio}, NORMS, moving, weights=start, unknown=0)
    falls = (usual if exponent is None else exponent) + (synthetic.SPREAD - 1)[:, None, None]
    off = 1e-3 * (synthetic.STEPS / 1000) ** falls
    margin = np.where(np.arange(synthetic.SEEDS) < round(separable * synthetic.SEEDS), 0.2, 0.0)
    return found.assign(
        off=(("seed", "norm", "snapshot"), np.repeat(off, len(NORMS), axis=1)),
        optimal=(("seed",), np.linspace(0.9, 1, synthetic.SEEDS)),
        optimal_margin=(("attempt",), np.tile(margin, 3)),
    )


def test_rates_are_fitted_to_ten_thousand_steps_and_to_no_shorter_run():
    bent = run("W", exponent=-1.5)
    late = bent["snapshot"] > 10_000
    bent["off"] = bent["off"].where(~late, 1.0)
    short = bent.sel(snapshot=bent["snapshot"] < 10_000)
    found = summarize({"bent": bent, "short": short}, KEY)
    assert float(found["bent"]["exponent"]) == pytest.approx(-1.5)
    assert np.isnan(found["short"]["exponent"])


def test_tokens_are_quadrants_centred_and_of_mean_square_length_one():
    found, pixels = images.tokens(), images.load().astype(float)
    np.testing.assert_allclose(found.mean(axis=(0, 1, 2)), 0, atol=1e-12)
    assert (found**2).sum(axis=-1).mean() == pytest.approx(1)
    # The second quadrant is the upper right one.
    differences = pixels[3, 0, :4, 4:].ravel() - pixels[7, 5, :4, 4:].ravel()
    ratio = np.linalg.norm(differences) / np.linalg.norm(found[3, 0, 1] - found[7, 5, 1])
    np.testing.assert_allclose(ratio * (found[3, 0, 1] - found[7, 5, 1]), differences, atol=1e-9)


@cache
def by_class():
    return jax.jit(partial(images.class_queries, n=8))(KEY)


def test_a_problem_has_half_of_its_images_of_each_class_and_a_query_a_class():
    one = by_class()
    X, v = np.asarray(one.X), np.asarray(one.v)
    assert X.shape == (8, 4, 16)
    assert one.Y.tolist() == [1] * 4 + [-1] * 4
    assert len(np.unique(one.Z, axis=0)) == 2
    assert len(np.unique(X[:, 0], axis=0)) == 8
    between = X[:4].mean(axis=(0, 1)) - X[4:].mean(axis=(0, 1))
    np.testing.assert_allclose(v, between / np.linalg.norm(between), rtol=1e-12)
    # `W z = Y v` separates the optimal tokens.
    constraints = svm.token_constraints(one, tokens.optimal(one))
    assert (np.einsum("nmd,d->nm", constraints.differences, v) * np.asarray(one.Y)[:, None] > 0).all()


def test_the_first_patch_is_the_query_of_the_same_images():
    by_patch = jax.jit(partial(images.first_patch, n=8))(KEY)
    np.testing.assert_array_equal(by_class().X, by_patch.X)
    np.testing.assert_array_equal(by_patch.Z, by_patch.X[:, 0])


@pytest.mark.parametrize("n", [0, 7, 122, 8.0, True])
def test_a_number_of_images_that_cannot_be_drawn_is_named(n):
    with pytest.raises(ValueError, match=f"^n: expected an even number from 2 to 120, found {n!r}"):
        images.class_queries(KEY, n)


def test_other_pixels_are_refused(tmp_path):
    path = tmp_path / "digits.npz"
    np.savez_compressed(path, images=images.load() + 1)
    with pytest.raises(ValueError, match=r"^digits.npz: expected pixels of SHA-256 c08392beed7b..., found"):
        images.load(path)
