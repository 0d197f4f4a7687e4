"""Synthetic measurements of steepest descent on (K, Q), and what a trained record gives."""

from functools import partial

import numpy as np
import pytest

from jaxattn import data, descent, initial, svm
from jaxattn.bias.verdict import last_decade
from jaxattn.experiments.bias.induced import NORMS, measure
from jaxattn.study.settings import schedule
from tests.experiments.bias import synthetic
from tests.recorded import recorded

INDUCED = {"gd": ("Frobenius", "nuclear"), "polar": ("spectral", "spectral"), "rows": ("longest row", "gamma2")} | {
    "sign": ("largest entry", "sign")
}
VERDICTS = {f"atlas-induced:{name}-{m}": "holds" for name in INDUCED for m in (10, 40)} | {
    "atlas-induced:sign-10": "not decided",
    "atlas-induced:gd-10": "does not hold",
}


def measured():
    """The induced norms are obeyed, but that of sign descent at small width is still being approached."""
    return {
        **{f"{rule}, m = {m}": run({norm: 0.99}) for rule, norm in INDUCED.values() for m in (10, 40)},
        "largest entry, m = 10": run({"sign": 0.9}, moving=0.05),
        "Frobenius, m = 10": run({"nuclear": 0.9}),
    }


def run(ratios, moving=0.0):
    late = last_decade(synthetic.STEPS)[0]
    return synthetic.run(ratios, NORMS, moving, synthetic.STEPS[late])


@pytest.mark.slow
def test_the_last_decade_of_a_record_is_measured(tmp_path):
    law, start = partial(data.sphere, n=2, T=3, d=3), partial(initial.factored, m=4)
    rule = descent.steepest("2,inf", descent.falling_step(0.3))
    record = recorded(tmp_path, law, start, rule, seeds=2, steps=100, snapshots=schedule.Logarithmically(2))
    found = measure(record)
    assert {name: found[name].dims for name in found} == {name: array.dims for name, array in run({}).items()}
    assert tuple(found["norm"].values) == NORMS
    assert found["snapshot"].values.tolist() == [10, 32, 100]
    assert float(found["margin_ratio"].max()) <= 1 + 1e-6
    assert np.isfinite(found["margin_ratio"]).all()
    with pytest.raises(ValueError, match=r"^svm: expected native"):
        measure(record, solver=svm.Cvxpy())
