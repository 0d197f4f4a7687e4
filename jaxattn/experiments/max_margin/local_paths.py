"""Follow the local regularization path of W from along the solution of locally optimal tokens, and measure it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from jaxattn import attention, checks, data, heads, losses, metrics, regularization, svm, tokens
from jaxattn.parallel import batch, effort
from jaxattn.problem import Problem, of_arrays
from jaxattn.records import Record
from jaxattn.study.measuring import exclusions
from jaxattn.study.settings.paths import Radii
from jaxattn.study.settings.recording import from_words, keys, noise_key

# The axes of each array of a record, after the seed axis.
_DIMS = {
    "X": ("input", "token", "feature"),
    "Z": ("input", "query_feature"),
    "Y": ("input",),
    "v": ("feature",),
    "data_key": ("key_word",),
    "samples_key": ("key_word",),
    "alpha": ("input",),
    "W": ("start", "radius", "feature", "query_feature"),
    "residual": ("start", "radius"),
    "solved": ("start", "radius"),
}
# Starts in the cone: W_alpha, and random directions on its boundary. Points there whose risk is compared.
_STARTS, _SAMPLES = 8, 200
# Newton steps of a round, and rounds: most points need few steps, and do not wait for the others.
_STEPS, _ROUNDS = 10, 5


@dataclass(frozen=True)
class LocalPaths:
    """A setting: problems, and the local paths around the solution of tokens that are locally optimal.

    Attributes:
        law: the law of the problems.
        loss: a function of one margin.
        head: a function of one attention output and v.
        seeds: the number of problems to draw.
        key: the root key; seed s draws its problem, the starts, and the points whose risk is compared, from
            `fold_in(key, s)`.
        radii: the radii of the balls.
    """

    law: data.Law
    loss: losses.Loss
    head: heads.Head
    seeds: int
    key: int
    radii: Radii

    def __post_init__(self) -> None:
        checks.count("seeds", self.seeds)

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """The radii."""
        return {"radius": self.radii()}

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        return _DIMS[name]

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Return the arrays of one seed by name; only their shapes are read."""
        data_key, weights_key = keys(seed, root)
        problem = from_words(self.law)(data_key)
        starts = _starts(weights_key, jnp.zeros((problem.d, problem.d)), jnp.ones(()))
        of_starts = jax.vmap(partial(regularization.local_path, problem, self.radii()))
        own = {"data_key": data_key, "samples_key": noise_key(seed, root)}
        return _arrays(problem, own, tokens.optimal(problem), of_starts(starts))

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw the problems of some seeds, choose tokens, and follow the paths."""
        data_keys, weights_keys = batch.over_seeds(keys, seeds, shared=(root,))
        problems = batch.over_seeds(from_words(self.law), data_keys)
        alpha, W = _locally_optimal(problems)
        starts = batch.over_seeds(_starts, weights_keys, W, batch.over_seeds(cone, problems, alpha, W))
        own = {"data_key": data_keys, "samples_key": batch.over_seeds(noise_key, seeds, shared=(root,))}
        return _arrays(problems, own, alpha, self._paths(problems, starts))

    def outcome(self, record: Record) -> dict[str, int]:
        """Count the seeds whose path from W_alpha is solved on every radius, and the others."""
        kept = sum(int(record.read("solved", part)[:, 0].all(axis=1).sum()) for part in record.blocks())
        return {"kept": kept, "unsolved": self.seeds - kept}

    def _paths(self, problems: Problem, starts: Float[np.ndarray, "seeds start d d"]) -> regularization.LocalPath:
        """Follow the paths, each radius as a lane of its own; those not solved go on from where they are."""
        radii = self.radii()
        shape = (*starts.shape[:2], radii.size)
        seed, start, radius = np.indices(shape).reshape(3, -1)
        W, residual, solved = starts[seed, start], np.zeros(seed.size), np.zeros(seed.size, bool)
        points = self.seeds * shape[1] * shape[2]
        compiled = effort.solving(points, problems.n * (problems.T - 1), _STEPS)
        point, left = _point(self.loss, self.head), np.arange(seed.size)
        for _ in range(_ROUNDS):
            problem = jax.tree.map(itemgetter(seed[left]), problems)
            given = problem, radii[radius[left]], W[left]
            W[left], residual[left], solved[left] = batch.over_seeds(point, *given, of=points, effort=compiled)
            left = left[~solved[left]]
            if not left.size:
                break
        found: Any = (leaf.reshape(*shape, *leaf.shape[1:]) for leaf in (W, residual, solved))
        return regularization.LocalPath(*found)


@lru_cache(maxsize=16)
def _point(loss: losses.Loss, head: heads.Head) -> Any:
    """Return a round of a path on one radius as a function of problem, radius and start; one object per setting."""

    def point(problem: Problem, R: Float[Array, ""], W: Float[Array, "d d"]) -> regularization.LocalPath:
        path = regularization.local_path(problem, R[None], W, loss=loss, head=head, most=_STEPS)
        return jax.tree.map(itemgetter(0), path)

    return jax.jit(point)


def cone(problem: Problem, alpha: Int[Array, " n"], W: Float[Array, "d d"]) -> Float[Array, ""]:
    """Return the smallest cosine with W_alpha in a cone that is narrow enough for this problem.

    In it alpha leads all other tokens, and tokens of a higher score than alpha are farther behind than the margin.
    Either stays true up to twice the tangent of the angle.
    """
    unit = W / jnp.where(metrics.norm(W) > 0, metrics.norm(W), 1.0)
    scores, own = tokens.scores(problem), jnp.arange(problem.T)[None] == alpha[:, None]
    D = jnp.take_along_axis(problem.X, alpha[:, None, None], axis=1) - problem.X
    margins = jnp.einsum("ntd,de,ne->nt", D, unit, problem.Z)
    lengths = jnp.sqrt(jnp.sum(D**2, axis=2)) * jnp.sqrt(jnp.sum(problem.Z**2, axis=1))[:, None]
    higher = scores > jnp.take_along_axis(scores, alpha[:, None], axis=1)
    slack = jnp.where(higher, margins - jnp.min(jnp.where(own, jnp.inf, margins)), margins)
    tangent = jnp.min(jnp.where(own, jnp.inf, slack / jnp.where(own, 1.0, lengths))) / 2
    return 1 / jnp.sqrt(1 + tangent**2)


def _starts(
    words: UInt32[Array, " words"], W: Float[Array, "d d"], cosine: Float[Array, ""]
) -> Float[Array, "start d d"]:
    """Return W, and random directions on the boundary of the cone around it."""
    return jnp.concatenate([W[None], _around(jax.random.wrap_key_data(words), W, cosine, _STARTS - 1)])


def _around(
    key: PRNGKeyArray, W: Float[Array, "d d"], cosine: Float[Array, ""], count: int
) -> Float[Array, "count d d"]:
    """Return random directions of norm 1 with this cosine with W."""
    unit = W / jnp.where(metrics.norm(W) > 0, metrics.norm(W), 1.0)

    def one(random: Array) -> Array:
        across = random - jnp.sum(random * unit) * unit
        return cosine * unit + jnp.sqrt(1 - cosine**2) * across / metrics.norm(across)

    return jax.vmap(one)(jax.random.normal(key, (count, *W.shape)))


def _candidates(problem: Problem) -> Int[Array, "choice n"]:
    """Return the optimal tokens with one input's token changed to its second best, for each input; then unchanged."""
    order = jnp.argsort(-tokens.scores(problem), axis=1)
    changed = jnp.where(jnp.eye(problem.n, dtype=bool), order[:, 1][None], order[:, 0][None])
    return jnp.concatenate([changed, order[None, :, 0]])


