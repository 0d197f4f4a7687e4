"""When does descent select the optimal tokens: by its first gradient, and by the spread of the other scores?"""
