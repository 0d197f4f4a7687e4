"""Settings: what to draw and train, and the record that is written."""