def _locally_optimal(problems: Problem) -> tuple[Int[np.ndarray, "seeds n"], Float[np.ndarray, "seeds d d"]]:
    """Return the first candidates that are locally optimal, and their Att-SVM solutions."""
    choices = np.asarray(batch.over_seeds(_candidates, problems))
    seeds = np.arange(len(choices))
    chosen = np.full(len(choices), choices.shape[1] - 1)
    W = np.zeros((len(choices), choices.shape[1], problems.d, problems.d))
    # Backwards, so that the first one stays.
    for k in reversed(range(choices.shape[1])):
        solution, local = _solved(problems, choices[:, k])
        W[:, k] = np.nan_to_num(solution.W)
        chosen[local] = k
    return choices[seeds, chosen], W[seeds, chosen]


def _solved(problems: Problem, alpha: Int[np.ndarray, "seeds n"]) -> tuple[svm.Solution, Bool[np.ndarray, " seeds"]]:
    """Return the Att-SVM solutions of tokens, and where these are certified and the tokens locally optimal."""
    constraints = batch.over_seeds(svm.token_constraints, problems, alpha)
    solution = svm.solve_batch(constraints, svm.frobenius)
    local = batch.over_seeds(_is_local, problems, alpha, constraints, np.nan_to_num(solution.W))
    return solution, np.asarray(local) & (solution.status == svm.Status.OPTIMAL)


def _is_local(
    problem: Problem, alpha: Int[Array, " n"], constraints: svm.Constraints, W: Float[Array, "d d"]
) -> Bool[Array, ""]:
    neighbours = tokens.support_neighbours(svm.margins(constraints, W), alpha)
    return tokens.is_locally_optimal(tokens.scores(problem), alpha, neighbours)


