"""Mirror descent with the l_p potential: which max-margin problem it obeys, and how fast."""
