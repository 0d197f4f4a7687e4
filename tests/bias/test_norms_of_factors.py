"""Rankings by Schatten norms, rows, gamma2 and sign matrices: each norm's planted optimum is named."""

import numpy as np
import pytest

from jaxattn import bias
from tests.bias.test_ranking import growing, optima, problems, run_along

NORMS = ("frobenius", "nuclear", "schatten_1.5", "2,inf", "2,1 of columns", "gamma2", "sign")


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["schatten_1.5", "2,inf", "gamma2", "sign"])
def test_the_optimum_of_a_norm_is_that_norms(norm):
    ranking = bias.rank(run_along(growing(optima(norm))), problems(), NORMS)
    assert ranking.verdict == bias.Verdict((norm,), decided=True)
    np.testing.assert_allclose(ranking.margin_ratio[:, NORMS.index(norm)], 1, atol=1e-6)
    assert ranking.margin_ratio.max() <= 1 + 1e-6
    assert ranking.counts["kept"] == ranking.counts["attempted"]
