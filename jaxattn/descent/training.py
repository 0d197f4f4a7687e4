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
from jaxtyping import Array, Float, Int

from jaxattn import attention, checks, heads, losses, models
from jaxattn.checks import Keyed
from jaxattn.descent import autodiff_engine, loops, padding, stepping
from jaxattn.descent.noise import NOISE_GENERATOR, Noise, full_batch
from jaxattn.descent.optimizers import Exact, ScaleFree, along, normalized_gd
from jaxattn.descent.penalties import unpenalized
from jaxattn.descent.run import Rule, Run
from jaxattn.descent.step_schedules import plain
from jaxattn.parallel import batch
from jaxattn.problem import Problem, check_batch, check_kind, is_concrete

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

    Pure; works under `jit` and `vmap`. A program is compiled for each combination of shapes, numbers of steps and
    snapshots, loss, head, model, noise, penalty and kind of optimizer. Other step sizes and snapshot steps reuse it.

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
        key: the random key of the noise; step k uses `fold_in(key, k)`.

    Raises:
        ValueError: not a Problem; weights or a head that do not fit it; an invalid loss, head, model, penalty or
            optimizer; weights or head values that are not finite at the start; steps or record_every < 1, snapshots out
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
    kept, init, run = _prepared(weights, snapshots, rule)
    _check_noise(noise, key, ())
    words = None if key is None else jax.random.key_data(key)
    # Set the rule outside the compiled program: inside, each rule would compile its own.
    return run(weights, problem, init(weights), words, kept)._replace(rule=rule)


def outline(weights: Any, problem: Problem, *, snapshots: Sequence[int] = (), **given: Any) -> Run:
    """Return a Run of zeros with the shapes and types that `train` returns, without tracing its steps.

    Takes the arguments of `train` and raises its errors, except those raised by a loss or by an optimizer's own steps.
    """
    rule = _rule(**given)
    _check_fit(weights, problem, rule)
    kept, _, _ = _prepared(weights, snapshots, rule)
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
    keys: Any = None,
    chunk: int | None = None,
    of: int | None = None,
) -> Run:
    """Train a batch of problems with one leading axis, in chunks of bounded memory.

    Lane i equals the result of `train` for it alone, to rounding. Short runs of a free W that moves along its gradient
    share one program for all d up to 16, 32, ..., if that is faster than compiling a new one. Returns a Run of NumPy
    arrays with the batch axis first. The arguments and errors are those of `train`, with `keys`, one noise key per
    seed, and `chunk` as in `batch.chunks`. If you train a study in several batches, pass its total number of seeds as
    `of`: all batches then run the same program, and the results do not depend on how the study is split.

    Example:
        >>> problems = jax.vmap(lambda key: data.sphere(key, n=3, T=4, d=5))(jax.random.split(key, 8))
        >>> descent.train_batch(jnp.zeros((8, 5, 5)), problems, steps=10).weights.shape
        (8, 5, 5)
    """
    rule = _rule(optimizer, steps, record_every, loss, head, model, noise, penalty)
    check_batch(problems)
    batch.length((weights, problems))  # Raises if they differ in it.
    first = jax.tree.map(lambda leaf: leaf[0], (weights, problems))
    # An error about a head should name the user's shape, not the program's padded one.
    _check_fit(first[0], first[1], rule)
    kept, init, run = _prepared(first[0], snapshots, rule)
    _check_noise(noise, keys, problems.X.shape[:1])
    words = None if keys is None else np.asarray(jax.random.key_data(keys))
    state = jax.vmap(init)(weights)
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
    width = batch.program_lanes(lane, one, batch.length(problems), of)
    parts = {"chunk": chunk, "width": width, "of": of, "effort": plan.effort, "cut": cut}
    return batch.over_seeds(run, weights, problems, state, words, shared=(kept,), **parts)._replace(rule=rule)


