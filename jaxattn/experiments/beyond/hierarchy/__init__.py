"""Are the heads of trained decoders SVMs? A ladder from the theorem's setting to a decoder as people train them."""

from jaxattn.experiments.beyond.hierarchy.claims import CLAIMS
from jaxattn.experiments.beyond.hierarchy.estimates import summarize
from jaxattn.experiments.beyond.hierarchy.figure import draw
from jaxattn.experiments.beyond.hierarchy.heads import draw as draw_heads
from jaxattn.experiments.beyond.hierarchy.heads import view
from jaxattn.experiments.beyond.hierarchy.measure import measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, claims=CLAIMS, summarize=summarize, draw=draw, second=draw_heads, view=view)
