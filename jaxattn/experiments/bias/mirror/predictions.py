"""The paper's statements on mirror descent with some exponents, in the form in which claims are judged."""

from __future__ import annotations

from jaxattn.experiments.bias.judging import Prediction
from jaxattn.experiments.bias.mirror.measure import NORMALIZED, norm_of
from jaxattn.study.claims import Setting, Source

# The exponents of the paper's experiment, and all that we use.
PUBLISHED = (1.75, 2.0, 3.0)
EXPONENTS = (1.1, *PUBLISHED, 10.0)
_SOURCE = Source("arXiv 2410.14581", "local convergence of l_p-AttGD in direction", Setting.PROXY)

DIRECTIONS = tuple(
    Prediction(
        f"direction-{p:g}",
        {"rule": NORMALIZED, "p": f"{p:g}"},
        norm_of(p),
        _SOURCE,
        "Mirror descent with the potential ||W||_p^p / p converges in direction to the solution of the l_p Att-SVM "
        f"(here p = {p:g}).",
    )
    for p in EXPONENTS
)
