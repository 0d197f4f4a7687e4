"""Runs that several tests look at: a setting that trains, and records built by hand whose attention is the best one."""

from functools import partial

import jax
import numpy as np
import xarray

from jaxattn import data, descent, heads, initial, losses
from jaxattn.experiments.several_tokens import stationary
from jaxattn.study.settings.schedule import Evenly
from jaxattn.study.settings.training import Training

KEY = jax.random.key(0)
SEEDS, n, T, d = 24, 3, 4, 6
STEPS = np.array([500, 1000, 1500, 2000])


def setting(kind: type[Training], seeds: int, steps: int, every: int) -> Training:
    law, optimizer = partial(data.mlp, n=3, T=4, d=4), descent.normalized_gd(0.1)
    return kind(law, initial.free, optimizer, losses.logistic, heads.mlp, seeds, 1, steps, Evenly(every), every)


def resting(head: str = "quadratic", penalty: float = 0.2, off: float = 0.0, drifting: float = 0.0) -> xarray.Dataset:
    """Runs that end, and but for a drift stand, at the best attention; `off` is added to the first selected logit.

    Under the ReLUs they are alike on three tokens, the best of few inputs.
    """
    law = data.orthonormal if head == "quadratic" else data.mlp
    problems = jax.vmap(partial(law, n=n, T=T, d=d))(jax.random.split(KEY, SEEDS))
    every = np.ones((SEEDS, n, T), bool)
    if head == "quadratic":
        best, _ = stationary.quadratic(problems, penalty, every)
    else:
        best = every * (np.arange(T) < 3) / 3
    logits = np.where(best > 0, np.log(np.maximum(best, 1e-300)), -40.0 - np.arange(T))
    logits[np.arange(SEEDS)[:, None], np.arange(n), (best > 0).argmax(axis=2)] += off
    # Any W with these logits: orthonormal or not, fewer than d tokens are independent, and so are the queries.
    X, Z = np.asarray(problems.X), np.asarray(problems.Z)
    rows = np.einsum("sntd,sne->sntde", X, Z).reshape(SEEDS, n * T, d * d)
    W = (np.linalg.pinv(rows) @ logits.reshape(SEEDS, -1, 1)).reshape(SEEDS, d, d)
    drift = drifting * np.linspace(-1, 0, len(STEPS))[None, :, None, None] * np.arange(T)
    snapshots = logits[:, None] + drift
    size = np.repeat(np.linalg.norm(W, axis=(1, 2))[:, None], len(STEPS), axis=1)
    arrays = {
        "X": (("seed", "input", "token", "feature"), X),
        "Z": (("seed", "input", "query_feature"), Z),
        "Y": (("seed", "input"), np.asarray(problems.Y)),
        "v": (("seed", "feature", "unit")[: problems.v.ndim], np.asarray(problems.v)),
        "W": (("seed", "feature", "query_feature"), W),
        "logits_snapshots": (("seed", "snapshot", "input", "token"), snapshots),
        "size_snapshots": (("seed", "snapshot"), size),
    }
    attrs = {"head.penalty": penalty} if head == "quadratic" else {}
    return xarray.Dataset(arrays, {"snapshot": STEPS}, attrs)
