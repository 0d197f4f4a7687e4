"""From random starts, does attention to the prefix with a fixed head tend to the max-margin solution?"""