def _rule(
    optimizer: Any = None,
    steps: int = 2000,
    record_every: int = 1,
    loss: Any = losses.logistic,
    head: Any = heads.linear,
    model: Any = models.plain,
    noise: Any = full_batch,
    penalty: Any = unpenalized,
) -> Rule:
    """Return the arguments of `train` as a Rule, or raise ValueError for the first invalid one."""
    optimizer = normalized_gd(0.1) if optimizer is None else optimizer
    checks.transformation("optimizer", optimizer)
    checks.function("loss", loss, ("margin",))
    checks.function("head", head, ("x", "v"))
    checks.function("noise", noise, ("key", "n", "T"))
    checks.function("penalty", penalty, ("log_probabilities",))
    return Rule(optimizer, steps, record_every, loss, head, models.of(model), noise, penalty)


def _prepared(
    weights: Any, snapshots: Sequence[int], rule: Rule
) -> tuple[Int[Array, " snapshots"], Callable[[Any], Any], Callable[..., Run]]:
    """Check the other arguments; return the snapshots, the optimizer's init function, and the compiled trainer."""
    kept = stepping.checked(rule.steps, rule.record_every, snapshots)
    _check_needs(rule.optimizer, weights)
    init, update = autodiff_engine.begun(rule.optimizer, weights, isinstance(rule.model, models.TransformedInputs))
    kinds = (kind for kind in (ScaleFree, Exact, optax.GradientTransformation) if isinstance(rule.optimizer, kind))
    # Without the optimizer's numbers, which are in its state: those of one kind share a program.
    kind: Any = next(kinds, optax.GradientTransformation)
    return kept, init, loops.trainer(replace(rule, optimizer=kind(None, update)))


def _check_needs(optimizer: Any, weights: Any) -> None:
    """Raise ValueError if an optimizer's update needs more than gradient, state and weights."""
    if along(plain(optimizer.update)) is not None:
        return
    try:
        jax.eval_shape(lambda params: optimizer.update(params, optimizer.init(params), params), weights)
    except TypeError as error:
        needed = re.findall(r"'(\w+)'", str(error).partition("missing")[2])
        if not needed:
            raise
        raise ValueError(
            f"optimizer: expected one that needs only the gradient and the weights, found one that needs {needed}"
        ) from error


def _zeros(weights: Any, problem: Problem, kept: int, rule: Rule) -> Run:
    """Return a Run of zeros with the shapes and types of a trained one."""
    series = jnp.zeros(-(-rule.steps // rule.record_every), problem.X.dtype)
    end = jax.tree.map(jnp.zeros_like, weights)
    snapshots = jax.tree.map(lambda leaf: jnp.zeros((kept, *leaf.shape), leaf.dtype), end)
    return Run(end, snapshots, series, series, series, jnp.zeros((), int), jnp.zeros(kept, int), rule)


def _check_fit(weights: Any, problem: Problem, rule: Rule) -> None:
    """Raise ValueError unless weights, model and head fit the problem, without computing anything."""
    check_kind(problem)
    if isinstance(rule.model, models.TransformedInputs):
        attention.check_weights(weights, problem)
    jax.eval_shape(partial(_outputs, model=Keyed(rule.model), head=Keyed(rule.head)), weights, problem)


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
    if (own := str(jax.random.key_impl(keys))) != NOISE_GENERATOR:
        raise ValueError(
            f"key: expected one of the generator {NOISE_GENERATOR!r}, which draws the same in a batch as for one seed, "
            f"found one of {own!r}; jax.random.key(0, impl={NOISE_GENERATOR!r}) makes one"
        )


def _check_start(weights: Any, problem: Problem, rule: Rule) -> None:
    """Raise ValueError unless weights and head values are finite at the start. Not checked under `jit`."""
    if not all(map(is_concrete, jax.tree.leaves((weights, problem)))):
        return
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(weights)):
        raise ValueError("weights: expected finite numbers, found NaN or infinity among them")
    values = np.asarray(_outputs(weights, problem, Keyed(rule.model), Keyed(rule.head)))
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        raise ValueError(
            f"head: expected finite numbers, found {values[wrong[0]]} of input {wrong[0]} where descent starts "
            f"({wrong.size} of {values.size} inputs)"
        )


@partial(jax.jit, static_argnums=(2, 3))
def _outputs(weights: Any, problem: Problem, model: Keyed, head: Keyed) -> Float[Array, " n"]:
    """Return the prediction of the head for each input."""
    params, readout = models.parts(weights)
    probabilities = jax.nn.softmax(model.value.logits(params, problem), axis=-1)
    return model.value.predictions(readout, probabilities, problem, head.value)
