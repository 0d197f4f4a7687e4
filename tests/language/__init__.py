"""Tests of jaxattn.language."""
