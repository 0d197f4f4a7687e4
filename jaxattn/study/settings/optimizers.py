"""Any optax transformation as the optimizer of a configuration, with the gradient that suits it."""

from __future__ import annotations

import contextlib

import jax
import jax.numpy as jnp
import optax

from jaxattn import checks
from jaxattn.descent import Exact, ScaleFree
from jaxattn.descent.autodiff_engine import begun


def suited(optimizer: optax.GradientTransformation) -> ScaleFree | Exact:
    """Return an optimizer as `ScaleFree` if it is scale-free, and as `Exact` if it is not.

    A scale-free optimizer takes the same steps for c times the gradients. It gets the gradient's direction in the log
    domain, which never underflows. Any other gets the gradient exact to rounding, until that underflows. ValueError:
    not an optax transformation, or one that needs more than the gradient and the weights.
    """
    checks.transformation("optimizer", optimizer)
    with jax.enable_x64(True):
        W = jnp.zeros((4, 4))
        try:
            begun(Exact(*optimizer), W, has_engine=True)
        except Exception as error:  # A user's optimizer may raise anything.
            raise ValueError(
                "optimizer: expected one that needs only the gradient and the weights, found one that raised "
                f"{type(error).__name__}: {error}"
            ) from error
        # Some have NaN among their numbers, which does not equal itself; compiled as a whole, they keep them.
        for update in (optimizer.update, jax.jit(optimizer.update)):
            with contextlib.suppress(Exception):  # As above.
                begun(own := ScaleFree(optimizer.init, update), W, has_engine=True)
                return own
    return Exact(*optimizer)
