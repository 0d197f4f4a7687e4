"""Is softmax attention more stable than linear attention, by curvature and by the largest step that descends?"""

from jaxattn.experiments.smoothness.softmax_vs_linear.claims import CLAIMS, summarize
from jaxattn.experiments.smoothness.softmax_vs_linear.figure import draw
from jaxattn.experiments.smoothness.softmax_vs_linear.measure import measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, claims=CLAIMS, summarize=summarize, draw=draw)
