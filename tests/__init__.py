"""Tests of jaxattn; the tree mirrors the package."""
