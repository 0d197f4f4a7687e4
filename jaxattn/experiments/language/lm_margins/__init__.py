"""Do the margins of the next word over other candidates become large, and is the smallest one maximized throughout?"""

from jaxattn.experiments.language.lm_margins.claims import CLAIMS, summarize
from jaxattn.experiments.language.lm_margins.figure import draw, view
from jaxattn.experiments.language.lm_margins.measure import measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, claims=CLAIMS, summarize=summarize, draw=draw, view=view)