def _arrays(problem: Problem, keys: dict[str, Any], alpha: Any, path: regularization.LocalPath) -> dict[str, Any]:
    return problem.arrays | keys | {"alpha": alpha} | path._asdict()


def measure(record: xarray.Dataset) -> xarray.Dataset:
    """Compare the paths of a record of `LocalPaths` with the Att-SVM solutions W_alpha of their tokens.

    A seed is kept if its tokens are locally optimal with a certified solution, and the path from W_alpha is solved on
    every radius.

    Returns:
        A dataset with axes `seed` and `radius`: `distance`, the largest Frobenius distance of W / R from the direction
        of W_alpha, over the path from W_alpha and the solved ends of others in the `cone`; `inside`, the share of
        starts that end in it; `within`, whether the path from W_alpha is in it; `beaten`, if so, how many random points
        on its boundary have a lower risk than this path; `residual` of this path. For each seed whether its tokens are
        the `optimal` ones. Attributes: the counts.
    """
    arrays = {str(name): record[name].values for name in record.data_vars}
    problems, alpha = of_arrays(arrays), arrays["alpha"]
    solution, local = _solved(problems, alpha)
    solved = arrays["solved"]
    kept = local & solved[:, 0].all(axis=1)
    W_alpha = np.nan_to_num(solution.W)
    of_path = batch.over_seeds(
        _along,
        arrays["W"],
        solved,
        W_alpha,
        problems,
        alpha,
        arrays["samples_key"],
        shared=(record["radius"].values,),
    )
    optimal = (alpha == batch.over_seeds(tokens.optimal, problems)).all(axis=1)
    over_radii: dict[str, Any] = dict(zip(("distance", "inside", "within", "beaten"), of_path, strict=True))
    over_radii["residual"] = arrays["residual"][:, 0]
    return xarray.Dataset(
        {name: (("seed", "radius"), np.asarray(values)[kept]) for name, values in over_radii.items()}
        | {"optimal": (("seed",), np.asarray(optimal)[kept])},
        {"seed": record["seed"].values[kept], "radius": record["radius"].values},
        exclusions.count(kept, infeasible=np.asarray(solution.status == svm.Status.INFEASIBLE)),
    )


def _along(
    W: Float[Array, "start radius d d"],
    solved: Bool[Array, "start radius"],
    W_alpha: Float[Array, "d d"],
    problem: Problem,
    alpha: Int[Array, " n"],
    words: UInt32[Array, " words"],
    radii: Float[Array, " radius"],
) -> tuple[Array, Array, Array, Array]:
    """Return distance, inside, within and beaten of `measure`."""
    cosine = cone(problem, alpha, W_alpha)
    unit = W_alpha / jnp.where(metrics.norm(W_alpha) > 0, metrics.norm(W_alpha), 1.0)

    def place(W: Array, R: Array) -> tuple[Array, Array]:
        return metrics.norm(W / R - unit), jnp.sum(W * unit) >= cosine * metrics.norm(W)

    distance, within = jax.vmap(jax.vmap(place), in_axes=(0, None))(W, radii)
    inside = solved & within
    others = _around(jax.random.wrap_key_data(words), unit, cosine, _SAMPLES)

    def beaten(own: Array, R: Array) -> Array:
        sign, size = _excess(own, problem, alpha)
        signs, sizes = jax.vmap(lambda other: _excess(R * other, problem, alpha))(others)
        most = jnp.maximum(size, sizes)
        return jnp.sum(signs * jnp.exp(sizes - most) < sign * jnp.exp(size - most))

    farthest = jnp.maximum(distance[0], jnp.max(jnp.where(inside, distance, 0.0), axis=0))
    below = jnp.where(within[0], jax.vmap(beaten)(W[0], radii), 0)
    return farthest, jnp.mean(inside, axis=0), within[0], below


def _excess(W: Float[Array, "d d"], problem: Problem, alpha: Int[Array, " n"]) -> tuple[Array, Array]:
    """Return sign and logarithm of the risk minus that of the tokens alpha, to first order in attention to others."""
    scores = tokens.scores(problem)
    own = jnp.take_along_axis(scores, alpha[:, None], axis=1)
    log_share = jax.nn.log_softmax(attention.logits(W, problem), axis=1)
    slopes = jnp.log(jnp.abs(jax.vmap(jax.grad(losses.logistic))(own[:, 0])))
    size, sign = jax.scipy.special.logsumexp(log_share + slopes[:, None], b=own - scores, return_sign=True)
    return sign, size
