"""What is the rank of the SVM solutions, and is it lower in the nuclear norm?"""

from jaxattn.experiments.max_margin.low_rank_lemma import measure
from jaxattn.experiments.max_margin.svm_rank.claims import CLAIMS
from jaxattn.experiments.max_margin.svm_rank.estimates import summarize
from jaxattn.experiments.max_margin.svm_rank.figure import draw, view
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, claims=CLAIMS, summarize=summarize, draw=draw, view=view)
