"""Schatten norms of exponents near 1 and far above 2: solved, or bounded by the norm next to them."""

import numpy as np
import pytest

from jaxattn import svm
from tests import instances
from tests.instances import d


@pytest.mark.parametrize(
    ("p", "near"),
    [
        (1.001, "nuclear"),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((1.005, "nuclear"), (200.0, "spectral"))),
    ],
)
def test_the_bounds_are_those_of_the_norm_next_to_it_or_closer(p, near):
    constraints = instances.lane(instances.constraints(1), 0)
    neighbor, solution = (svm.solve(constraints, norm=norm) for norm in (near, svm.schatten(p)))
    apart = d ** (1 - 1 / p if near == "nuclear" else 1 / p)
    at_least, at_most = (1 / apart, 1) if near == "nuclear" else (1, apart)
    assert neighbor.status == svm.Status.OPTIMAL
    assert neighbor.primal * at_least * (1 - 1e-9) <= solution.dual <= solution.primal
    assert solution.primal <= neighbor.primal * at_most * (1 + 1e-9)
    assert np.isfinite(solution.W).all()
