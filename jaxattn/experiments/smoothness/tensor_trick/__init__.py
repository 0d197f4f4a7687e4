"""Is causal attention by the tensor trick the same as in the matrix form, and at what cost?"""
