"""Does descent reach the direction of W_mm from any start if tokens are nearly orthogonal, and how fast?"""
