"""Configurations: composed by Hydra, checked key by key, and turned into settings."""
