"""At what rate does descent on W and on (K, Q) approach the direction of its max-margin solution?"""
