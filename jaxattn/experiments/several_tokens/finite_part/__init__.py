"""Are the ratios of the attention inside the selected sets finite, and are they those that the problem determines?"""
