"""First stages: what to draw and train, and the record that is written of it."""
