"""Find which max-margin problem training obeys, by comparing margins with certified optima in several norms.

`rank` takes the result of `descent.train_batch`, and computes for each norm how close the margins of W come to the
largest possible margin of a matrix of the same length. Its verdict names the norms that W obeys, if they could be told
from all others and from their neighbours; states that W obeys none of them; or gives the reason why the run does not
decide. `rank_arrays` does the same for weights that another program trained, and `infer` finds the exponent of a family
of norms. `finite` is for runs whose weights stop growing, as with weight decay: it names the ball on which the risk is
stationary where they end. `kkt` measures whether a run approaches a KKT point of its own rule, which training (K, Q)
may do without reaching the optimum. `rank_factors` compares different rules for K and Q with a least product of norms.
`heads` compares the heads of one attention layer, given as arrays, with the optimum of each and with matrices that were
never trained.
"""

from jaxattn.bias.checkpoints import rank_arrays
from jaxattn.bias.exponents import Exponent
from jaxattn.bias.inference import Inferred, infer
from jaxattn.bias.nulls import Nulls
from jaxattn.bias.products import Products, rank_factors
from jaxattn.bias.ranking import NORMS, Ranking, rank
from jaxattn.bias.stationary import Kkt, kkt
from jaxattn.bias.stopping import Finite, finite, growth
from jaxattn.bias.trained_heads import Heads, heads
from jaxattn.bias.verdict import CLOSE, Verdict

__all__ = [
    "CLOSE",
    "NORMS",
    "Exponent",
    "Finite",
    "Heads",
    "Inferred",
    "Kkt",
    "Nulls",
    "Products",
    "Ranking",
    "Verdict",
    "finite",
    "growth",
    "heads",
    "infer",
    "kkt",
    "rank",
    "rank_arrays",
    "rank_factors",
]
