"""How often does descent select globally optimal tokens, only locally optimal ones, or neither, against d?"""
