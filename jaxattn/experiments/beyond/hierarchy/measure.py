"""From the record of decoders: the margin ratio of every head along the training, and of matrices nobody trained."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxattn import norms, svm
from jaxattn.bias import nulls
from jaxattn.experiments.beyond.hierarchy import single
from jaxattn.experiments.bias import ratios
from jaxattn.parallel import batch
from jaxattn.study.measuring import exclusions

NORMS = ("frobenius", "nuclear")
# The quantile of the null directions that a head has to exceed, and their number for each head.
QUANTILE, _DRAWS = 0.95, 100
# The axes of what is kept of one seed.
_CELLS = ("sequence", "query", "token")
_OF_ONE = {"null": ("head", "snapshot", "kind"), "attention": ("head", "snapshot", *_CELLS)}
_OF_ONE |= {"support": ("head", "snapshot", *_CELLS), "selected": ("head", *_CELLS)}


class _Head(NamedTuple):
    """One head of one seed: rows, W and smallest margin by snapshot, and what `measure` reads at the end."""

    constraints: svm.Constraints
    W: Float[Array, "k d d"]
    margin: Float[Array, " k"]
    selected: Int[Array, "n queries"]
    probability: Float[Array, ""]
    asked: Float[Array, ""]


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare every head with the Att-SVMs of the tokens that it selects at the end, on the inputs that it reads.

    The rows are those of all queries that count for the task, in the last layer, and of all others in those before it.
    Inputs move, so every snapshot has its own optimum.

    Returns:
        Over the last two decades of steps: `ratio`, the margin ratio, (seed, head, norm, snapshot), `size`, `||W||_F`,
        and `margin`, the smallest of W, (seed, head, snapshot), and the logarithms of the loss, `log_loss` and with
        hard attention `log_loss_hard`, and the attention's `share` of the gradient, (seed, snapshot). At the end,
        (seed, head): `probability`, the smallest over queries of their largest, and `asked`, the share of queries that
        select what the task asks for. Margin ratios of matrices that training did not choose, (seed, head, norm):
        `cone`, the 95 % quantile of directions drawn from all that select the same tokens, `mean`, that of the rows'
        mean, `nearest`, that of the matrix nearest to the start with the same margins, and `first`, that of the head
        when it first selected these tokens. A seed is kept if all optima of its heads are certified. Of the first of
        them, along the snapshots and in the nuclear norm, what `single.followed` returns for each head, and its
        `tokens`.

    Raises:
        ValueError: a solver is given, or no decoder stayed finite.
    """
    ratios.native(solver)
    finite = np.isfinite(record["log_loss"].values).all(axis=1)
    finished = record.isel(seed=finite)
    arrays = {str(name): finished[name].values for name in finished.data_vars}
    steps = record["snapshot"].values
    late = np.flatnonzero(100 * steps >= steps[-1])
    names, found, statuses, posed = [], [], [], []
    with jax.enable_x64(True):
        for layer, head, positions in single.heads(finished):
            ratio, status, problems = _of_head(arrays, layer, head, late, positions)
            names.append(f"layer {layer + 1}, head {head + 1}")
            found.append(ratio)
            statuses.append(status)
            posed.append((problems, positions))
        status = np.stack(statuses, axis=1)
        kept = (status == svm.Status.OPTIMAL).all(axis=1)
        first = np.flatnonzero(kept)[:1]
        of_one = [_of_seed(*one, seed, arrays["weights_key"][seed]) for seed in first for one in posed]  # pyright: ignore[reportCallIssue]
    of_heads = ("seed", "head")
    dims = {"ratio": (*of_heads, "norm", "snapshot")} | dict.fromkeys(("size", "margin"), (*of_heads, "snapshot"))
    dims |= dict.fromkeys(("cone", "mean", "nearest", "first"), (*of_heads, "norm"))
    values = {name: np.stack([one[name] for one in found], axis=1)[kept] for name in found[0]}
    measured: dict[str, Any] = {name: (dims.get(name, of_heads), value) for name, value in values.items()}
    for name in ("log_loss", "log_loss_hard", "share"):
        measured[name] = (("seed", "snapshot"), arrays[name][kept][:, late])
    if of_one:
        measured |= {name: (axes, np.stack([one[name] for one in of_one])) for name, axes in _OF_ONE.items()}
        measured["tokens"] = (("sequence", "token"), arrays["sequences"][kept][0])
    counted = exclusions.count(kept, infeasible=(status == svm.Status.INFEASIBLE).any(axis=1))
    lost = int((~finite).sum())
    coordinates = {
        "seed": finished["seed"].values[kept],
        "head": np.array(names, object),
        "norm": np.array(NORMS, object),
        "snapshot": steps[late],
        "kind": np.array(single.NULLS, object),
    }
    counted |= {"attempted": counted["attempted"] + lost, "diverged": lost}
    return xarray.Dataset(measured, coordinates, counted)


def _of_seed(problems: single.Problems, positions: tuple[int, ...], seed: int, words: np.ndarray) -> dict[str, Any]:
    of_one = jax.tree.map(lambda leaf: np.asarray(leaf)[seed], problems)
    return single.followed(of_one, positions, "nuclear", jax.random.wrap_key_data(words))  # pyright: ignore[reportArgumentType]


