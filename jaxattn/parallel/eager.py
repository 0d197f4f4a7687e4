"""Internal: compute with known numbers while a function is traced."""

from contextlib import AbstractContextManager, nullcontext

import jax
import jax.numpy as jnp
from jax.core import Tracer


def computing() -> AbstractContextManager[object]:
    """Return a context in which known arrays are computed with at once, inside a function under `jit` as well.

    Outside such functions this is so anyway, and JAX's own context would compile each constant of each program that is
    traced there, a hundred small programs for some solvers.
    """
    is_traced = isinstance(jnp.zeros(()), Tracer)
    return jax.ensure_compile_time_eval() if is_traced else nullcontext()
