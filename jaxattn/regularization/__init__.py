"""Regularization paths: minimizers of the risk over balls of W, or of (K, Q), of increasing radius.

`path` and `narrow_path` take one problem, are pure, and work under `jit` and `vmap`; use `batch.over_seeds` for many
seeds.
"""

from jaxattn.regularization.balls import FROBENIUS, NUCLEAR, Ball, Frobenius, Narrow, Nuclear
from jaxattn.regularization.local import LocalPath, local_path
from jaxattn.regularization.narrow import NarrowPath, narrow_path
from jaxattn.regularization.path import Path, check_radii, path

__all__ = [
    "FROBENIUS",
    "NUCLEAR",
    "Ball",
    "Frobenius",
    "LocalPath",
    "Narrow",
    "NarrowPath",
    "Nuclear",
    "Path",
    "check_radii",
    "local_path",
    "narrow_path",
    "path",
]
