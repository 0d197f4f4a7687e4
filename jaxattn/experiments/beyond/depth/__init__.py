"""Two layers of attention trained together: which Att-SVM does each of them obey?"""

from jaxattn.experiments.beyond.depth.claims import CLAIMS, summarize
from jaxattn.experiments.beyond.depth.figure import draw
from jaxattn.experiments.beyond.depth.measure import measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, claims=CLAIMS, summarize=summarize, draw=draw)
