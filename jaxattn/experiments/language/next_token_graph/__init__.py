"""Next-token prediction by attention: token-priority graphs, their SVM, and the finite part within cycles."""

from jaxattn.experiments.language.next_token_graph.claims import CLAIMS, estimate
from jaxattn.experiments.language.next_token_graph.figure import draw
from jaxattn.experiments.language.next_token_graph.measure import measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, CLAIMS, estimate=estimate, draw=draw)
