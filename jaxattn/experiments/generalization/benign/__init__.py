"""Does token selection that fits flipped labels generalize, and when (2409.17625)?"""

from jaxattn.experiments.generalization.benign.bands import summarize
from jaxattn.experiments.generalization.benign.claims import CLAIMS
from jaxattn.experiments.generalization.benign.figure import draw
from jaxattn.experiments.generalization.benign.measure import measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, CLAIMS, summarize=summarize, draw=draw)
