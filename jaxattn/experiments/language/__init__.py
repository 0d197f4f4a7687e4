"""The second paper: attention trained on texts, compared with their max-margin problems."""

# The paper whose claims these experiments decide.
PAPER = "withdrawn ICLR 2024 submission on attention and SVM in causal language modelling"
