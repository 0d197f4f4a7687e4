"""From random starts, does attention to the prefix with a fixed head converge to the max-margin solution?"""
