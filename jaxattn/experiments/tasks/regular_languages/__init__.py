"""Even pairs and parity: two phases of training attention and a linear layer together (2505.00926)."""

from __future__ import annotations

from jaxattn.experiments.tasks.regular_languages.claims import CLAIMS
from jaxattn.experiments.tasks.regular_languages.figure import draw
from jaxattn.experiments.tasks.regular_languages.measure import estimate, measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, claims=CLAIMS, estimate=estimate, draw=draw)
