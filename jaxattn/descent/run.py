"""The result of a training run, and the rule that it followed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import jax
import optax
from jaxtyping import Array, Float, Int

from jaxattn import heads, losses, models
from jaxattn.descent import array_fields
from jaxattn.descent.noise import Noise, full_batch
from jaxattn.descent.penalties import Penalty, unpenalized

__all__ = ["Rule", "Run", "trained_weights"]


# The parts of a rule that may have arrays in their fields.
FUNCTIONS = "loss", "head", "model", "noise", "penalty", "read"

# Maps the optimizer's state and the weights to the weights that a run contains.
Read = Callable[[Any, Any], Any]


def trained_weights(state: Any, weights: Any) -> Any:
    """Return the weights: a run contains those that are trained.

    Example:
        >>> descent.trained_weights(None, start) is start
        True
    """
    del state
    return weights


@jax.tree_util.register_static
@dataclass(frozen=True, eq=False)
class Rule:
    """How a run was trained: all arguments of `train` except weights, problem, snapshots and key.

    For `jax.tree` and `jit` the rule is part of a run's structure, not data. `jax.tree.map` can therefore combine
    several runs only if they have the same rule, or none: use `run._replace(rule=None)`. Rules are equal if their parts
    are. Optimizers of `jaxattn` are equal if made from the same numbers, those of optax if they are the same object.
    """

    optimizer: optax.GradientTransformation
    steps: int = 2000
    record_every: int = 1
    loss: losses.Loss = losses.logistic
    head: heads.Head = heads.linear
    model: models.Model = models.plain
    noise: Noise = full_batch
    penalty: Penalty = unpenalized
    read: Read = trained_weights

    def emptied(self) -> tuple[Rule, tuple[Any, ...]]:
        """Return the rule without the arrays in its functions, and the arrays."""
        parts, arrays = array_fields.emptied(tuple(getattr(self, name) for name in FUNCTIONS))
        return replace(self, **dict(zip(FUNCTIONS, parts, strict=True))), arrays

    def filled(self, arrays: Any) -> Rule:
        """Return the rule with arrays that `emptied` took out."""
        parts = array_fields.filled(tuple(getattr(self, name) for name in FUNCTIONS), arrays)
        return replace(self, **dict(zip(FUNCTIONS, parts, strict=True)))

    def _parts(self) -> tuple[Any, ...]:
        empty, arrays = self.emptied()
        # As tuples, an optimizer and its `Exact` or `ScaleFree` version would be equal.
        return (
            type(self.optimizer),
            *(getattr(empty, field.name) for field in fields(self)),
            *map(array_fields.content, arrays),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rule) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())


class Run(NamedTuple):
    """One training run.

    Attributes:
        weights: the attention weights, or the model's parameters, after the last update.
        snapshots: the weights at the snapshot steps, stacked along a leading axis; the entry of step k is read after k
            updates.
        probability: mean over inputs (and heads) of the largest attention probability, (steps,).
        loss: the risk without penalty, (steps,).
        gradient_norm: the Euclidean norm of the gradient over all weights, (steps,).
        stalled: the first recorded step at which the gradient's rounding errors, the floor and the penalty together are
            at least half as long as the gradient, (); later steps say nothing about limits. -1 if there is none, as for
            every `ScaleFree` optimizer.
        snapshot_steps: the steps of the snapshots, (snapshots,).
        rule: the rule that trained it; None for a run assembled from arrays.

    The three series are read *before* the update of their step, as in the published code. With `record_every` above 1
    they hold only the steps 0, record_every, 2 record_every, ...
    """

    weights: Any
    snapshots: Any
    probability: Float[Array, " steps"]
    loss: Float[Array, " steps"]
    gradient_norm: Float[Array, " steps"]
    stalled: Int[Array, ""]
    snapshot_steps: Int[Array, " snapshots"]
    rule: Rule | None = None
