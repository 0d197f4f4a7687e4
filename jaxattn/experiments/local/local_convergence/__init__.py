"""Does descent on W align with the Frobenius solution, and descent on (K, Q) with the nuclear one, as published?"""
