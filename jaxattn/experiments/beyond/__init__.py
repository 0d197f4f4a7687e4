"""Questions beyond the papers: real tokens, and two layers of attention that are trained together."""
