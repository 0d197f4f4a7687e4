"""Which SVM do sequence-to-sequence and causal self-attention reach, if every position selects a token?"""
