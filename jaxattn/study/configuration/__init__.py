"""Configurations: composed by Hydra, every key checked, and made into settings."""
