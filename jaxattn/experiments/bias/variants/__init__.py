"""Which norm's max-margin problem variants of attention obey: several heads, positions, normalized tokens, values."""
