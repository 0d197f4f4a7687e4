"""Does descent reach the direction of W_mm from any start where tokens are nearly orthogonal, and how fast?"""
