"""From the record of training on flipped labels: what is fit, what is selected, and the results on new inputs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

from jaxattn import svm
from jaxattn.experiments.generalization.benign.law import RHO, classes, signal
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays

# Number of new inputs per class on which a snapshot of a seed is tested.
_TESTED = 200


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Evaluate every snapshot on the training inputs, and on new inputs with true labels.

    The logits and scores of a new input depend on W only through a few inner products, which are jointly normal for its
    noise tokens. So these are drawn directly, from the seed's own key.

    Returns:
        Along the snapshots, (seed, snapshot): the shares of training inputs with correct and with flipped labels that
        are fit (`clean`, `flipped`); the mean attention on the signal token of training inputs with correct labels
        (`attends`) and of new ones (`finds`); the share of new inputs that are classified correctly (`test`); and
        `time`, log10 of the flow's time, the sum of step over gradient norm. (seed,): `before`, the test accuracy at W
        = 0; `ratio`, n times the squared ratio of signal to noise, `n mu^2 / d`; and `strength`, `mu (n / d)^(1/4)`.

    Raises:
        ValueError: a solver is given, or no seed stayed finite.
    """
    if solver is not None:
        raise ValueError(f"svm: expected native, there is nothing to solve, found {solver!r}")
    W = record["w_snapshots"].values
    kept = np.asarray(np.isfinite(W).all(axis=(1, 2)))
    if not kept.any():
        raise ValueError(f"benign: expected a seed that stayed finite, found none of {kept.size}")
    problems = of_arrays({name: record[name].values[kept] for name in ("X", "Z", "Y", "v")})
    start = np.zeros((int(kept.sum()), 1, W.shape[2]))
    words = record["test_key"].values[kept]
    seen = batch.over_seeds(_read, np.concatenate([start, W[kept]], axis=1), problems, words)
    times = np.cumsum(record.attrs["optimizer.step_size"] / record["gradient_norm"].values[kept], axis=1)
    n, d, mu = problems.Y.shape[1], record.attrs["data.d"], np.asarray(signal(problems.v))
    arrays = {name: (("seed", "snapshot"), values[:, 1:].astype(float)) for name, values in seen.items()}
    arrays |= {
        "time": (("seed", "snapshot"), np.log10(times[:, record["snapshot"].values - 1])),
        "before": (("seed",), seen["test"][:, 0].astype(float)),
        "ratio": (("seed",), n * mu**2 / d),
        "strength": (("seed",), mu * (n / d) ** 0.25),
    }
    coordinates = {"seed": record["seed"].values[kept], "snapshot": record["snapshot"].values}
    counts = {"attempted": kept.size, "kept": int(kept.sum()), "diverged": int((~kept).sum())}
    return xarray.Dataset(arrays, coordinates, counts)


def _read(w: Float[Array, "snapshots d"], problem: Problem, words: UInt32[Array, " words"]) -> dict[str, Array]:
    scores, right = problem.X @ problem.v, classes(problem.n) == problem.Y
    key = jax.random.wrap_key_data(words)

    def one(w: Float[Array, " d"]) -> dict[str, Array]:
        logits = problem.X @ w
        fits = problem.Y * jnp.sum(jax.nn.softmax(logits, axis=1) * scores, axis=1) > 0
        label, new_logits, new_scores = _new(key, w, problem)
        new = jax.nn.softmax(new_logits, axis=1)
        return {
            "clean": jnp.mean(fits, where=right),
            "flipped": jnp.mean(fits, where=~right),
            "attends": jnp.mean(jax.nn.softmax(logits, axis=1)[:, 0], where=right),
            "test": jnp.mean(label * jnp.sum(new * new_scores, axis=1) > 0),
            "finds": jnp.mean(new[:, 0]),
        }

    return jax.lax.map(one, w)


def _new(key: PRNGKeyArray, w: Float[Array, " d"], problem: Problem) -> tuple[Array, Array, Array]:
    """Draw labels, logits and scores of new inputs; all snapshots of a seed use the same draws.

    For a standard normal x, `x.w` and `x.v` are jointly normal with the inner products of w and v as covariances.
    """
    count, T = 2 * _TESTED, problem.T
    label = classes(count)
    size = jnp.sqrt(jnp.sum(problem.v**2))
    across = w @ problem.v / size
    rest = jnp.sqrt(jnp.maximum(w @ w - across**2, 0.0))
    drawn = jax.random.normal(key, (2, count, T))
    both = jnp.stack([across * drawn[0] + rest * drawn[1], size * drawn[0]])
    # The signals lie on the first two axes.
    of_signals = signal(problem.v) * jnp.stack([w[:2], problem.v[:2]])
    own = jnp.where(label > 0, of_signals[:, :1], of_signals[:, 1:])
    other = jnp.where(label > 0, of_signals[:, 1:], of_signals[:, :1])
    both = both.at[:, :, :3].add(jnp.stack([own, RHO * own, RHO * other], axis=2))
    return label, both[0], both[1]
