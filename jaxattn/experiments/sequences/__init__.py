"""Sequence-to-sequence and causal attention: one set of constraints for each input and position."""
