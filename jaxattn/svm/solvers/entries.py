"""Internal: the central path for entrywise norms.

With `W = w+ - w-`, `w = w+ + w-` and `M = (z- - z+) / 2`, `g = (z+ + z-) / 2` the path is `w+ z+ = w- z- = mu`, entry
by entry as in linear programming, where `g` is the gradient of the norm at the entry sizes w: `g = (w /
||w||_p)^(p-1)`. So `|W| <= w` and `|M| <= g` throughout. To keep the exponent below 1, either g is a function of w, or,
for p > 2, `w = N g^(1/(p-1))`. At p = 1 (g = 1) and p = inf (w = N) the equations are those of the linear program.

Takes one problem of JAX's arrays, or NumPy arrays with a leading axis of lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from jaxattn.lengths import euclidean
from jaxattn.norms import Entrywise, conjugate
from jaxattn.svm.pivoting import LAST, AnyArray, module_of, positive
from jaxattn.svm.rounding import per_row
from jaxattn.svm.solvers import path_loop
from jaxattn.svm.solvers.norm_path import INSIDE, Aim, Begin, Geometry, Local, Matrix, Number, Point, Task

# The smallest initial gradient, as a fraction of the largest.
_FLOOR = 0.1


class Part(NamedTuple):
    """`wp, wm, zp, zm > 0` for `w+, w-, z+, z-`."""

    wp: Matrix
    wm: Matrix
    zp: Matrix
    zm: Matrix

    @property
    def W(self) -> Matrix:
        """The matrix."""
        return self.wp - self.wm


@dataclass(frozen=True)
class Entries(Geometry):
    """The path of an entrywise norm."""

    norm: Entrywise
    squared: bool

    @property
    def _rises(self) -> bool:
        """Whether g is written as a function of w."""
        return self.norm.p <= 2

    @property
    def _exponent(self) -> float:
        p = self.norm.p
        return p - 1 if self._rises else 1 / (p - 1)

    def begin(self, task: Task, W: Matrix) -> Begin:
        """Return part and size at twice the Frobenius solution W, and a function: the fraction of M's room in use."""
        W, p, xp = 2 * W, self.norm.p, module_of(W)
        entries = W.shape[-2] * W.shape[-1]
        w = xp.sqrt(W**2 + per_row(positive(euclidean(W)) ** 2) / entries)
        if self._rises:
            size = length(w, p)
            g = (w / per_row(size)) ** self._exponent
        else:
            g = xp.maximum((w / xp.max(w, axis=LAST, keepdims=True)) ** (p - 1), _FLOOR)
            g = g / per_row(length(g, conjugate(p)))
            size = xp.max(w / g**self._exponent, axis=LAST)
            w = per_row(size) * g**self._exponent
        if self.squared:
            g = per_row(size) * g
        return Part((w + W) / 2, (w - W) / 2, g, g), size, lambda M: xp.max(xp.abs(M) / g, axis=LAST)

    def blank(self, part: Part) -> tuple[AnyArray, AnyArray]:
        """Return zero second-order terms."""
        zero = module_of(part.wp).zeros_like(part.wp)
        return zero, zero

    def at(self, task: Task, part: Part, size: Number, M: Matrix) -> Local:
        """Return the path's equations, linearized at a point; entries are coupled only by the size."""
        wp, wm, zp, zm = part
        xp, flat = module_of(wp), (*size.shape, -1, 1)
        w, g, e, whole = wp + wm, (zp + zm) / 2, self._exponent, per_row(size)
        base, other = (w, g) if self._rises else (g, w)
        now = length(w, self.norm.p) if self._rises else length(g, conjugate(self.norm.p))
        of_length = (base / per_row(now)) ** e
        if self.squared:
            image, by_size = whole ** (1 - e) * base**e, 1 - e
        elif self._rises:
            image, by_size = (base / whole) ** e, -e
        else:
            image, by_size = whole * base**e, 1.0
        slope, by_size, off = e * image / base, by_size * image / whole, image - other
        # The relation `on_g dg - on_w dw = first + along dsize`.
        on_g, on_w = (xp.ones_like(w), slope) if self._rises else (slope, xp.ones_like(w))
        first, along = (off, by_size) if self._rises else (-off, -by_size)
        up, down = wp / zp, wm / zm
        total = on_g + on_w * (up + down)
        off_M = M - (zm - zp) / 2

        fixed = not self._rises and not self.squared
        weight = (on_g * (up + down) + 4 * on_w * up * down) / total
        by_M, by_size = of_length * (up - down) / total, along / total
        grown = of_length * by_size * (-(up + down) if self._rises else 1.0)
        rate = xp.sum(grown, axis=LAST) - (0.0 if fixed else 1.0) - (0.0 if self.squared else 1.0)
        # `along` is a multiple of `of_length`, so the matrix is symmetric.
        response, across = (task.A @ field.reshape(flat) for field in (by_M, (up - down) * by_size))
        matrix = (task.A * weight.reshape(flat).mT) @ task.A.mT + across * response.mT / per_row(rate)

        def follow(aim: Aim, dM: AnyArray, dsize: AnyArray) -> Part:
            (second_p, second_m), mu = aim.of_norm, per_row(aim.mu)
            cp, cm = (mu - second_p) / zp - wp, (mu - second_m) / zm - wm
            dM = dM + off_M
            dg = (on_w * (cp + cm + (up - down) * dM) + first + along * per_row(dsize)) / total
            return Part(cp - up * (dg - dM), cm - down * (dg + dM), dg - dM, dg + dM)

        def missing(move: Part, dsize: AnyArray) -> AnyArray:
            change = move.wp + move.wm if self._rises else (move.zp + move.zm) / 2
            after = now + xp.sum(of_length * change, axis=LAST)
            return after - (1.0 if fixed else size + dsize)

        def second(move: Part, share: AnyArray) -> tuple[AnyArray, AnyArray]:
            return move.wp * move.zp, move.wm * move.zm

        return Local(matrix, across.reshape(task.problem.b.shape), rate, follow, missing, second)

    def longest(self, now: Point, move: Point, most: Number) -> Number:
        """Return how far part and size can go, at most `most`, less a safety margin."""
        longest, xp = partial(path_loop.longest, reach=INSIDE), module_of(most)
        free = [longest(one, change) for one, change in zip(now.part, move.part, strict=True)]
        return xp.min(xp.stack([most, longest(now.size, move.size), *free]), axis=0)

    def products(self, part: Part, size: Number) -> tuple[Number, int]:
        """Return the sum of the products that equal mu on the path, and their number."""
        products, (p, q) = part.wp * part.zp + part.wm * part.zm, part.wp.shape[-2:]
        return module_of(products).sum(products, axis=LAST), 2 * p * q

    def bounds(self, part: Part, size: Number, M: Matrix) -> tuple[AnyArray, AnyArray]:
        """Return the norm of W and the dual norm of M."""
        return length(part.W, self.norm.p), length(M, conjugate(self.norm.p))


def length(W: Matrix, p: float) -> Number:
    """Return the l_p norm of all entries of each lane, without underflow or overflow of their powers."""
    xp, entries = module_of(W), abs(W)
    largest = xp.max(entries, axis=LAST)
    if p == float("inf"):
        return largest
    scale = positive(largest)
    return scale * xp.sum((entries / per_row(scale)) ** p, axis=LAST) ** (1 / p)
