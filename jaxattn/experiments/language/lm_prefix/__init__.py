"""From random starts, does attention to the prefix with a fixed head converge to the max-margin solution?"""

from jaxattn.experiments.language.lm_prefix.claims import CLAIMS, estimate
from jaxattn.experiments.language.lm_prefix.figure import draw
from jaxattn.experiments.language.lm_prefix.measure import measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, CLAIMS, estimate=estimate, draw=draw)
