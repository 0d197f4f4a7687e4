"""How often does descent select the optimal tokens, by d, n and T?"""

from jaxattn.experiments.landscape.global_probability.claims import CLAIMS, estimate
from jaxattn.experiments.landscape.global_probability.figure import draw
from jaxattn.experiments.landscape.global_probability.measure import measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, claims=CLAIMS, estimate=estimate, draw=draw)
