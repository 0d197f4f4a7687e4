"""Do the theorems hold on real tokens, patches of handwritten digits?"""

from jaxattn.experiments.beyond.digits.claims import CLAIMS, summarize
from jaxattn.experiments.beyond.digits.figure import draw
from jaxattn.experiments.beyond.digits.measure import measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, claims=CLAIMS, summarize=summarize, draw=draw)
