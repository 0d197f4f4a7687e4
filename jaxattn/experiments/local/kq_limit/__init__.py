"""Does descent on (K, Q) without a penalty tend to the nuclear solution, and what does the rule of its step decide?"""
