"""The lemmas behind the theorems of the second paper: its gradient, the slope of its loss, its basic bounds."""

from jaxattn.experiments.language.lm_lemmas.claims import CLAIMS, estimate
from jaxattn.experiments.language.lm_lemmas.figure import draw
from jaxattn.experiments.language.lm_lemmas.measure import measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, CLAIMS, estimate=estimate, draw=draw)
