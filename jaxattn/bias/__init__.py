"""Which max-margin problem a trained variant obeys: its margins held against certified optima, norm by norm.

`rank` takes what `descent.train_batch` returns, and says of every norm how close the margins of W come to the largest
that a matrix of its length can have. Its verdict names the norms that W obeys, or says that it obeys none of them, or
that the run does not decide, and why.
"""

from jaxattn.bias.ranking import NORMS, Ranking, rank
from jaxattn.bias.verdict import CLOSE, FLAT, LEAST_SEEDS, Verdict

__all__ = ["CLOSE", "FLAT", "LEAST_SEEDS", "NORMS", "Ranking", "Verdict", "rank"]
