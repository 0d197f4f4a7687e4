"""Schedule-free optimizers, which average their steps, with the exact gradient."""

from __future__ import annotations

import optax

from jaxattn import descent


def schedule_free(base: optax.GradientTransformation, step: float) -> descent.Exact:
    """Return `optax.contrib.schedule_free` of an optimizer with this step size, along the exact gradient.

    The weights are those at which gradients are taken, nine tenths average and one tenth the base's own.

    Example:
        >>> optimizer = schedule_free(descent.steepest("frobenius", 0.1), 0.1)
    """
    return descent.Exact(*optax.contrib.schedule_free(base, step))
