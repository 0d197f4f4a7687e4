"""Figures, drawn from computed estimates; nothing here trains or solves."""
