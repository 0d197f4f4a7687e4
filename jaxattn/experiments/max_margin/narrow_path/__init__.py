"""Where do the regularization path of (K, Q) and descent go with fewer columns than the solution's rank?"""

from jaxattn.experiments.max_margin.narrow_path.claims import CLAIMS, estimate
from jaxattn.experiments.max_margin.narrow_path.figure import draw
from jaxattn.experiments.max_margin.narrow_path.measure import measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, claims=CLAIMS, estimate=estimate, draw=draw)
