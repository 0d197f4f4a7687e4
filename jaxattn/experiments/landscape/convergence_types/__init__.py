"""How often does descent converge globally, locally or otherwise, against d?"""

from jaxattn.experiments.landscape.convergence_types.claims import CLAIMS, estimate
from jaxattn.experiments.landscape.convergence_types.figure import draw
from jaxattn.experiments.landscape.convergence_types.measure import measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, claims=CLAIMS, estimate=estimate, draw=draw)
