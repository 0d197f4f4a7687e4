"""Does descent on (K, Q) without a penalty converge to the nuclear solution, and under which step rules?"""

from jaxattn.experiments.local.kq_limit.claims import CLAIMS, estimate
from jaxattn.experiments.local.kq_limit.figure import draw
from jaxattn.experiments.local.kq_limit.measure import measure
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, claims=CLAIMS, estimate=estimate, draw=draw)
