"""Is the rank of the SVM solutions at most n, and do their rows lie in the span of the queries?"""
