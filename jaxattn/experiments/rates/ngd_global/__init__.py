"""Does training W reach W_mm from any start, and how fast by plain, normalized and Polyak's steps?"""

from jaxattn.experiments.rates.ngd_global.claims import CLAIMS, summarize
from jaxattn.experiments.rates.ngd_global.figure import draw
from jaxattn.experiments.rates.ngd_global.measure import measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, claims=CLAIMS, summarize=summarize, draw=draw)
