"""Tests of jaxattn.svm."""
