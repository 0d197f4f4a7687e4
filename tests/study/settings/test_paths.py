"""The setting of regularization paths: its radii, and what cannot be run."""

import dataclasses
import functools

import numpy as np
import pytest

from jaxattn import data, heads, losses
from jaxattn import regularization as paths
from jaxattn.study.settings import paths as regularization


def setting(seeds=5, ball=paths.FROBENIUS, last=300.0, count=5):
    law = functools.partial(data.sphere, n=2, T=3, d=3)
    radii = regularization.Radii(1.0, last, count)
    return regularization.Regularization(law, ball, losses.logistic, heads.linear, seeds, 7, radii)


def test_radii_are_at_equal_distances_on_a_logarithmic_axis():
    np.testing.assert_allclose(setting(last=10_000.0).coordinates["radius"], [1, 10, 100, 1000, 10_000])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: setting(seeds=0), "seeds: expected at least 1"),
        (lambda: setting(count=1), "radii.count: expected at least 2"),
        (lambda: setting(last=0.5), "0 < first < last"),
        (lambda: setting(last=float("nan")), "0 < first < last"),
    ],
)
def test_a_setting_that_cannot_be_run_is_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


def test_problems_of_several_dimensions_are_refused():
    several = functools.partial(dataclasses.replace, setting(), law=data.Spheres(2, 3, (2, 3)))
    with pytest.raises(TypeError, match="one dimension"):
        several()
