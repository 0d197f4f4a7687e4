"""How fast training reaches its limit on data with nearly orthogonal tokens (2402.05738)."""
