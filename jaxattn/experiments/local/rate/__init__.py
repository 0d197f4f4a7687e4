"""At what rate does descent on W and on (K, Q) converge to the direction of its max-margin solution?"""
