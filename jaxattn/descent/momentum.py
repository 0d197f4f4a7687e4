"""Wrappers of optimizers: `scale_free` and `momentum`."""

from __future__ import annotations

from typing import Any, cast

import optax

from jaxattn import checks
from jaxattn.checks import Number
from jaxattn.descent.optimizers import ScaleFree, pickled_as_made

__all__ = ["momentum", "scale_free"]


def scale_free(optimizer: optax.GradientTransformation | optax.MultiSteps) -> ScaleFree:
    """Return an optimizer as `ScaleFree`: it gets the gradient in the log domain, and does not stall.

    This is `ScaleFree(*optimizer)` under a name for configurations. Momentum and second moments are those of the
    gradient itself. `train` refuses an optimizer that depends on the gradient's scale. Of optax, `adam`, `rmsprop`,
    `adamax`, `lamb` and `contrib.muon` need `eps=0.0`; `lion` and `sign_sgd` need nothing; `sgd`, `yogi`, `adafactor`
    and clipping at a fixed length are refused.

    Raises:
        ValueError: not an optax transformation.

    Example:
        >>> rule = descent.scale_free(optax.contrib.muon(0.03, eps=0.0))
        >>> run = descent.train(start, problem, optimizer=rule, steps=10)
    """
    checks.transformation("optimizer", optimizer)
    return ScaleFree(optimizer.init, cast(Any, optimizer.update))


@pickled_as_made
def momentum(optimizer: optax.GradientTransformation, decay: Number = 0.9) -> ScaleFree:
    """Return an optimizer that gets heavy-ball momentum, `m <- decay m + gradient`, instead of the gradient.

    With `steepest("frobenius", step)` it is normalized descent with momentum, with "max" Signum, with "spectral" Muon
    with the exact polar factor. The moments are those of the gradient itself, whatever its scale.

    Args:
        optimizer: one that does not depend on the gradient's scale: `steepest` or `mirror`, for example.
        decay: at least 0 and below 1.

    Raises:
        ValueError: not an optax transformation, or a decay outside [0, 1).

    Example:
        >>> rule = descent.momentum(descent.steepest("spectral", 0.03), decay=0.95)
        >>> run = descent.train(start, problem, optimizer=rule, steps=10)
    """
    checks.transformation("optimizer", optimizer)
    decay = checks.number("decay", decay, "a number of at least 0 and below 1", lambda decay: 0 <= decay < 1)
    return ScaleFree(*optax.chain(optax.trace(decay), optimizer))
