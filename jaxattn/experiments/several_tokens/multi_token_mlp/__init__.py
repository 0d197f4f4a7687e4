"""Under a ReLU head, how close is the trained W to W_fin + C W_mm, to W_mm, and to the single-token solution?"""

from jaxattn.experiments.several_tokens.multi_token_mlp.claims import CLAIMS
from jaxattn.experiments.several_tokens.multi_token_mlp.figure import draw
from jaxattn.experiments.several_tokens.multi_token_mlp.measure import measure, summarize
from jaxattn.study.claims import Experiment

EXPERIMENT = Experiment(measure, claims=CLAIMS, summarize=summarize, draw=draw)
