"""Training a prompt p, alone and together with the head's v (2306.13596)."""
