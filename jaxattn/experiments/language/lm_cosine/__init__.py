"""Does the cosine of W with the soft-margin solution of its text rise towards 1 during training?"""

from jaxattn.experiments.language.lm_cosine.claims import CLAIMS, estimate
from jaxattn.experiments.language.lm_cosine.figure import draw
from jaxattn.experiments.language.lm_cosine.measure import measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, CLAIMS, estimate=estimate, draw=draw)
