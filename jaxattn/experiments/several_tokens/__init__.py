"""Several selected tokens per input: the finite part of the limit in addition to the max-margin part."""
