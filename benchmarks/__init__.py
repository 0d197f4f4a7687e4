"""What the README quotes, measured: one file a subject; `make bench` runs them all."""
