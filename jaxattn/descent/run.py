"""The result of a training run, and the rule that it followed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax
import optax
from jaxtyping import Array, Float, Int

from jaxattn import heads, losses, models
from jaxattn.checks import Keyed
from jaxattn.descent.noise import Noise, full_batch
from jaxattn.descent.penalties import Penalty, unpenalized

__all__ = ["Rule", "Run"]


@jax.tree_util.register_static
@dataclass(frozen=True, eq=False)
class Rule:
    """How a run was trained: all arguments of `train` except weights, problem, snapshots and key.

    For `jax.tree` and `jit` the rule is part of a run's structure, not data. `jax.tree.map` can therefore combine
    several runs only if they have the same rule, or none: use `run._replace(rule=None)`. Rules are equal if their parts
    are; dataclasses that hold arrays are compared by content. Optimizers of `jaxattn` are equal if made from the same
    numbers, those of optax if they are the same object.
    """

    optimizer: optax.GradientTransformation
    steps: int = 2000
    record_every: int = 1
    loss: losses.Loss = losses.logistic
    head: heads.Head = heads.linear
    model: models.Model = models.plain
    noise: Noise = full_batch
    penalty: Penalty = unpenalized

    def _parts(self) -> tuple[Any, ...]:
        # As tuples, an optimizer and its `Exact` or `ScaleFree` version would be equal.
        return type(self.optimizer), *(Keyed(getattr(self, field.name)) for field in fields(self))

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

    In a batch, as `train_batch` returns it and `bias.rank` expects it, each array has a leading seed axis.

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
