"""Optimizers, models and references that the tests of descent share. One number of steps compiles once."""

from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from hydra.utils import instantiate
from omegaconf import OmegaConf

from jaxattn import attention, descent, heads, losses, models
from jaxattn.descent.noise import Sample
from jaxattn.models import Joint
from tests import instances
from tests.instances import T, d, n

STEPS = 8
KEY = jax.random.key(7)
CONFIGURED = {path.stem: path for path in (Path(__file__).parents[2] / "conf" / "optimizer").glob("*.yaml")}
SCALE_FREE = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
EXACT_GD = descent.Exact(*descent.gd(0.5))
# Optimizers that move along the gradient.
ALONG = {
    "published": descent.normalized_gd(0.1),
    "scale-free": SCALE_FREE,
    "exact": descent.exact_normalized_gd(0.1, floor=1e-16),
    "jointly": descent.jointly_normalized_gd(0.1, floor=1e-16),
    "plain": descent.gd(0.3),
    "penalized": descent.exact_normalized_gd(0.1, penalty=0.01),
    "penalized jointly": descent.jointly_normalized_gd(0.1, penalty=0.01),
}
P = np.random.default_rng(0).normal(size=(T, d))
# Parameters and a model of each kind.
MODELS: dict[str, Any] = {
    "free": lambda: (instances.free(), models.plain),
    "factored": lambda: (instances.factored(), models.key_only(P)),
    "function": lambda: (instances.free(), models.of(attention.logits)),
    "two heads": lambda: ((instances.free(), instances.factored()), models.summed(2)),
    "values": lambda: (Joint(instances.free(), instances.problem().v), models.with_values()),
    "heads and values": lambda: (
        Joint((instances.free(0), instances.free(1)), instances.problem().v),
        models.with_values(models.summed(2)),
    ),
}


@cache
def configured(name: str) -> Any:
    """The optimizer of a configuration."""
    return instantiate(OmegaConf.load(CONFIGURED[name]))


def quadratic(x, v):
    """A head of the user's."""
    return v @ x - 0.3 * (x @ x)


def risk(params, problem, model, draw=None, weight=0.0):
    """The risk of a model through the noise of one step, and a penalty on the entropy."""
    weights, readout = models.parts(params)
    logits = model.logits(weights, problem)
    s = jax.nn.softmax(logits, axis=-1)
    heard, inputs = s, 1.0
    if isinstance(draw, Sample):
        soft = jax.nn.softmax((logits + draw.noise[None]) / draw.tau, axis=-1)
        heard = soft + jax.lax.stop_gradient(jax.nn.one_hot(jnp.argmax(logits + draw.noise[None], axis=-1), T) - soft)
    elif draw is not None:
        heard, inputs = s * draw.attention[None], draw.inputs
    margins = problem.Y * model.predictions(readout, heard, problem, heads.linear)
    entropies = -jnp.sum(s * jax.nn.log_softmax(logits, axis=-1), axis=-1).sum(axis=0)
    return jnp.mean(inputs * losses.logistic(margins) + weight * entropies)


gradient_of = jax.jit(jax.grad(risk), static_argnames="model")


@partial(jax.jit, static_argnames="update")
def updated(update, gradient, state, weights):
    moves, state = update(gradient, state, weights)
    return optax.apply_updates(weights, moves), state


def reference(optimizer, params, problem, model=models.plain, noise=None, weight=0.0, steps=STEPS):
    """The parameters before and after every step, by automatic differentiation and the optimizer as it is."""
    parts = [part for part in models.parts(params) if part is not None]
    # An optimizer that is blind to the scale treats attention and readout apart.
    apart = isinstance(optimizer, descent.ScaleFree) and len(parts) == 2
    states = [optimizer.init(part) for part in (parts if apart else [params])]
    kept = [params]
    for k in range(steps):
        draw = None if noise is None else noise(jax.random.fold_in(KEY, k), n, T)
        slope = gradient_of(kept[-1], problem, model, draw, weight)
        now = zip(slope, states, kept[-1], strict=True) if apart else [(slope, states[0], kept[-1])]
        moved = [updated(optimizer.update, *one) for one in now]
        states = [state for _, state in moved]
        kept.append(Joint(*(part for part, _ in moved)) if apart else moved[0][0])
    return kept
