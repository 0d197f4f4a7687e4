"""Does plain gradient descent on texts converge to a max-margin solution, with equal and with close scores?"""

from jaxattn.experiments.language.lm_theorems.claims import CLAIMS
from jaxattn.experiments.language.lm_theorems.figure import draw
from jaxattn.experiments.language.lm_theorems.measure import estimate, measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, CLAIMS, estimate=estimate, draw=draw)
