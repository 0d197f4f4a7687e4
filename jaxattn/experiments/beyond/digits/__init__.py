"""Do the theorems hold on real tokens, patches of handwritten digits?"""
