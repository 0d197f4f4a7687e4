"""Run many seeds at once: batches in chunks of bounded memory, lanes of a program, and processes of a run."""
