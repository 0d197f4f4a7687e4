"""Does a selector with an entropy penalty, Gumbel samples, heads or positions obey the SVM that attention obeys?

A machine-made summary ascribes this selector to 2308.16898. The rules were fixed before training.
"""

from jaxattn.experiments.bias.selector.claims import CLAIMS
from jaxattn.experiments.bias.selector.estimates import summarize
from jaxattn.experiments.bias.selector.figure import draw
from jaxattn.experiments.bias.selector.measure import measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, claims=CLAIMS, summarize=summarize, draw=draw)
