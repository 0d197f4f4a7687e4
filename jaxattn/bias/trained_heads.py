"""Does a head of a transformer select its tokens with a larger margin than untrained matrices do?

One checkpoint has no limit, so no norm is named as the one that training obeys: a head, given as arrays, is compared
with the certified optimum on its own rows, and with the matrices of `bias.nulls`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.nn
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from jaxattn import svm, tokens
from jaxattn.bias import checking, nulls, ranking
from jaxattn.norms import Norm
from jaxattn.problem import as_array
from jaxattn.statistics import derive_key
from jaxattn.svm import constraints as cons
from jaxattn.svm.packing import picked

__all__ = ["Heads", "heads"]

# A head that gives the first token most attention in more than this share of queries is an attention sink.
SINK = 0.5
# The share of queries that a head has to decide, to be compared with a head that decides all.
DECIDED = 0.9


@dataclass(frozen=True)
class Heads:
    """The heads of one attention layer, each against its own max-margin problem.

    Attributes:
        norms: the names of the norms, as given.
        rows: the number of rows of the max-margin problem, (heads,).
        saturated: the share of queries whose source has a probability above `tokens.SATURATED`, (heads,).
        first: the share of queries that give the first token most attention, (heads,); the first that any query sees,
            if a mask hides padding before it.
        violated: the share of rows whose margin is not positive, (heads,).
        status: the `svm.Status` of the optimum, (heads, norms).
        margin_ratio: the margin of W, relative to its norm, divided by the optimum's, (heads, norms); NaN where the
            status is not OPTIMAL.
        bound: what it has to exceed, `Nulls.bound`, (heads, norms); NaN where the status is not OPTIMAL, and inf where
            the matrix nearest to the start is not certified.
        verdict: for each head "sink", "not separable" (with a proof), "not saturated", "above all nulls" with the norms
            in which it is, "within the nulls", or "not certified".
    """

    norms: tuple[str, ...]
    rows: Int[np.ndarray, " heads"]
    saturated: Float[np.ndarray, " heads"]
    first: Float[np.ndarray, " heads"]
    violated: Float[np.ndarray, " heads"]
    status: Int[np.ndarray, "heads norms"]
    margin_ratio: Float[np.ndarray, "heads norms"]
    bound: Float[np.ndarray, "heads norms"]
    verdict: tuple[str, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many heads have each verdict."""
        return dict(Counter(self.verdict))

    def table(self) -> str:
        """Return a table for a terminal, one line per head: with the margin ratio and the bound in each norm."""
        widths = [max(13, len(name)) for name in self.norms]
        names = "  ".join(f"{name:{width}}" for name, width in zip(self.norms, widths, strict=True))
        lines = [f"head  {'rows':>6}  saturated  first  violated  {names}  verdict"]
        for k, verdict in enumerate(self.verdict):
            of_norms = zip(self.margin_ratio[k], self.bound[k], widths, strict=True)
            ratios = "  ".join(f"{_against(ratio, bound):{width}}" for ratio, bound, width in of_norms)
            lines.append(
                f"{k:4}  {self.rows[k]:6}  {self.saturated[k]:9.3f}  {self.first[k]:5.2f}  {self.violated[k]:8.3f}  "
                f"{ratios}  {verdict}"
            )
        return "\n".join(lines)


def _against(ratio: float, bound: float) -> str:
    return "-" if np.isnan(ratio) else f"{ratio:.3f} {'>' if ratio > bound else '<'} {bound:.3f}"


