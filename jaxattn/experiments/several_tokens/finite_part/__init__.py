"""Are the attention ratios inside the selected sets finite, and are they those that the problem determines?"""
