"""Which verdicts of the atlas change with the size of the problem, the start and the precision?"""