def heads(
    hidden: Any,
    W_Q: Any,
    W_K: Any,
    *,
    mask: Any = None,
    scale: float = 1.0,
    queries: Any = None,
    sources: Any = None,
    start: tuple[Any, Any] | None = None,
    norms: Sequence[str | Norm] = ("frobenius", "nuclear"),
    key: PRNGKeyArray | None = None,
) -> Heads:
    """Compare each head of an attention layer with the certified optimum of its max-margin problem, and with nulls.

    The logit of query u and token t is `scale (x_u W_Q) . (x_t W_K)`, so `W = scale W_K W_Q^T` in `x_t^T W x_u`.
    The rows ask that the source of each query wins against all other tokens that the query sees.

    Args:
        hidden: the states x that enter the layer, behind its norm, (sequences, T, d).
        W_Q: the weights of the queries, (heads, d, m).
        W_K: the weights of the keys, (heads, d, m), or fewer, each shared by as many successive heads.
        mask: truth values, (T, T) or (sequences, T, T): which tokens (last axis) a query sees. Default: causal.
        scale: the factor of the logits, as 1 / sqrt(m).
        queries: truth values, (sequences, T): which queries count. Default: those that see at least two tokens.
        sources: the token that the task asks of each query, (sequences, T). Default: the one of largest logit.
        start: W_Q and W_K before training, for the matrix nearest to the start.
        norms: names or Norms.
        key: the random key of the draws from the cone. Default: `jax.random.key(0)`.

    Raises:
        ValueError: shapes that do not fit, sequences of one token, NaN or infinity, a head whose W is zero, no query, a
            query that counts and sees fewer than two tokens or not its source; double precision without JAX's x64 mode;
            and norms as `bias.rank`, without "trace".

    Example:
        >>> hidden = np.random.default_rng(0).normal(size=(2, 4, 5))
        >>> W_Q, W_K = 9 * np.random.default_rng(1).normal(size=(2, 3, 5, 5))
        >>> found = bias.heads(hidden, W_Q, W_K)
        >>> found.margin_ratio.shape, found.rows.tolist()
        ((3, 2), [12, 12, 12])
    """
    names, values = ranking.named(norms)
    key, scale = checking.random_key(key), checking.check_scale(scale)
    layer = _checked(hidden, W_Q, W_K, mask, scale, queries)
    before = None if start is None else _before(start, scale, layer)
    of_sequence, of_query = np.nonzero(layer.counts)
    seen = layer.mask[of_sequence, of_query]
    X: Any = layer.hidden[of_sequence]
    Z: Any = layer.hidden[of_sequence, of_query]
    logits = np.where(seen, np.einsum("ntd,hde,ne->hnt", X, layer.W, Z, optimize=True), -np.inf)
    chosen = logits.argmax(axis=2)
    alpha = chosen
    if sources is not None:
        alpha = np.broadcast_to(_sources(sources, layer)[of_sequence, of_query], chosen.shape)
    places = np.arange(len(seen))
    if not seen[places, alpha].all():
        raise ValueError(
            f"sources: expected tokens that their queries see, found {int((~seen[places, alpha[0]]).sum())} others"
        )
    present: Any = seen & (np.arange(X.shape[1]) != alpha[..., None])
    differences: Any = np.where(present[..., None], X[places, alpha][:, :, None] - X, 0.0)
    of_heads: Any = np.repeat(Z[None], len(layer.W), axis=0)
    rows = svm.Constraints(differences, of_heads, present=present)
    margins = np.asarray(cons.margins(rows, layer.W))
    probability = np.asarray(jax.nn.softmax(logits, axis=2))
    source = np.take_along_axis(probability, alpha[..., None], axis=2)[..., 0]
    solutions = [svm.solve_batch(rows, norm) for norm in values]
    status = np.stack([solution.status for solution in solutions], axis=1)
    ratio, bound = np.full((2, *status.shape), np.nan)
    for k, (norm, solution) in enumerate(zip(values, solutions, strict=True)):
        kept = np.flatnonzero(solution.status == svm.Status.OPTIMAL)
        if kept.size:
            own = picked((rows, layer.W, solution, before), kept)
            ratio[kept, k] = nulls.held(own[0], own[1][:, None], norm, own[2])[:, 0]
            found = nulls.ratios(own[0], own[1], norm, own[2], derive_key(key, k), own[3])
            bound[kept, k] = found.bound()
    first = (chosen == layer.first[of_sequence]).mean(axis=1)
    saturated = (source > tokens.SATURATED).mean(axis=1)
    verdict = tuple(_verdict(names, *of_head) for of_head in zip(first, saturated, status, ratio, bound, strict=True))
    number = present.sum(axis=(1, 2))
    violated = (present & (margins <= 0)).sum(axis=(1, 2)) / number
    return Heads(names, number, saturated, first, violated, status, ratio, bound, verdict)


def _verdict(
    names: Sequence[str],
    first: float,
    saturated: float,
    status: Int[np.ndarray, " norms"],
    ratio: Float[np.ndarray, " norms"],
    bound: Float[np.ndarray, " norms"],
) -> str:
    if first > SINK:
        return "sink"
    if (status == svm.Status.INFEASIBLE).any():
        return "not separable"
    if saturated < DECIDED:
        return "not saturated"
    # Comparisons with NaN are false.
    if (ratio > bound).any():
        above = [name for name, is_above in zip(names, ratio > bound, strict=True) if is_above]
        return f"above all nulls ({', '.join(above)})"
    return "within the nulls" if np.isfinite(bound).all() else "not certified"


