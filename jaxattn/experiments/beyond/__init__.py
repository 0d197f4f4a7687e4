"""Questions beyond the papers: real tokens, and two layers of attention trained together."""
