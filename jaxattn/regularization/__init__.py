"""Regularization paths: the smallest risk on a ball of W, or of (K, Q), for every radius.

`path` is pure and works under `jit` and `vmap`; it is written for one problem, and `batch.over_seeds` lifts it.
"""

from jaxattn.regularization.balls import FROBENIUS, NUCLEAR, Ball, Frobenius, Nuclear
from jaxattn.regularization.path import Path, check_radii, path

__all__ = ["FROBENIUS", "NUCLEAR", "Ball", "Frobenius", "Nuclear", "Path", "check_radii", "path"]
