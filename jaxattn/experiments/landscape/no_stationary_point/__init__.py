"""Can the gradient point away from the SVM solution of the optimal tokens, or vanish?"""

from jaxattn.experiments.landscape.no_stationary_point.claims import CLAIMS, estimate
from jaxattn.experiments.landscape.no_stationary_point.figure import draw
from jaxattn.experiments.landscape.no_stationary_point.measure import measure
from jaxattn.experiments.landscape.no_stationary_point.view import view
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, claims=CLAIMS, estimate=estimate, draw=draw, view=view)
