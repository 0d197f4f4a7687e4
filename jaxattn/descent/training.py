"""Train attention weights by gradient descent: `train` takes one problem, `train_batch` many seeds."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jaxtyping import Array, Int

from jaxattn import attention, checks, heads, losses, models
from jaxattn.descent import array_fields, autodiff_engine, hyperparameters, loops, padding, stepping
from jaxattn.descent.noise import check_keys, full_batch
from jaxattn.descent.optimizers import Exact, ScaleFree, normalized_gd
from jaxattn.descent.penalties import unpenalized
from jaxattn.descent.run import FUNCTIONS, Rule, Run, trained_weights
from jaxattn.parallel import batch, eager
from jaxattn.problem import Problem, check_batch, check_one, is_concrete

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
    read: Any = trained_weights,
    key: Any = None,
) -> Run:
    """Train attention weights on one problem by `steps` updates of `optimizer`.

    Pure; works under `jit` and `vmap`. Of derivatives, `jax.jvp` works, `jax.grad` and `jax.jacfwd` do not. A program
    is compiled for each combination of shapes, numbers of steps and snapshots, loss, head, model, noise, penalty and
    kind of optimizer. Other snapshot steps reuse it, and so do other numbers in the optimizer, such as rates and
    decays. These, and arrays in fields of the other parts, may be traced values, for example under `jax.vmap`; the rule
    of such a run lacks them.

    Args:
        weights: the initial weights: an array W, (d, d), Factored(K, Q), (d, m) each, or Spanned(B, Z), (n, d) each,
            for a W in the span of the queries. Other models take parameters of their own form.
        problem: one problem, without batch axes.
        optimizer: any optax transformation that needs only gradient and weights. Default: `normalized_gd(0.1)`. With
            several heads, a trained readout or a model of your own, an optimizer that would get the published gradient
            gets the gradient exact to rounding instead.
        steps: the number of updates.
        snapshots: the steps after which the weights are kept, increasing, within 0..steps.
        record_every: the number of steps from one entry of the series to the next.
        loss: a function of one margin.
        head: a function of one attention output and the problem's v.
        model: a value of `models`, or a function from parameters and a problem to logits, (n, T) or (heads, n, T).
        noise: `minibatches(size)`, `dropout(rate)`, `gumbel(tau)` or a law of your own. Default: the gradient of all
            inputs, without noise.
        penalty: a penalty on the attention of each input: `entropy(weight)`, or a function of your own from log
            probabilities, (n, T), to the derivative of the penalty with respect to the probabilities. Default: none.
            With a penalty, an optimizer that would get the published gradient gets it exact to rounding instead.
            Minibatches and dropout do not change the penalty; with Gumbel samples it is applied to the softmax that the
            gradient passes through.
        read: a function from the optimizer's state and the weights to the weights of the run and its snapshots, such as
            `optax.contrib.schedule_free_eval_params`, or an average that the optimizer keeps. Training goes on from the
            weights themselves. Default: these.
        key: the random key of the noise; step k uses `fold_in(key, k)`. If the optimizer has random keys in its state,
            as `optax.add_noise` has, they are drawn from this one. `train_batch` then needs one for each seed.

    Raises:
        ValueError: not a Problem; weights or a head that do not fit it; an invalid loss, head, model, penalty, read or
            optimizer; weights, head values or losses that are not finite at the start; steps or record_every < 1,
            snapshots out of order or range; a `ScaleFree` optimizer whose steps depend on the gradient's scale; noise
            without a key, or a key without noise.

    Example:
        >>> run = descent.train(start, problem, steps=100, snapshots=(1, 10, 100))
        >>> run.snapshots.shape, run.loss.shape
        ((3, 5, 5), (100,))
    """
    rule = _rule(optimizer, steps, record_every, loss, head, model, noise, penalty, read)
    _check_fit(weights, problem, rule)
    _check_start(weights, problem, rule)
    kept, init, empty, arrays = _prepared(weights, snapshots, rule)
    state = init(weights)
    check_keys(noise, key, (), is_needed=False, is_of_use=hyperparameters.has_keys(state))
    state = state if key is None else hyperparameters.seeded(state, key)
    words = jax.random.key_data(key) if noise is not full_batch and key is not None else None
    run = loops.trainer(empty)(weights, problem, state, words, arrays, kept)
    # Set the rule outside the compiled program: inside, each rule would compile its own. Traced values must not stay.
    if _is_traced(arrays):
        rule = empty
    # A traced state may also come from traced weights alone.
    elif _is_traced(state) and _is_traced(jax.make_jaxpr(init)(weights).consts):
        rule = replace(rule, optimizer=empty.optimizer)
    return run._replace(rule=rule)


def _is_traced(arrays: Any) -> bool:
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(arrays))


def outline(weights: Any, problem: Problem, *, snapshots: Sequence[int] = (), **given: Any) -> Run:
    """Return a Run of zeros with the shapes and types that `train` returns, without tracing its steps.

    Takes the arguments of `train` and raises its errors, except those raised by a loss or by an optimizer's own steps.
    """
    rule = _rule(**given)
    _check_fit(weights, problem, rule)
    kept = _prepared(weights, snapshots, rule)[0]
    return _zeros(weights, problem, len(kept), rule)


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
    read: Any = trained_weights,
    keys: Any = None,
    chunk: int | None = None,
    of: int | None = None,
) -> Run:
    """Train a batch of problems with one leading axis, in chunks of bounded memory.

    Lane i equals the result of `train` for it alone, to rounding. Short runs of a free W that moves along its gradient
    share one program for all d up to 16, 32, ..., if that is faster than compiling a new one. Returns a Run of NumPy
    arrays with the batch axis first. The arguments and errors are those of `train`, with `keys`, one noise key per
    seed, and `chunk` as in `batch.chunks`. A seed whose numbers are not finite at the start is no error, so that it
    does not end the others: like one that diverges later, it is not finite at the end. If you train a study in several
    batches, pass its total number of seeds as `of`: all batches then run the same program, and the results do not
    depend on how the study is split.

    Example:
        >>> problems = jax.vmap(lambda key: data.sphere(key, n=3, T=4, d=5))(jax.random.split(key, 8))
        >>> descent.train_batch(jnp.zeros((8, 5, 5)), problems, steps=10).weights.shape
        (8, 5, 5)
    """
    rule = _rule(optimizer, steps, record_every, loss, head, model, noise, penalty, read)
    count = check_batch(problems)
    if any(np.shape(leaf)[:1] != (count,) for leaf in jax.tree.leaves(weights)):
        shapes = jax.tree.map(np.shape, weights)
        raise ValueError(f"weights: expected a start for each of {count} problems, found arrays of shape {shapes}")
    first = jax.tree.map(lambda leaf: leaf[0], (weights, problems))
    # An error about a head should name the user's shape, not the program's padded one.
    _check_fit(first[0], first[1], rule)
    kept, init, empty, arrays = _prepared(first[0], snapshots, rule)
    run = loops.trainer(empty)
    state = jax.vmap(init)(weights)
    batch.check_concrete((weights, problems, state, arrays))
    has_keys = hyperparameters.has_keys(state)
    check_keys(noise, keys, problems.X.shape[:1], is_needed=has_keys, is_of_use=has_keys)
    state = jax.vmap(hyperparameters.seeded)(state, keys) if has_keys else state
    words = None if noise is full_batch else np.asarray(jax.random.key_data(keys))
    arrays = tuple(np.broadcast_to(array, (count, *array.shape)) for array in arrays)
    d, plan = problems.d, padding.plan(rule, weights, problems, len(kept), of)
    if plan.d != d:
        weights, problems = padding.padded_to(weights, {1: plan.d, 2: plan.d}), padding.laid_out(problems, plan.d)

    def cut(part: Run) -> Run:
        if plan.d == d:
            return part
        # Copy, so that the padded arrays can be freed.
        own = {name: getattr(part, name)[..., :d, :d].copy() for name in ("weights", "snapshots")}
        return part._replace(**own)

    lane = jax.tree.map(padding.of_lane, (weights, problems, state))
    one = jax.eval_shape(partial(_zeros, kept=len(kept), rule=rule), *lane[:2])
    width = batch.program_lanes(lane, one, count, of)
    parts = {"chunk": chunk, "width": width, "of": of, "effort": plan.effort, "cut": cut}
    return batch.over_seeds(run, weights, problems, state, words, arrays, shared=(kept,), **parts)._replace(rule=rule)


def _rule(
    optimizer: Any = None,
    steps: int = 2000,
    record_every: int = 1,
    loss: Any = losses.logistic,
    head: Any = heads.linear,
    model: Any = models.plain,
    noise: Any = full_batch,
    penalty: Any = unpenalized,
    read: Any = trained_weights,
) -> Rule:
    """Return the arguments of `train` as a Rule, or raise ValueError for the first invalid one."""
    optimizer = normalized_gd(0.1) if optimizer is None else optimizer
    checks.transformation("optimizer", optimizer)
    checks.function("loss", loss, ("margin",))
    checks.function("head", head, ("x", "v"))
    checks.function("noise", noise, ("key", "n", "T"))
    checks.function("penalty", penalty, ("log_probabilities",))
    checks.function("read", read, ("state", "weights"))
    rule = Rule(optimizer, steps, record_every, loss, head, models.of(model), noise, penalty, read)
    empty, _ = rule.emptied()
    for name in FUNCTIONS:
        checks.can_be_hashed(name, getattr(empty, name))
    checks.can_be_hashed("optimizer", (optimizer.init, optimizer.update))
    return rule


def _prepared(
    weights: Any, snapshots: Sequence[int], rule: Rule
) -> tuple[Int[Array, " snapshots"], Callable[[Any], Any], Rule, tuple[Any, ...]]:
    """Check the other arguments; return snapshots, the optimizer's init function, and the trainer's rule and arrays."""
    kept = stepping.checked(rule.steps, rule.record_every, snapshots)
    try:
        init, update = autodiff_engine.begun(rule.optimizer, weights, isinstance(rule.model, models.TransformedInputs))
    except TypeError as error:
        needed = re.findall(r"'(\w+)'", str(error).partition("missing")[2])
        if not needed:
            checks.function("optimizer.update", rule.optimizer.update, ("gradient", "state", "weights"))
            raise
        raise ValueError(
            f"optimizer: expected one that needs only the gradient and the weights, found one that needs {needed}"
        ) from error
    kinds = (kind for kind in (ScaleFree, Exact, optax.GradientTransformation) if isinstance(rule.optimizer, kind))
    # Without the optimizer's numbers, which are in its state: those of one kind share a program.
    kind: Any = next(kinds, optax.GradientTransformation)
    _check_read(rule.read, init, update, weights)
    return kept, init, *replace(rule, optimizer=kind(None, update)).emptied()


def _zeros(weights: Any, problem: Problem, kept: int, rule: Rule) -> Run:
    """Return a Run of zeros with the shapes and types of a trained one."""
    series = jnp.zeros(-(-rule.steps // rule.record_every), problem.X.dtype)
    end = jax.tree.map(jnp.zeros_like, weights)
    snapshots = jax.tree.map(lambda leaf: jnp.zeros((kept, *leaf.shape), leaf.dtype), end)
    return Run(end, snapshots, series, series, series, jnp.zeros((), int), jnp.zeros(kept, int), rule)


def _check_fit(weights: Any, problem: Problem, rule: Rule) -> None:
    """Raise ValueError unless weights, model and head fit the problem, without computing anything."""
    check_one(problem)
    if isinstance(rule.model, models.TransformedInputs):
        attention.check_weights(weights, problem)
    parts, arrays = array_fields.emptied((rule.model, rule.head, rule.loss))
    _at_start.eval_shape(weights, problem, arrays, parts)


def _check_read(read: Any, init: Callable[[Any], Any], update: Any, weights: Any) -> None:
    """Raise ValueError unless what is read has the shapes of the weights."""
    if read is trained_weights:
        return
    found = jax.eval_shape(lambda weights: read(autodiff_engine.state_of(update, init(weights)), weights), weights)
    shown, expected = (jax.tree.map(lambda leaf: leaf.shape, tree) for tree in (found, weights))
    if shown != expected:
        raise ValueError(f"read: expected weights of shapes {expected}, found {shown}")


def _check_start(weights: Any, problem: Problem, rule: Rule) -> None:
    """Raise ValueError unless weights, head values and losses are finite at the start. Traced ones are not checked."""
    parts, arrays = array_fields.emptied((rule.model, rule.head, rule.loss))
    if not all(map(is_concrete, jax.tree.leaves((weights, problem, arrays)))):
        return
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(weights)):
        raise ValueError("weights: expected finite numbers, found NaN or infinity among them")
    # A function under `jit` may train on a problem that it does not take as an argument.
    with eager.computing():
        found = map(np.asarray, _at_start(weights, problem, arrays, parts))
    for name, values in zip(("head", "loss"), found, strict=True):
        wrong = np.flatnonzero(~np.isfinite(values))
        if wrong.size:
            raise ValueError(
                f"{name}: expected finite numbers, found {values[wrong[0]]} of input {wrong[0]} where descent starts "
                f"({wrong.size} of {values.size} inputs)"
            )


@partial(jax.jit, static_argnums=3)
def _at_start(weights: Any, problem: Problem, arrays: Any, parts: Any) -> tuple[Array, Array]:
    """Return the prediction of the head and the loss, both for each input, (n,)."""
    model, head, loss = array_fields.filled(parts, arrays)
    params, readout = models.parts(weights)
    probabilities = jax.nn.softmax(model.logits(params, problem), axis=-1)
    predictions = model.predictions(readout, probabilities, problem, head)
    return predictions, losses.of_each(loss, problem.Y * predictions)
