"""Find which max-margin problem training obeys, by comparing margins with certified optima in several norms.

`rank` takes the result of `descent.train_batch`, and computes for each norm how close the margins of W come to the
largest possible margin of a matrix of the same length. Its verdict names the norms that W obeys, states that W obeys
none of them, or gives the reason why the run does not decide.
"""

from jaxattn.bias.ranking import NORMS, Ranking, rank
from jaxattn.bias.verdict import CLOSE, FLAT, Verdict

__all__ = ["CLOSE", "FLAT", "NORMS", "Ranking", "Verdict", "rank"]
