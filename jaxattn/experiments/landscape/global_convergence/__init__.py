"""When does descent select the optimal tokens: by its first gradient, and by the spread of the other scores?"""

from jaxattn.experiments.landscape.global_convergence.claims import CLAIMS, summarize
from jaxattn.experiments.landscape.global_convergence.figure import draw
from jaxattn.experiments.landscape.global_convergence.measure import measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, claims=CLAIMS, summarize=summarize, draw=draw)
