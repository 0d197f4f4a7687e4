"""How often does descent select the optimal tokens, in which dimension, with how many inputs and tokens?"""
