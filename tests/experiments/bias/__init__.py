"""Experiments on the bias of training, by their folders."""
