"""Which SVM do sequence-to-sequence and causal self-attention reach, where every position selects a token?"""
