"""What a training run returns, and the rule that it followed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax
import optax
from jaxtyping import Array, Float, Int

from jaxattn import heads, losses, models
from jaxattn.descent.noise import Noise
from jaxattn.descent.penalties import Penalty

__all__ = ["Rule", "Run"]


@jax.tree_util.register_static
@dataclass(frozen=True, eq=False)
class Rule:
    """How a run was trained: all arguments of `train` but its weights, problem, snapshots and key.

    To `jax.tree` and `jit` it is part of a run's structure, and no data. So `jax.tree.map` takes several runs by one
    rule; of runs by different ones, those without it, `run._replace(rule=None)`. Rules are equal if their parts are:
    optimizers of `jaxattn` if made of the same numbers, those of optax if they are the same object.
    """

    optimizer: optax.GradientTransformation
    steps: int
    record_every: int
    loss: losses.Loss
    head: heads.Head
    model: models.Model
    noise: Noise
    penalty: Penalty

    def _parts(self) -> tuple[Any, ...]:
        # As tuples, an optimizer and the same one as `Exact` or `ScaleFree` are equal.
        return type(self.optimizer), *(getattr(self, field.name) for field in fields(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rule) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())


class Run(NamedTuple):
    """One training run.

    Attributes:
        weights: after the last update: those of the attention, or whatever parameters the model has.
        snapshots: the same pytree with a leading axis over the snapshot steps; the entry of step k
            is read after k updates.
        probability: mean over inputs (and heads) of the largest attention probability, (steps,).
        loss: risk, without a penalty, (steps,).
        gradient_norm: Euclidean norm of the gradient over all weights, (steps,).
        stalled: the first step of the series at which rounding errors of the gradient, floor and penalty are together
            at least half as long as the gradient, (); what follows says nothing about limits. -1 where there is none,
            as for every `ScaleFree` optimizer.
        snapshot_steps: the steps of the snapshots, (snapshots,).
        rule: by which it was trained; None of a run that was put together from arrays.

    The three series are read *before* the update of their step, as the published code does; with
    `record_every` above 1 of the steps 0, record_every, 2 record_every, ... only.
    """

    weights: Any
    snapshots: Any
    probability: Float[Array, " steps"]
    loss: Float[Array, " steps"]
    gradient_norm: Float[Array, " steps"]
    stalled: Int[Array, ""]
    snapshot_steps: Int[Array, " snapshots"]
    rule: Rule | None = None
