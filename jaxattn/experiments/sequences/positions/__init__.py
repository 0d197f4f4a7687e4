"""Where does training converge with attention to a whole sequence, and with causal attention?"""

from jaxattn.experiments.sequences.positions.claims import CLAIMS, summarize
from jaxattn.experiments.sequences.positions.figure import draw
from jaxattn.experiments.sequences.positions.measure import measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, claims=CLAIMS, summarize=summarize, draw=draw)
