"""Under a ReLU head, how close is the trained W to W_fin + C W_mm, to W_mm, and to the single-token solution?"""
