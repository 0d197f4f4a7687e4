"""Digits as tokens: the problems drawn of them, the verdicts, the figure, and what a trained record gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import descent, initial, svm, tokens
from jaxattn.experiments.beyond.digits import examples, figure, images
from jaxattn.experiments.beyond.digits.claims import CLAIMS, summarize
from jaxattn.experiments.beyond.digits.measure import measure
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import schedule
from tests.instances import drawn_lines
from tests.recorded import recorded

KEY = jax.random.key(0)


def test_tokens_are_quadrants_centred_and_of_mean_square_length_one():
    found, pixels = images.tokens(), images.load().astype(float)
    np.testing.assert_allclose(found.mean(axis=(0, 1, 2)), 0, atol=1e-12)
    assert (found**2).sum(axis=-1).mean() == pytest.approx(1)
    # The second quadrant is the upper right one.
    differences = pixels[3, 0, :4, 4:].ravel() - pixels[7, 5, :4, 4:].ravel()
    ratio = np.linalg.norm(differences) / np.linalg.norm(found[3, 0, 1] - found[7, 5, 1])
    np.testing.assert_allclose(ratio * (found[3, 0, 1] - found[7, 5, 1]), differences, atol=1e-9)


def test_a_problem_has_half_of_its_images_of_each_class_and_a_query_a_class():
    one = images.class_queries(KEY, 8)
    assert one.X.shape == (8, 4, 16)
    assert one.Y.tolist() == [1] * 4 + [-1] * 4
    assert len(np.unique(np.asarray(one.Z), axis=0)) == 2
    assert len(np.unique(np.asarray(one.X[:, 0]), axis=0)) == 8
    between = one.X[:4].mean(axis=(0, 1)) - one.X[4:].mean(axis=(0, 1))
    np.testing.assert_allclose(one.v, between / jnp.linalg.norm(between), rtol=1e-12)
    # `W z = Y v` separates the optimal tokens.
    constraints = svm.token_constraints(one, tokens.optimal(one))
    assert (jnp.einsum("nmd,d->nm", constraints.differences, one.v) * one.Y[:, None] > 0).all()


def test_the_first_patch_is_the_query_of_the_same_images():
    by_class, by_patch = images.class_queries(KEY, 8), images.first_patch(KEY, 8)
    np.testing.assert_array_equal(by_class.X, by_patch.X)
    np.testing.assert_array_equal(by_patch.Z, by_patch.X[:, 0])


def test_a_lane_is_the_problem_of_its_key():
    keys = jax.random.split(KEY, 3)
    lanes = jax.vmap(lambda key: images.first_patch(key, 6))(keys)
    np.testing.assert_allclose(lanes.X[1], images.first_patch(keys[1], 6).X, rtol=1e-12)


@pytest.mark.parametrize("n", [0, 7, 122, 8.0, True])
def test_a_number_of_images_that_cannot_be_drawn_is_named(n):
    with pytest.raises(ValueError, match=f"^n: expected an even number from 2 to 120, found {n!r}"):
        images.class_queries(KEY, n)


def test_other_pixels_are_refused(tmp_path):
    path = tmp_path / "digits.npz"
    np.savez_compressed(path, images=images.load() + 1)
    with pytest.raises(ValueError, match=r"^digits.npz: expected pixels of SHA-256 c08392beed7b..., found"):
        images.load(path)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, {}),
        ({"weights": "W", "ratios": {"frobenius": 0.9}}, {"w-patch": Verdict.FAILS}),
        ({"weights": "KQ", "ratios": {"frobenius": 0.99}}, {"kq-patch": Verdict.FAILS}),
        ({"weights": "W", "exponent": -1.6}, {"rate-w": Verdict.FAILS}),
        ({"weights": "KQ", "exponent": -0.9}, {"rate-kq": Verdict.CORRECTED}),
        ({"weights": "KQ", "exponent": 0.0}, {"rate-kq": Verdict.FAILS}),
        ({"weights": "W", "separable": 0.8}, {"separable": Verdict.FAILS}),
    ],
)
def test_a_change_of_one_run_changes_the_verdicts_about_it_alone(changes, wrong):
    summaries = summarize(examples.runs(**changes), KEY)
    found = {claim.id.partition(":")[2]: claim.judge(summaries).verdict for claim in CLAIMS}
    assert found == {name: wrong.get(name, Verdict.HOLDS) for name in found}


def test_problems_that_no_certificate_tells_leave_it_open():
    datasets = dict(examples.runs())
    datasets["W, patch"] = datasets["W, patch"].assign_attrs(unknown=3)
    (claim,) = (one for one in CLAIMS if one.id == "digits:separable")
    judgement = claim.judge(summarize(datasets, KEY))
    assert judgement.verdict is Verdict.OPEN
    assert "For 3 problems separability is not certified" in judgement.note


def test_without_the_sphere_no_rate_is_judged():
    datasets = {name: one for name, one in examples.runs().items() if "sphere" not in name}
    summaries = summarize(datasets, KEY)
    for claim in CLAIMS:
        expected = Verdict.OPEN if "rate" in claim.id else Verdict.HOLDS
        assert claim.judge(summaries).verdict is expected


def test_the_figure_draws_the_medians():
    summaries = summarize(examples.runs(), KEY)
    drawn = figure.draw(summaries)
    for axes, weights in zip(drawn.axes[1:], ("W", "KQ"), strict=True):
        own = [one for one in summaries.values() if one.attrs["weights"] == weights]
        for line, one in zip(drawn_lines(axes, least=3), own, strict=True):
            np.testing.assert_array_equal(line[1], one["off_50"])
    assert "4 of 4 runs" in str(drawn.get_suptitle())


@pytest.mark.parametrize("start", [initial.free_zero, initial.factored])
@pytest.mark.slow
def test_a_record_is_measured_and_looks_like_the_examples(tmp_path, start):
    rule = descent.exact_normalized_gd(0.1, penalty=0.0)
    config = {"data": {"_target_": "jaxattn.experiments.beyond.digits.images.first_patch"}}
    record = recorded(
        tmp_path,
        lambda key: images.first_patch(key, 4),
        start,
        optimizer=rule,
        seeds=3,
        steps=40,
        snapshots=schedule.Evenly(10),
        config=config,
    )
    one, made = measure(record), examples.run("KQ" if start is initial.factored else "W", "patch")
    assert one.attrs["run"] == made.attrs["run"]
    assert {name: made[name].dims for name in made.data_vars} == {name: one[name].dims for name in one.data_vars}
    assert set(made.attrs) == set(one.attrs)
    assert (one["optimal_margin"] > 0).all()
