"""Under the head v . x - lambda ||x||^2, how many tokens does descent select, and what describes its direction?"""
