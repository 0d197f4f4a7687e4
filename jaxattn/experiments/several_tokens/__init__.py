"""Several selected tokens an input: the finite part of the limit beside the max-margin part."""
