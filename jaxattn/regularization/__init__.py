"""Regularization paths: the smallest risk on a ball of W, or of (K, Q), for every radius.

`path` and `narrow_path` are pure and work under `jit` and `vmap`; they are written for one problem, and
`batch.over_seeds` lifts them.
"""

from jaxattn.regularization.balls import FROBENIUS, NUCLEAR, Ball, Frobenius, Narrow, Nuclear
from jaxattn.regularization.narrow import NarrowPath, narrow_path
from jaxattn.regularization.path import Path, check_radii, path

__all__ = [
    "FROBENIUS",
    "NUCLEAR",
    "Ball",
    "Frobenius",
    "Narrow",
    "NarrowPath",
    "Nuclear",
    "Path",
    "check_radii",
    "narrow_path",
    "path",
]
