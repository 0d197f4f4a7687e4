"""Models: how parameters and a problem give the logits of one or several attention heads, and predictions.

A model is a value. `descent.train(params, problem, model=...)` trains its parameters, and `bias.rank(run, problems,
model=...)` holds them against the max-margin problems of the tokens that it selects. A new one takes one function::

    def shifted(W, problem):
        return jnp.einsum("ntd,de,ne->nt", problem.X - problem.X.mean(axis=1, keepdims=True), W, problem.Z)


    run = descent.train(start, problem, model=shifted)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxattn import attention, checks, heads
from jaxattn.problem import Problem

__all__ = [
    "Heads",
    "Joint",
    "Logits",
    "Model",
    "Seeing",
    "Valued",
    "additive",
    "concatenated",
    "key_only",
    "normalized",
    "of",
    "plain",
    "rotary",
    "sinusoidal",
    "summed",
    "temperature",
    "with_values",
]


class Joint(NamedTuple):
    """Parameters of a model whose predictions have some of their own, beside those of its attention.

    Attributes:
        attention: what the logits depend on.
        readout: what the predictions depend on, such as a value vector v, (d,).
    """

    attention: Any
    readout: Any


@runtime_checkable
class Model(Protocol):
    """How parameters and a problem give logits and predictions. Models are hashable: equal ones compile once."""

    def logits(self, weights: Any, problem: Problem) -> Float[Array, "heads n T"]:
        """Return the logits of every head; -inf for a token that an input cannot see."""
        ...

    def predictions(
        self, readout: Any, probabilities: Float[Array, "heads n T"], problem: Problem, head: heads.Head
    ) -> Float[Array, " n"]:
        """Return what is made of the attention of all heads; `readout` is None where nothing of it is trained."""
        ...


def parts(params: Any) -> Joint:
    """Return the parameters of attention, and those of the readout or None.

    Example:
        >>> from jaxattn import models
        >>> models.parts(start).readout is None
        True
    """
    return params if isinstance(params, Joint) else Joint(params, None)


def _same(problem: Problem) -> Problem:
    return problem


@dataclass(frozen=True)
class Seeing:
    """One head whose attention sees keys and queries that are made of the problem's tokens and queries.

    Its weights are those of `attention`: W, (d, d), K and Q, (d, m), or Spanned. The logits are
    `k_it^T W q_i`, so W obeys a max-margin problem over the keys k and queries q.

    Attributes:
        see: from a problem to the same with keys as its tokens X and queries as its Z.
        read: from a problem to the one whose tokens the head reads.
    """

    see: Callable[[Problem], Problem] = _same
    read: Callable[[Problem], Problem] = _same

    def logits(self, weights: attention.Weights, problem: Problem) -> Float[Array, "1 n T"]:
        """Return `k_it^T W q_i`."""
        return attention.logits(weights, self.see(problem))[None]

    def predictions(
        self, readout: Any, probabilities: Float[Array, "1 n T"], problem: Problem, head: heads.Head
    ) -> Float[Array, " n"]:
        """Return what the head makes of the attention output."""
        return _of_outputs(attention.attended(probabilities[0], self.read(problem)), readout, problem, head)

    def seen(self, problem: Problem) -> Problem:
        """Return the problem of which `matrix` gives the logits `X_i W z_i`."""
        return self.see(problem)

    def matrix(self, weights: attention.Weights) -> Float[Array, "*batch d d"]:
        """Return W."""
        return attention.matrix(weights)


def _of_outputs(outputs: Float[Array, "n d"], readout: Any, problem: Problem, head: heads.Head) -> Float[Array, " n"]:
    return jax.vmap(head, in_axes=(0, None))(outputs, problem.v if readout is None else readout)


# The model of the papers: logits `X_i W z_i`.
plain = Seeing()


@dataclass(frozen=True)
class _Normalized:
    def __call__(self, problem: Problem) -> Problem:
        return _with(problem, X=_unit(problem.X), Z=_unit(problem.Z))


def _unit(x: Float[Array, "*axes d"]) -> Float[Array, "*axes d"]:
    length = jnp.linalg.norm(x, axis=-1, keepdims=True)
    return x / jnp.where(length > 0, length, 1)


def _with(problem: Problem, **arrays: Any) -> Problem:
    return Problem(**problem.arrays | arrays)


def normalized() -> Seeing:
    """Return the model whose attention sees tokens and queries divided by their lengths; the head reads them as given.

    Example:
        >>> run = descent.train(start, problem, model=models.normalized(), steps=10)
    """
    return Seeing(_Normalized())


@dataclass(frozen=True)
class _Tempered:
    tau: float

    def __call__(self, problem: Problem) -> Problem:
        return _with(problem, Z=problem.Z / jnp.asarray(self.tau, problem.Z.dtype))


def temperature(tau: float) -> Seeing:
    """Return the model with logits `X_i W z_i / tau`, such as tau = sqrt(d).

    Raises:
        ValueError: tau is not positive and finite.

    Example:
        >>> run = descent.train(start, problem, model=models.temperature(5**0.5), steps=10)
    """
    return Seeing(_Tempered(checks.positive("tau", tau)))


@dataclass(frozen=True)
class _Shifted:
    positions: tuple[tuple[float, ...], ...]
    query: tuple[float, ...] | None

    def __call__(self, problem: Problem) -> Problem:
        P = jnp.asarray(self.positions, problem.X.dtype)
        if P.shape != (problem.T, problem.d):
            raise ValueError(
                f"P: expected positions (T, d) = ({problem.T}, {problem.d}) as the tokens have, found {P.shape}"
            )
        Z = problem.Z if self.query is None else problem.Z + jnp.asarray([self.query], problem.Z.dtype)
        return _with(problem, X=problem.X + P[None], Z=Z)


def key_only(P: Any) -> Seeing:
    """Return the model whose keys are `x_it + p_t`; queries, and the tokens that the head reads, have no positions.

    Args:
        P: a position vector for each place, (T, d).

    Raises:
        ValueError: P is not (T, d) or not finite; trained on a problem, another T or d than its.

    Example:
        >>> run = descent.train(start, problem, model=models.key_only(np.eye(4, 5)), steps=10)
    """
    return Seeing(_Shifted(_rows(P), None))


def additive(P: Any, query: int | None = None) -> Seeing:
    """Return the model that sees and reads `x_it + p_t`, positions added to the tokens from the first.

    Args:
        P: a position vector for each place, (T, d).
        query: the place of every input's query, whose vector is added to it; none if None.

    Raises:
        ValueError: as `key_only`; a query outside 0..T-1.

    Example:
        >>> run = descent.train(start, problem, model=models.additive(np.eye(4, 5), query=0), steps=10)
    """
    rows = _rows(P)
    if query is not None and query not in range(len(rows)):
        raise ValueError(f"query: expected a place in 0..{len(rows) - 1} or None, found {query!r}")
    return Seeing(_Shifted(rows, None if query is None else rows[query]), _Shifted(rows, None))


def _rows(P: Any) -> tuple[tuple[float, ...], ...]:
    rows = np.asarray(P, float)
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise ValueError(f"P: expected finite positions of shape (T, d), found {rows.shape}")
    return tuple(map(tuple, rows.tolist()))


def sinusoidal(T: int, d: int, scale: float = 1.0, base: float = 10_000.0) -> Float[np.ndarray, "T d"]:
    """Return the usual sines and cosines of places, (T, d), divided by their length sqrt(d / 2), times a scale.

    Raises:
        ValueError: T or d < 1; a scale or base that is not positive and finite.

    Example:
        >>> run = descent.train(start, problem, model=models.key_only(models.sinusoidal(4, 5)), steps=10)
    """
    checks.count("T", T)
    checks.count("d", d)
    checks.positive("scale", scale)
    angles = np.arange(T)[:, None] * checks.positive("base", base) ** (-(np.arange(d) // 2 * 2) / d)
    P = np.where(np.arange(d) % 2, np.cos(angles), np.sin(angles))
    return scale * P / np.sqrt(d / 2)


@dataclass(frozen=True)
class _Rotated:
    base: float
    query: int

    def __call__(self, problem: Problem) -> Problem:
        places = jnp.arange(problem.T, dtype=problem.X.dtype)[None, :, None]
        X = _turned(problem.X, places, self.base)
        return _with(problem, X=X, Z=_turned(problem.Z, jnp.full((1, 1), self.query, X.dtype), self.base))


def _turned(x: Float[Array, "*axes d"], places: Float[Array, "*places 1"], base: float) -> Float[Array, "*axes d"]:
    """Rotate coordinates 2j and 2j + 1 by `place * base^(-2j/d)`; a last one that has no partner stays."""
    d = x.shape[-1]
    speeds = jnp.asarray(base, x.dtype) ** (-jnp.arange(0, d - 1, 2, dtype=x.dtype) / d)
    angles = places * speeds.reshape((1,) * (x.ndim - 1) + (-1,))
    even, odd = x[..., 0 : d - 1 : 2], x[..., 1::2]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    pairs = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return jnp.concatenate([pairs.reshape(*x.shape[:-1], -1), x[..., 2 * (d // 2) :]], axis=-1)


def rotary(query: Any = 0, base: float = 10_000.0) -> Seeing:
    """Return the model with rotary positions: logits `(R_t x_it)^T W R_q z_i`, R_t the rotations of place t.

    The rotations act on tokens and queries, before W, where the usual ones act on `K^T x` and `Q^T z`: so the logits
    stay linear in W, and W obeys a max-margin problem. The two agree where K and Q commute with the rotations.

    Args:
        query: the place q of every input's query.
        base: of the angles `t base^(-2j/d)`.

    Raises:
        ValueError: a place that is no whole number, a base that is not positive and finite.

    Example:
        >>> run = descent.train(start, problem, model=models.rotary(), steps=10)
    """
    if isinstance(query, bool) or not hasattr(query, "__index__"):
        raise ValueError(f"query: expected a place, a whole number, found {query!r}")
    return Seeing(_Rotated(checks.positive("base", base), int(query)))


@dataclass(frozen=True)
class Heads:
    """Several heads over the same tokens, each with weights of its own; the parameters are a tuple of them.

    The attention outputs are added up, or concatenated: then head h delivers the h-th block of d / count coordinates.
    Leaf by leaf, an optimizer such as `normalized_gd` moves every head by its own gradient's length;
    `jointly_normalized_gd` has one for all.

    The joint max-margin problem, which `bias.rank` poses, has every head's rows and one norm, that of the block
    diagonal matrix of all W_h. For one head alone, rank `run._replace(weights=run.weights[h],
    snapshots=run.snapshots[h])` with that head's model, such as `model=models.plain`.

    Attributes:
        count: how many.
        blocks: whether the outputs are concatenated.
        model: of each head.
    """

    count: int
    blocks: bool = False
    model: Seeing = plain

    def __post_init__(self) -> None:
        checks.count("count", self.count)

    def logits(self, weights: Any, problem: Problem) -> Float[Array, "heads n T"]:
        """Return the logits of every head.

        Raises:
            ValueError: other weights than a tuple of one for each head.
        """
        self._check(weights)
        seen = self.model.see(problem)
        return jnp.stack([attention.logits(one, seen) for one in weights])

    def predictions(
        self, readout: Any, probabilities: Float[Array, "heads n T"], problem: Problem, head: heads.Head
    ) -> Float[Array, " n"]:
        """Return what the head makes of the sum or the concatenation of all outputs.

        Raises:
            ValueError: outputs are concatenated, and d is no multiple of the number of heads.
        """
        X = self.model.read(problem).X
        if not self.blocks:
            return _of_outputs(jnp.einsum("ntd,hnt->nd", X, probabilities), readout, problem, head)
        if problem.d % self.count:
            raise ValueError(f"heads: expected d = {problem.d} to be a multiple of {self.count} concatenated heads")
        split = X.reshape(*X.shape[:2], self.count, -1)
        outputs = jnp.einsum("nthc,hnt->nhc", split, probabilities).reshape(problem.n, problem.d)
        return _of_outputs(outputs, readout, problem, head)

    def seen(self, problem: Problem) -> Problem:
        """Return the problem of the joint SVM: the n inputs for every head anew, in coordinates of its own."""
        seen = self.model.see(problem)
        arrays = {name: jnp.concatenate([array] * self.count) for name, array in seen.arrays.items() if name != "v"}
        for name in ("X", "Z"):
            blocks = [_in_block(getattr(seen, name), h, self.count) for h in range(self.count)]
            arrays[name] = jnp.concatenate(blocks)
        return Problem(**arrays, v=jnp.tile(seen.v, (self.count,) + (1,) * (seen.v.ndim - 1)))

    def matrix(self, weights: Any) -> Float[Array, "*batch e e"]:
        """Return the block diagonal matrix of all W_h, (count * d, count * d)."""
        self._check(weights)
        matrices = [attention.matrix(one) for one in weights]
        rows = [_in_block(W, h, self.count) for h, W in enumerate(matrices)]
        return jnp.concatenate(rows, axis=-2)

    def _check(self, weights: Any) -> None:
        found: Any = weights
        fits = isinstance(weights, tuple) and not hasattr(weights, "_fields") and len(weights) == self.count
        if not fits:
            kind = f"an array of shape {found.shape}" if hasattr(found, "shape") else type(found).__name__
            found = f"{len(found)} of them" if isinstance(found, tuple) else kind
            raise ValueError(f"weights: expected a tuple of {self.count} heads' weights, found {found}")


def _in_block(array: Array, h: int, count: int) -> Array:
    """Return an array with the entries of its last axis in the h-th of so many blocks."""
    d = array.shape[-1]
    return jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(h * d, (count - 1 - h) * d)])


def summed(count: int, model: Seeing = plain) -> Heads:
    """Return so many heads whose outputs are added up: `h(sum_h X_i^T s_ih)`.

    Raises:
        ValueError: count < 1.

    Example:
        >>> run = descent.train((start, 0.5 * start), problem, model=models.summed(2), steps=10)
        >>> len(run.weights), run.probability.shape
        (2, (10,))
    """
    return Heads(count, model=model)


def concatenated(count: int, model: Seeing = plain) -> Heads:
    """Return so many heads whose outputs are concatenated: head h delivers the h-th of count blocks of coordinates.

    Raises:
        ValueError: count < 1; trained, a d that is no multiple of it.

    Example:
        >>> wide = data.sphere(key, n=3, T=4, d=6)
        >>> run = descent.train((jnp.zeros((6, 6)),) * 2, wide, model=models.concatenated(2), steps=10)
    """
    return Heads(count, blocks=True, model=model)


@dataclass(frozen=True)
class Valued:
    """Another model, whose head's numbers v are trained beside the attention; the parameters are a `Joint`.

    Attributes:
        model: of the attention.
    """

    model: Seeing | Heads = plain

    def logits(self, weights: Any, problem: Problem) -> Float[Array, "heads n T"]:
        """Return those of the attention."""
        return self.model.logits(weights, problem)

    def predictions(
        self, readout: Any, probabilities: Float[Array, "heads n T"], problem: Problem, head: heads.Head
    ) -> Float[Array, " n"]:
        """Return what the head makes of the attention with these v.

        Raises:
            ValueError: no readout, or one of another shape than the problem's v.
        """
        found = None if readout is None else jnp.shape(readout)
        if found != problem.v.shape:
            raise ValueError(
                f"params: expected models.Joint(attention, readout) with v of shape {problem.v.shape} as readout, "
                f"found {found}"
            )
        return self.model.predictions(readout, probabilities, problem, head)

    def seen(self, problem: Problem) -> Problem:
        """Return that of the attention."""
        return self.model.seen(problem)

    def matrix(self, weights: Any) -> Float[Array, "*batch d d"]:
        """Return that of the attention."""
        return self.model.matrix(weights)


def with_values(model: Seeing | Heads = plain) -> Valued:
    """Return a model with the head's v trained beside the attention; the parameters are `Joint(weights, v)`.

    Example:
        >>> params = models.Joint(start, problem.v)
        >>> rule = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
        >>> descent.train(params, problem, model=models.with_values(), optimizer=rule, steps=10).weights.readout.shape
        (5,)
    """
    return Valued(model)


@dataclass(frozen=True)
class Logits:
    """A model of one function from parameters and a problem to logits; the outputs of several heads are added up.

    Attributes:
        function: from any pytree and a problem to (n, T), or (heads, n, T).
    """

    function: Callable[[Any, Problem], Array]

    def logits(self, weights: Any, problem: Problem) -> Float[Array, "heads n T"]:
        """Return what the function does.

        Raises:
            ValueError: it returns another shape than (n, T) or (heads, n, T).
        """
        found = jnp.asarray(self.function(weights, problem))
        if found.ndim not in (2, 3) or found.shape[-2:] != (problem.n, problem.T):
            raise ValueError(
                f"model: expected logits of shape (n, T) = ({problem.n}, {problem.T}) or (heads, n, T), "
                f"found {found.shape}"
            )
        return attention.masked(found.reshape(-1, problem.n, problem.T), problem)

    def predictions(
        self, readout: Any, probabilities: Float[Array, "heads n T"], problem: Problem, head: heads.Head
    ) -> Float[Array, " n"]:
        """Return what the head makes of the sum of all outputs."""
        return _of_outputs(jnp.einsum("ntd,hnt->nd", problem.X, probabilities), readout, problem, head)


def of(model: Any) -> Model:
    """Return a model; of a function from parameters and a problem to logits, (n, T) or (heads, n, T), its `Logits`.

    Raises:
        ValueError: neither.

    Example:
        >>> models.of(lambda W, problem: problem.Z @ W.T @ problem.X[0].T).logits(start, problem).shape
        (1, 3, 4)
    """
    if isinstance(model, Model) and not isinstance(model, type):
        return model
    checks.function("model", model, ("params", "problem"))
    return Logits(model)
