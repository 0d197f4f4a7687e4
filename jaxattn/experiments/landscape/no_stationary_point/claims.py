"""Whether the gradient can turn away from the SVM solution of the optimal tokens, or vanish (2308.16898)."""

from __future__ import annotations

import json
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

from jaxattn import attention, heads, losses, metrics, svm
from jaxattn.descent import gradients
from jaxattn.experiments.landscape.no_stationary_point import trap
from jaxattn.parallel import batch, lanes
from jaxattn.problem import Problem
from jaxattn.study.claims import Claim, Verdict, concluded, counts_of, read, too_few
from jaxattn.study.measuring.optimum import optimum
from jaxattn.study.statistics import bootstrap, proportion

_SOURCE = "arXiv 2308.16898, lemma on stationary points under equal scores"
# Lengths of the drawn weights; bins of the cosines; draws computed at once; the fewest draws that decide.
_SHORTEST, _LONGEST = 1e-2, 1e2
_EDGES = np.linspace(-1, 1, 101)
_AT_ONCE, _ENOUGH = 250, 1000


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Look at the gradient at many weights, of lengths from 0.01 to 100, half of them turned to or from `W_mm`.

    The gradient's direction is formed in the log domain: a saturated softmax hides nothing.

    Args:
        record: of a `Landscape`.
        solver: of the max-margin problems.

    Returns:
        For every kept seed: `least`, the smallest cosine of `-grad L` and `W_mm`; `negative`, the share of negative
        ones; `histogram`, how many are in each bin; `bound`, which the proof gives for equal scores, see `_bound`;
        `readout`, the smallest cosine of `-grad L` and `v u^T` with `u . z_i = Y_i`. The attribute `run` names the
        scores.
    """
    found = optimum(record, solver)
    spread = float(json.loads(record.attrs["config"])["data"]["spread"])
    draws = record.sizes["draw"]
    if not found.kept.any():
        raise ValueError(f"no-stationary-point: expected a kept seed, found counts {found.counts}")
    u = np.einsum("sen,sn->se", np.linalg.pinv(np.asarray(found.problems.Z)), np.asarray(found.problems.Y))
    cosine, readout = batch.over_seeds(_looked_at, found.of(record["draw_keys"]), found.W, u, found.problems)
    histogram = np.stack([np.histogram(one, _EDGES)[0] for one in cosine])
    return xarray.Dataset(
        {
            "least": (("seed",), cosine.min(axis=1)),
            "negative": (("seed",), (cosine < 0).mean(axis=1)),
            "histogram": (("seed", "bin"), histogram),
            "bound": (("seed",), batch.over_seeds(_bound, found.W, found.problems, found.alpha)),
            "readout": (("seed",), readout.min(axis=1)),
        },
        {"seed": found.of(record["seed"]), "bin": (_EDGES[1:] + _EDGES[:-1]) / 2},
        {**found.counts, "run": f"spread of scores {spread:g}", "spread": spread, "draws": draws},
    )


def _looked_at(
    words: UInt32[Array, "draws words"], W_mm: Float[Array, "d d"], u: Float[Array, " d"], problem: Problem
) -> tuple[Float[Array, " draws"], Float[Array, " draws"]]:
    """Return the cosines of `-grad L` with `W_mm` and with `v u^T` at every drawn W."""
    towards = W_mm / metrics.norm(W_mm)
    wanted = attention.logits(towards, problem)
    read_off = jnp.outer(problem.v, u) / metrics.norm(jnp.outer(problem.v, u))
    reading = gradients.reading(problem, heads.linear)

    def of_one(key_words: Array) -> tuple[Array, Array]:
        logits = attention.logits(_drawn(key_words, towards), problem)
        a = gradients.direction(lanes.before(), logits, problem.Y, reading, losses.logistic).coefficients
        length = metrics.norm(jnp.einsum("nd,ne->de", attention.attended(a, problem), problem.Z))
        return -jnp.sum(a * wanted) / length, -jnp.sum(a * attention.logits(read_off, problem)) / length

    return jax.lax.map(of_one, words, batch_size=min(_AT_ONCE, len(words)))


def _drawn(words: UInt32[Array, " words"], towards: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Draw W: its length log-uniform, its direction uniform, or with uniform cosine to that of `W_mm`."""
    of_direction, of_length, of_cosine, of_kind = jax.random.split(jax.random.wrap_key_data(words), 4)
    free = jax.random.normal(of_direction, (towards.size,)).reshape(towards.shape)
    free = free / metrics.norm(free)
    across = free - jnp.sum(free * towards) * towards
    cosine = jax.random.uniform(of_cosine, minval=-1.0, maxval=1.0)
    turned = cosine * towards + jnp.sqrt(1 - cosine**2) * across / metrics.norm(across)
    low, high = np.log(_SHORTEST), np.log(_LONGEST)
    length = jnp.exp(jax.random.uniform(of_length, minval=low, maxval=high))
    return length * jnp.where(jax.random.bernoulli(of_kind), free, turned)