class _Layer(NamedTuple):
    """The checked arrays of a layer: with one matrix W for each head, and a mask for each sequence."""

    hidden: Float[np.ndarray, "sequences T d"]
    W: Float[np.ndarray, "heads d d"]
    mask: Bool[np.ndarray, "sequences T T"]
    counts: Bool[np.ndarray, "sequences T"]

    @property
    def first(self) -> Int[np.ndarray, " sequences"]:
        """The first token of each sequence that a query with a choice sees: behind the padding, if there is some."""
        chooses: Any = self.mask.sum(axis=2) > 1
        return (self.mask & chooses[:, :, None]).any(axis=1).argmax(axis=1)


def _checked(hidden: Any, W_Q: Any, W_K: Any, mask: Any, scale: float, queries: Any) -> _Layer:
    hidden = _numbers("hidden", hidden, "(sequences, T, d)")
    sequences, T, d = hidden.shape
    if T < 2:
        raise ValueError("hidden: expected sequences of at least two tokens, found one: nothing is selected")
    W = _matrices(W_Q, W_K, scale, d)
    if zero := np.flatnonzero(~W.any(axis=(1, 2))).tolist():
        raise ValueError(f"W_Q, W_K: expected heads with a direction, found W = 0 in the heads {zero}")
    mask = np.tri(T, dtype=bool) if mask is None else _truth("mask", mask, ((T, T), (sequences, T, T)))
    mask = np.broadcast_to(mask, (sequences, T, T))
    several = mask.sum(axis=2) > 1
    counts = several if queries is None else _truth("queries", queries, ((sequences, T),))
    if alone := int((counts & ~several).sum()):
        raise ValueError(f"queries: expected ones that see at least two tokens, found {alone} others")
    if not counts.any():
        raise ValueError("queries: expected at least one that counts, found none")
    return _Layer(hidden, W, mask, counts)


def _matrices(W_Q: Any, W_K: Any, scale: float, d: int) -> Float[np.ndarray, "heads d d"]:
    """Return `scale W_K W_Q^T` of each head."""
    W_Q, W_K = _numbers("W_Q", W_Q, "(heads, d, m)"), _numbers("W_K", W_K, "(heads, d, m)")
    for name, value in (("W_Q", W_Q), ("W_K", W_K)):
        if value.shape[1:] != (d, W_Q.shape[2]):
            raise ValueError(
                f"{name}: expected (heads, {d}, {W_Q.shape[2]}), as the states have {d} numbers and the heads of W_Q "
                f"{W_Q.shape[2]}, found {value.shape}"
            )
    if len(W_Q) % len(W_K):
        raise ValueError(f"W_K: expected a number of heads that divides the {len(W_Q)} of W_Q, found {len(W_K)}")
    W_K = np.repeat(W_K, len(W_Q) // len(W_K), axis=0)
    return scale * (W_K @ W_Q.mT)


def _before(start: Any, scale: float, layer: _Layer) -> Float[np.ndarray, "heads d d"]:
    size = len(start) if hasattr(start, "__len__") else 0
    if size != 2:
        found = f"{type(start).__name__} of length {size}" if size else type(start).__name__
        raise ValueError(f"start: expected the pair (W_Q, W_K) before training, found {found}")
    W_Q, W_K = start
    W = _matrices(W_Q, W_K, scale, layer.hidden.shape[2])
    if W.shape != layer.W.shape:
        raise ValueError(f"start: expected {len(layer.W)} heads as after training, found {len(W)}")
    return W


def _sources(sources: Any, layer: _Layer) -> Int[np.ndarray, "sequences T"]:
    array, shape, T = np.asarray(sources), layer.counts.shape, layer.mask.shape[1]
    if array.shape != shape or array.dtype.kind not in "iu":
        raise ValueError(f"sources: expected integers {shape}, found {array.dtype} {array.shape}")
    if outside := int((layer.counts & ((array < 0) | (array >= T))).sum()):
        raise ValueError(f"sources: expected tokens 0..{T - 1}, found {outside} others")
    return array


def _numbers(name: str, value: Any, axes: str) -> Float[np.ndarray, "a b c"]:
    array = np.asarray(as_array(name, checking.widened(np.asarray(value))))
    if array.ndim != 3 or 0 in array.shape:
        raise ValueError(f"{name}: expected shape {axes}, found {array.shape}")
    return array


def _truth(name: str, value: Any, shapes: Sequence[tuple[int, ...]]) -> Bool[np.ndarray, "..."]:
    array = np.asarray(value)
    if array.dtype != bool or array.shape not in shapes:
        expected = " or ".join(map(str, shapes))
        raise ValueError(f"{name}: expected truth values {expected}, found {array.dtype} {array.shape}")
    return array
