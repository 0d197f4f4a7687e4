"""Does any optimizer, task, depth or kind of position make the heads of a trained decoder obey an Att-SVM?"""

from jaxattn.experiments.beyond.decoders.claims import CLAIMS, summarize
from jaxattn.experiments.beyond.decoders.figure import draw
from jaxattn.experiments.beyond.decoders.measure import measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, claims=CLAIMS, summarize=summarize, draw=draw)