def _bound(W_mm: Float[Array, "d d"], problem: Problem, alpha: Array) -> Float[Array, ""]:
    """Return `1 / (||W_mm|| max_it ||z_i|| ||x_i,alpha_i - x_it||)`, below every cosine if scores are equal.

    With two values of the scores, `gap_i` apart, the gradient of input i is `c_i gap_i s (1 - s)` times the mean of
    `(x_it - x_i,alpha_i) z_i^T` over the other tokens, where s is the probability of the optimal one: each has an inner
    product of at least 1 with `W_mm`, and no more than that length.
    """
    constraints = svm.token_constraints(problem, alpha)
    lengths = jnp.linalg.norm(constraints.differences, axis=-1) * jnp.linalg.norm(problem.Z, axis=-1)[:, None]
    return 1 / (metrics.norm(W_mm) * jnp.max(lengths))


def summarize(
    datasets: Mapping[str, xarray.Dataset], key: PRNGKeyArray
) -> tuple[dict[str, xarray.Dataset], list[Claim]]:
    """Estimate how the gradient is aligned with and without equal scores, and judge the lemma.

    Args:
        datasets: of `measure`, of equal and of free scores.
        key: of the bootstrap.

    Returns:
        "equal" and "free", each seed's numbers and their means; "trap" and "trap, equal", the landscapes of an instance
        made by hand; the claims.
    """
    names = {0.0: "equal", 1.0: "free"}
    keys = jax.random.split(key, len(datasets))
    summaries = {names[one.attrs["spread"]]: _estimated(one, k) for one, k in zip(datasets.values(), keys, strict=True)}
    landscapes = {"trap": trap.landscape(1.8), "trap, equal": trap.landscape(0.0)}
    claims = [_equal_claim(summaries["equal"]), _needed_claim(summaries["free"])]
    return summaries | landscapes, [*claims, _finite_claim(summaries["free"], landscapes)]


