"""The places in the second paper that the experiments of this topic test."""

from jaxattn.study.claims import Setting, Source

_PAPER = "withdrawn ICLR 2024 submission on attention and SVM in causal language modelling"

# The paper's logistic loss has the wrong sign; the losses here replace it.
LIPSCHITZ = Source(_PAPER, "Lemma 3.13 and section 3.4, Lipschitz constant of the gradient", Setting.PROXY)

# The paper says that it compares Lipschitz constants, but gives none for linear attention.
_STABILITY = "section 1, last contribution: softmax attention is more stable than linear attention"
STABLE_CURVATURE = Source(_PAPER, _STABILITY, Setting.PROXY)
# Steps and divergence are our reading of "stable".
STABLE_STEPS = Source(_PAPER, _STABILITY, Setting.OURS)

# The paper writes no causal mask and computes nothing in this form.
TENSOR_TRICK = Source(_PAPER, "section 1 and Definitions 3.1 to 3.3, tensor trick", Setting.PROXY)
