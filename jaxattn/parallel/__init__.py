"""Many seeds at once: batches in chunks of a memory budget, lanes of one program, processes of one run."""
