"""Measure training on a large text: time and memory per step, compared with automatic differentiation."""

import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.timing import rounds
from jaxattn import data, descent, language

# A text of the second paper's size, in a language of 256 words with 3 nats of entropy, that of 20 equally likely words.
MIDDLE = {"m": 1000, "words": 64, "d": 256, "V": 256}
ENTROPY = 3.0

CANDIDATES = {"vocabulary": language.vocabulary, "prefix": language.prefix}
RULE = descent.normalized_gd(0.1, 0.0, 0.0)
# The least duration of a timed run, in seconds.
SECONDS = 0.3


def drawn(candidates: str, m: int, words: int, d: int, V: int) -> language.Choices:
    """Return a text."""
    law = partial(data.language, m=m, n=words, d=d, V=V, entropy=ENTROPY, candidates=CANDIDATES[candidates])
    return jax.jit(law)(jax.random.key(0))


def of_pairs(text: language.Choices) -> Callable[[int], object]:
    """Return training on pairs of words, as a function of the number of steps."""
    return lambda steps: language.train(text, optimizer=RULE, steps=steps, record_every=steps)


def differentiated(text: language.Choices) -> Callable[[int], object]:
    """Return the same training by automatic differentiation of the risk of W."""
    slope = jax.grad(language.risk)

    def step(_: Any, W: jax.Array) -> jax.Array:
        G = slope(W, text)
        return W - 0.1 * G / jnp.linalg.norm(G)

    d = text.E.shape[1]
    run = jax.jit(lambda steps: jax.lax.fori_loop(0, steps, step, jnp.zeros((d, d))))
    return lambda steps: run(steps)


# The text as drawn, and with duplicate prefixes merged, as experiments train on it.
TEXTS = {"drawn": lambda text: text, "compact": lambda text: jax.tree.map(jnp.asarray, language.compact(text))}
WAYS = {"pairs": of_pairs, "automatic differentiation": differentiated}


def one(candidates: str, of: str, way: str, **sizes: int) -> dict[str, Any]:
    """Return the milliseconds per step, and the process's memory."""
    text = TEXTS[of](drawn(candidates, **MIDDLE | sizes))
    run = WAYS[way](text)
    steps = _per_step(run)
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "candidates": candidates,
        "text": of,
        "way": way,
        "inputs": int(text.last.size),
        "left out": int(np.sum(np.asarray(text.weight) == 0)),
        "ms a step": 1e3 * statistics.median(steps),
        "ms a step, rounds": [1e3 * step for step in steps],
        "GiB": largest / 2**30,
    }


def _per_step(run: Callable[[int], object]) -> list[float]:
    """Return the seconds per step of each round: the difference between runs of many steps and of a single one."""
    for power in range(16):
        steps = 10 * 4**power
        seconds = rounds(partial(run, 1), partial(run, steps + 1))
        differences = seconds[:, 1] - seconds[:, 0]
        if np.median(differences) >= SECONDS:
            return (differences / steps).tolist()
    raise RuntimeError(f"language: expected a run of {SECONDS} s, found none")


@jax.jit
def _products(steps: int) -> jax.Array:
    """Compute the products that move the logits this many times: the minimal cost per step, with prefixes merged."""
    K = jnp.eye(MIDDLE["V"])
    return jax.lax.fori_loop(0, steps, lambda _, G: K @ G @ K, K)


def table() -> Iterator[dict[str, Any]]:
    """Yield time and memory per step on the text of MIDDLE, with each method in a separate process."""
    for candidates in CANDIDATES:
        for of in TEXTS:
            for way in WAYS:
                yield apart(candidates, of, way)
    yield {"two products of V x V": 1e3 * statistics.median(_per_step(_products))}


def apart(candidates: str, of: str, way: str) -> dict[str, Any]:
    """Return the result of `one` from a new process, whose memory nothing else has used."""
    program = (
        "import jax, json; jax.config.update('jax_enable_x64', True)\n"
        f"from benchmarks import language; print(json.dumps(language.one({candidates!r}, {of!r}, {way!r})))"
    )
    folder = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=folder, env=os.environ
    )
    return json.loads(done.stdout)
