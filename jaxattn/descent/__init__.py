"""Gradient descent on attention weights: training functions, optimizers, steps, noise and penalties."""

from jaxattn.descent.autodiff_engine import Direction, direction
from jaxattn.descent.mirror import lp_gd, mirror
from jaxattn.descent.momentum import momentum, scale_free
from jaxattn.descent.noise import Draw, Noise, Sample, dropout, full_batch, gumbel, minibatches
from jaxattn.descent.optimizers import (
    PUBLISHED_EPSILON,
    Exact,
    ScaleFree,
    exact_normalized_gd,
    gd,
    jointly_normalized_gd,
    long_first_gd,
    normalized_gd,
)
from jaxattn.descent.penalties import Penalty, entropy, unpenalized
from jaxattn.descent.run import Rule, Run, trained_weights
from jaxattn.descent.steepest import steepest
from jaxattn.descent.step_schedules import falling, falling_step, relative
from jaxattn.descent.training import train, train_batch

__all__ = [
    "PUBLISHED_EPSILON",
    "Direction",
    "Draw",
    "Exact",
    "Noise",
    "Penalty",
    "Rule",
    "Run",
    "Sample",
    "ScaleFree",
    "direction",
    "dropout",
    "entropy",
    "exact_normalized_gd",
    "falling",
    "falling_step",
    "full_batch",
    "gd",
    "gumbel",
    "jointly_normalized_gd",
    "long_first_gd",
    "lp_gd",
    "minibatches",
    "mirror",
    "momentum",
    "normalized_gd",
    "relative",
    "scale_free",
    "steepest",
    "train",
    "train_batch",
    "trained_weights",
    "unpenalized",
]
