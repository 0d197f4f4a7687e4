"""Gradient descent on attention weights: one training run, and many at once.

Written for one seed; `vmap` lifts it over seeds (`train_batch`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from jaxattn import attention, checks, heads, losses, models
from jaxattn.descent import gradients, loops, modelled, sharing, stepping
from jaxattn.descent.noise import Noise, full_batch
from jaxattn.descent.optimizers import Exact, ScaleFree, normalized_gd
from jaxattn.descent.penalties import unpenalized
from jaxattn.descent.run import Rule, Run
from jaxattn.parallel import batch
from jaxattn.problem import Problem, check_kind, is_concrete

__all__ = ["train", "train_batch"]


def train(
    weights: Any,
    problem: Problem,
    *,
    optimizer: optax.GradientTransformation | None = None,
    steps: int = 2000,
    snapshots: Sequence[int] = (),
    record_every: int = 1,
    loss: losses.Loss = losses.logistic,
    head: heads.Head = heads.linear,
    model: Any = models.plain,
    noise: Any = full_batch,
    penalty: Any = unpenalized,
    key: Any = None,
) -> Run:
    """Train attention weights on one problem by `steps` updates of `optimizer`.

    Pure; works under `jit` and `vmap`. It compiles once for each shape, number of steps and
    snapshots, loss, head, model, noise, penalty and kind of optimizer; other step sizes and snapshot steps reuse that.

    Args:
        weights: where descent starts; an array W, (d, d), Factored(K, Q), (d, m) each, or Spanned(B, Z), (n, d)
            each: a W in the span of the queries, for any d. Of other models whatever parameters these have.
        problem: one problem, without batch axes.
        optimizer: any optax transformation; `normalized_gd(0.1)` if None. Several heads, a trained readout and models
            of your own are given the gradient exact to rounding, also where it would be given as published.
        steps: number of updates.
        snapshots: steps after which the weights are kept, increasing, within 0..steps.
        record_every: steps from one entry of the series to the next.
        loss: a function of one margin.
        head: a function of one attention output and the problem's v.
        model: of `models`, or a function from parameters and a problem to logits, (n, T) or (heads, n, T).
        noise: `minibatches(size)`, `dropout(rate)`, `gumbel(tau)` or a law of your own; the gradient of all inputs by
            default.
        penalty: on the attention of every input, such as `entropy(weight)`, or a function of your own from log
            probabilities, (n, T), to its derivative with respect to the probabilities; none by default. With one, the
            gradient is given exact to rounding, also where it would be given as published. Minibatches and dropout
            leave it whole; with Gumbel samples it is on the softmax that the gradient passes through.
        key: of the noise; step k draws from `fold_in(key, k)`.

    Raises:
        ValueError: no Problem; weights or a head that do not fit it; a loss, head, model, penalty or optimizer that is
            none; weights or a head that are not finite where descent starts; steps or record_every < 1, snapshots out
            of order or range; a `ScaleFree` optimizer whose steps depend on the gradient's scale; noise without a key,
            or a key without noise.

    Example:
        >>> run = descent.train(start, problem, steps=100, snapshots=(1, 10, 100))
        >>> run.snapshots.shape, run.loss.shape
        ((3, 5, 5), (100,))
    """
    rule = _rule(optimizer, steps, record_every, loss, head, model, noise, penalty)
    _check_fit(weights, problem, rule)
    _check_start(weights, problem, rule)
    init, kept, run = _prepared(weights, snapshots, rule)
    _check_noise(noise, key, ())
    words = None if key is None else jax.random.key_data(key)
    # Beside the program: in it, every rule would compile one of its own.
    return run(weights, problem, init(weights), words, kept)._replace(rule=rule)


def outline(
    weights: Any,
    problem: Problem,
    *,
    optimizer: optax.GradientTransformation | None = None,
    steps: int = 2000,
    snapshots: Sequence[int] = (),
    record_every: int = 1,
    loss: losses.Loss = losses.logistic,
    head: heads.Head = heads.linear,
    model: Any = models.plain,
    noise: Any = full_batch,
    penalty: Any = unpenalized,
) -> Run:
    """Return a Run of zeros of the shapes and types that `train` has, without tracing its steps.

    Arguments as of `train`, and errors but for those that a loss or an optimizer's own steps raise.
    """
    rule = _rule(optimizer, steps, record_every, loss, head, model, noise, penalty)
    _check_fit(weights, problem, rule)
    _, kept, _ = _prepared(weights, snapshots, rule)
    return _outline(weights, problem, len(kept), steps, record_every)._replace(rule=rule)


def train_batch(
    weights: Any,
    problems: Problem,
    *,
    optimizer: optax.GradientTransformation | None = None,
    steps: int = 2000,
    snapshots: Sequence[int] = (),
    record_every: int = 1,
    loss: losses.Loss = losses.logistic,
    head: heads.Head = heads.linear,
    model: Any = models.plain,
    noise: Any = full_batch,
    penalty: Any = unpenalized,
    keys: Any = None,
    chunk: int | None = None,
    of: int | None = None,
) -> Run:
    """Train a batch of problems with one leading axis, in chunks of bounded memory.

    Lane i is what `train` returns for it alone, to rounding. Short runs of a free W that moves along its gradient share
    a program for all d up to 32, 64, ..., where that is faster than to compile one. Returns a Run of NumPy arrays, the
    batch axis first.
    Arguments and errors as in `train`, with a key of the noise for each seed; `chunk` as in `batch.chunks`. A study
    trained in several batches names the number of its seeds as `of`: then all of them run the same program, and no
    batch shows in a result.

    Example:
        >>> problems = jax.vmap(lambda key: data.sphere(key, n=3, T=4, d=5))(jax.random.split(key, 8))
        >>> descent.train_batch(jnp.zeros((8, 5, 5)), problems, steps=10).weights.shape
        (8, 5, 5)
    """
    rule = _rule(optimizer, steps, record_every, loss, head, model, noise, penalty)
    first = jax.tree.map(lambda leaf: leaf[0], (weights, problems))
    # A head that does not fit should name the shape that was given, not that of the program.
    _check_fit(first[0], first[1], rule)
    init, kept, run = _prepared(first[0], snapshots, rule)
    _check_noise(noise, keys, problems.X.shape[:1])
    words = None if keys is None else np.asarray(jax.random.key_data(keys))
    state = jax.vmap(init)(weights)
    d, plan = problems.d, _plan(weights, problems, len(kept), rule, of)
    if plan.d != d:
        weights, problems = sharing.padded_to(weights, {1: plan.d, 2: plan.d}), sharing.laid_out(problems, plan.d)

    def cut(part: Run) -> Run:
        if plan.d == d:
            return part
        # Copies, so that what was added is let go.
        own = {name: getattr(part, name)[..., :d, :d].copy() for name in ("weights", "snapshots")}
        return part._replace(**own)

    lane = jax.tree.map(sharing.of_lane, (weights, problems, state))
    one = jax.eval_shape(partial(_outline, kept=len(kept), steps=steps, record_every=record_every), *lane[:2])
    width = batch.program_lanes(lane, one, batch.length(problems), of)
    found = batch.over_seeds(
        run,
        weights,
        problems,
        state,
        words,
        shared=(kept,),
        chunk=chunk,
        width=width,
        of=of,
        effort=plan.effort,
        cut=cut,
    )
    return found._replace(rule=rule)


def _rule(
    optimizer: Any, steps: int, record_every: int, loss: Any, head: Any, model: Any, noise: Any, penalty: Any
) -> Rule:
    """Return what `train` was told, or raise ValueError for the first part that is no such thing."""
    optimizer = normalized_gd(0.1) if optimizer is None else optimizer
    checks.transformation("optimizer", optimizer)
    for name, value, arguments in (
        ("loss", loss, ("margin",)),
        ("head", head, ("x", "v")),
        ("noise", noise, ("key", "n", "T")),
        ("penalty", penalty, ("log_probabilities",)),
    ):
        checks.function(name, value, arguments)
    return Rule(optimizer, steps, record_every, loss, head, models.of(model), noise, penalty)


def _outline(weights: Any, problem: Problem, kept: int, steps: int, record_every: int) -> Run:
    """Return a Run of zeros of the shapes and types that a trained one has."""
    series = jnp.zeros(-(-steps // record_every), problem.X.dtype)
    end = jax.tree.map(jnp.zeros_like, weights)
    along_run = jax.tree.map(lambda leaf: jnp.zeros((kept, *leaf.shape), leaf.dtype), end)
    return Run(end, along_run, series, series, series, jnp.zeros((), int), jnp.zeros(kept, int))


def _plan(weights: Any, problems: Problem, kept: int, rule: Rule, of: int | None) -> sharing.Plan:
    """Return how a batch is trained; positions, noise and penalties know no coordinates that are added."""
    if isinstance(rule.model, models.Seeing):
        update, steps, head = rule.optimizer.update, rule.steps, rule.head
        is_plain = rule.model == models.plain and rule.noise is full_batch and rule.penalty is unpenalized
        return sharing.plan(update, weights, problems, steps, kept, head, of, standard=is_plain)
    return sharing.plan_of_model(weights, problems, rule.steps, of)


def _check_fit(weights: Any, problem: Problem, rule: Rule) -> None:
    """Raise ValueError unless weights, model and head fit the problem; nothing is computed."""
    check_kind(problem)
    if isinstance(rule.model, models.Seeing):
        attention.check_weights(weights, problem)
    jax.eval_shape(partial(_outputs, model=rule.model, head=rule.head), weights, problem)


def _check_noise(noise: Noise, keys: Any, shape: tuple[int, ...]) -> None:
    if noise is full_batch:
        if keys is not None:
            raise ValueError("noise: expected a law such as descent.dropout(0.1) for the key, found full_batch")
        return
    is_key = hasattr(keys, "dtype") and jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
    if not is_key or keys.shape != shape:
        found = f"shape {keys.shape} of {keys.dtype}" if hasattr(keys, "dtype") else repr(keys)
        wanted = f"keys of shape {shape}" if shape else "one"
        raise ValueError(f"key: expected {wanted} for the noise, as jax.random.key(0) gives them, found {found}")


def _check_start(weights: Any, problem: Problem, rule: Rule) -> None:
    """Raise ValueError unless weights and head are finite where descent starts; under `jit` this cannot be read."""
    if not all(map(is_concrete, jax.tree.leaves((weights, problem)))):
        return
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(weights)):
        raise ValueError("weights: expected finite numbers, found NaN or infinity among them")
    values = np.asarray(_outputs(weights, problem, rule.model, rule.head))
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        raise ValueError(
            f"head: expected finite numbers, found {values[wrong[0]]} of input {wrong[0]} where descent starts "
            f"({wrong.size} of {values.size} inputs)"
        )


@partial(jax.jit, static_argnums=(2, 3))
def _outputs(weights: Any, problem: Problem, model: models.Model, head: heads.Head) -> Float[Array, " n"]:
    """Return what the head makes of every input."""
    params, readout = models.parts(weights)
    probabilities = jax.nn.softmax(model.logits(params, problem), axis=-1)
    return model.predictions(readout, probabilities, problem, head)


def rule_of(optimizer: optax.GradientTransformation) -> gradients.Rule:
    """Return what an optimizer is given: the gradient as published or exact, or its direction if it sees no more."""
    if isinstance(optimizer, ScaleFree):
        return gradients.direction
    return gradients.exact if isinstance(optimizer, Exact) else gradients.gradient


def _prepared(
    weights: Any, snapshots: Sequence[int], rule: Rule
) -> tuple[Callable[[Any], Any], Int[Array, " snapshots"], loops.Trainer]:
    """Check the arguments that `train` and `train_batch` share.

    Returns how the optimizer begins, the snapshots, and the compiled run.
    """
    optimizer, model = rule.optimizer, rule.model
    kept = stepping.checked(rule.steps, rule.record_every, snapshots)
    # What both programs are made for, in the order of their arguments.
    series, reading, chance = (rule.steps, rule.record_every), (rule.loss, rule.head), (rule.noise, rule.penalty)
    if not isinstance(model, models.Seeing):
        init, updates = modelled.begun(optimizer, weights)
        gradient = modelled.rule_of(optimizer)
        return init, kept, loops.trainer_of_model(updates, *series, *reading, gradient, model, *chance)
    init, update = optimizer.init, optimizer.update
    if isinstance(optimizer, ScaleFree):
        init, update = modelled.scale_free(optimizer, weights)
    gradient = rule_of(optimizer) if rule.penalty is unpenalized else modelled.rule_of(optimizer)
    run = loops.trainer(update, *series, *reading, gradient, None, model, *chance)
    return init, kept, run