def _estimated(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    keys = jax.random.split(key)
    estimates = {
        "mean_least": bootstrap(one["least"].values, keys[0]),
        "mean_negative": bootstrap(one["negative"].values, keys[1]),
        "turns_away": proportion(one["least"].values < 0),
    }
    parts = {
        name if part == "mean" else f"{name}_{part}": ((), getattr(estimate, part))
        for name, estimate in estimates.items()
        for part in ("mean", "low", "high")
    }
    return one.assign(parts)


def _equal_claim(equal: xarray.Dataset) -> Claim:
    least = float(equal["least"].min())
    over = float((equal["least"] / equal["bound"]).min())
    return _claim(
        "equal",
        "With equal scores of non-optimal tokens -<grad L(W), W_mm> > 0 for every W: no finite stationary point.",
        {"share of problems with a negative one": 0.0},
        {
            "smallest cosine of -grad L and W_mm, mean over problems": read(equal, "mean_least"),
            "share of problems with a negative one": read(equal, "turns_away"),
            "smallest cosine of all": _exactly(least),
            "smallest cosine over the proof's bound, of all problems": _exactly(over),
        },
        {"equal": equal},
        Verdict.HOLDS if least > 0 and over >= 1 - 1e-9 else Verdict.FAILS,
        f"{int(equal.attrs['draws'])} weights a problem, of lengths 0.01 to 100. The proof gives more than the sign: "
        "the cosine is at least 1 / (||W_mm|| max ||z_i|| ||x_opt - x_t||) at every W, as at all that were drawn.",
    )


def _needed_claim(free: xarray.Dataset) -> Claim:
    return _claim(
        "needed",
        "Without equal scores -<grad L(W), W_mm> is negative at some W.",
        {},
        {
            "share of problems with a negative one": read(free, "turns_away"),
            "share of negative ones": read(free, "mean_negative"),
            "smallest cosine of -grad L and W_mm, mean over problems": read(free, "mean_least"),
        },
        {"free": free},
        Verdict.HOLDS if float(free["turns_away_low"]) > 0 else Verdict.FAILS,
        "Sphere data with scores as drawn. A negative one at drawn weights is a proof for its problem; problems "
        "without may have some elsewhere.",
    )


def _finite_claim(free: xarray.Dataset, landscapes: Mapping[str, xarray.Dataset]) -> Claim:
    free_trap, equal_trap = landscapes.values()
    lowest = free_trap.isel(point=int(np.argmax(free_trap["least"].values))) if free_trap.sizes["point"] else None
    measured = {
        "stationary points on the axis of the instance": _exactly(free_trap.sizes["point"]),
        "the same with equal scores": _exactly(equal_trap.sizes["point"]),
        "smallest cosine of -grad L and v u^T, free scores": _exactly(float(free["readout"].min())),
    }
    found = False
    if lowest is not None:
        measured["length of W z at its local minimum"] = _exactly(abs(float(lowest["place"])))
        measured["length of the gradient there"] = _exactly(float(lowest["gradient"]))
        measured["smallest eigenvalue of the second derivative there"] = _exactly(float(lowest["least"]))
        found = float(lowest["gradient"]) < 1e-12 and float(lowest["least"]) > 1e-6 and not equal_trap.sizes["point"]
    separable = float(free["readout"].min()) > 0
    return _claim(
        "finite",
        "Without equal scores the risk can have a finite stationary point, even a local minimum that holds descent.",
        {"the same with equal scores": 0.0},
        measured,
        {"free": free},
        (Verdict.CORRECTED if separable else Verdict.HOLDS) if found else Verdict.FAILS,
        "An instance made by hand, of inputs with one query and opposite labels. Correction: where some u has "
        "Y_i u . z_i > 0 for all i, as with independent queries, -<grad L(W), v u^T> > 0 for every W, whatever the "
        "scores, since it is a mean of variances: random problems with n <= d have no finite stationary point.",
    )


def _exactly(number: float) -> tuple[float, float, float]:
    """Return a number that has no interval."""
    return float(number), float(number), float(number)


def _claim(
    name: str,
    statement: str,
    expected: Mapping[str, float],
    measured: Mapping[str, tuple[float, float, float]],
    summaries: Mapping[str, xarray.Dataset],
    verdict: Verdict,
    note: str,
) -> Claim:
    """Return a claim; not decided by few problems or few draws."""
    (one,) = summaries.values()
    undecided = too_few(int(one.attrs["kept"]))
    if int(one.attrs["draws"]) < _ENOUGH:
        undecided = f"{one.attrs['draws']} weights a problem are too few to decide; the published size is 10000."
    return concluded(
        f"no-stationary-point:{name}",
        _SOURCE,
        statement,
        expected,
        measured,
        counts_of(summaries),
        verdict,
        undecided,
        note,
    )