def _of_head(
    arrays: dict[str, np.ndarray], layer: int, head: int, late: Int[np.ndarray, " k"], positions: tuple[int, ...]
) -> tuple[dict[str, np.ndarray], Int[np.ndarray, " seeds"], single.Problems]:
    """Return for each seed one head's measurements by name, the worst status of its problems, and the nuclear ones."""
    pose = partial(_posed, late=tuple(map(int, late)), positions=positions)
    read, W = arrays["read"][:, :, layer], arrays["W"][:, :, layer, head]
    posed = jax.tree.map(np.asarray, batch.over_seeds(pose, read, W, arrays["sources"]))
    seeds, k = posed.margin.shape
    # Inputs that are not trained pose the same problem at every snapshot.
    problems = 1 if all(np.all(leaf == leaf[:, :1]) for leaf in jax.tree.leaves(posed.constraints)) else k
    different = _flat(jax.tree.map(lambda leaf: leaf[:, :problems], posed.constraints))
    constraints, W = _flat((posed.constraints, posed.W))
    # Behind the late snapshots is that of the first final selections.
    along = jax.tree.map(lambda leaf: leaf[:, :-1], (posed.constraints, posed.W))
    measured = {"size": np.linalg.norm(along[1], axis=(2, 3)), "margin": posed.margin[:, :-1]}
    measured |= {"probability": posed.probability, "asked": posed.asked}
    by_norm, statuses, optima = [], [], {}
    key = jax.random.fold_in(jax.random.wrap_key_data(arrays["weights_key"][0]), layer * 100 + head)
    for norm in NORMS:
        solved = svm.solve_batch(different, norm=norm)
        solution = jax.tree.map(lambda leaf: np.repeat(leaf, k // problems, axis=0), solved)
        ratio = nulls.held(constraints, W[:, None], norms.named(norm), solution).reshape(seeds, k)
        solution = jax.tree.map(lambda leaf: leaf.reshape(seeds, k, *leaf.shape[1:]), solution)
        optima[norm] = jax.tree.map(lambda leaf: leaf[:, :-1], solution)
        rows, at_end, optimum = jax.tree.map(lambda leaf: leaf[:, -1], (*along, optima[norm]))
        null = _null(rows, at_end, optimum, norm, arrays["start"][:, layer, head], key)
        by_norm.append({"ratio": ratio[:, :-1], "first": ratio[:, -1]} | null)
        statuses.append(solution.status.max(axis=1))
    measured |= {name: np.stack([one[name] for one in by_norm], axis=1) for name in by_norm[0]}
    nuclear = single.Problems(read[:, late], along[1], along[0], optima["nuclear"], posed.selected)
    return measured, np.max(statuses, axis=0), nuclear


def _flat(arrays: Any) -> Any:
    """Return arrays with the axes of seeds and snapshots as one."""
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), arrays)


def _null(
    constraints: svm.Constraints,
    W: np.ndarray,
    solution: svm.Solution,
    norm: str,
    start: np.ndarray,
    key: PRNGKeyArray,
) -> dict[str, np.ndarray]:
    """Return the ratios of untrained matrices for each seed by name; 0 without a certified optimum, 1 if not found."""
    certified = np.asarray(solution.status) == svm.Status.OPTIMAL
    found = {name: np.zeros(len(certified)) for name in ("cone", "mean", "nearest")}
    if certified.any():
        constraints, W, solution = jax.tree.map(lambda leaf: leaf[certified], (constraints, W, solution))
        drawn = nulls.ratios(constraints, W, norm, solution, key, start=start[certified], draws=_DRAWS)
        found["cone"][certified] = np.quantile(np.minimum(drawn.cone, 1.0), QUANTILE, axis=1)
        found["mean"][certified] = drawn.mean
        nearest: Any = drawn.nearest
        found["nearest"][certified] = np.minimum(nearest, 1.0)
    return found


def _posed(
    read: Float[Array, "snapshots n T d"],
    W: Float[Array, "snapshots d d"],
    sources: Int[Array, "n T"],
    late: tuple[int, ...],
    positions: tuple[int, ...],
) -> _Head:
    """Pose the problems of one head at the late snapshots and, behind them, where its selections are first final."""
    logits = single.logits(read, W, positions)
    chosen = jnp.argmax(logits, axis=-1)
    alpha = chosen[-1]
    first = jnp.argmax(jnp.all(chosen == alpha[None], axis=(1, 2)))
    kept = jnp.append(jnp.asarray(late), first)
    constraints = jax.vmap(partial(single.rows, positions=positions), in_axes=(0, None))(read[kept], alpha)
    margin = jnp.min(jax.vmap(svm.margins)(constraints, W[kept]), axis=(1, 2))
    probability = jnp.min(jnp.max(jax.nn.softmax(logits[-1], axis=-1), axis=-1))
    asked = jnp.mean(alpha == sources[:, jnp.asarray(positions)])
    return _Head(constraints, W[kept], margin, alpha, probability, asked)
