"""How few pairs of a prefix and a word carry the gradient during training, and are they support vectors?"""

from jaxattn.experiments.language.gradient_sparsity.claims import CLAIMS, estimate
from jaxattn.experiments.language.gradient_sparsity.figure import draw
from jaxattn.experiments.language.gradient_sparsity.measure import measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, CLAIMS, estimate=estimate, draw=draw)
