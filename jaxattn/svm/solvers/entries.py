"""Internal: the central path for entrywise norms.

With `W = w+ - w-`, `w = w+ + w-` and `M = (z- - z+) / 2`, `g = (z+ + z-) / 2` the path is `w+ z+ = w- z- = mu`, entry
by entry as in linear programming, where `g` is the gradient of the norm at the entry sizes w: `g = (w /
||w||_p)^(p-1)`. So `|W| <= w` and `|M| <= g` throughout. To keep the exponent below 1, either g is a function of w, or,
for p > 2, `w = N g^(1/(p-1))`. At p = 1 (g = 1) and p = inf (w = N) the equations are those of the linear program.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn import metrics
from jaxattn.norms import Entrywise
from jaxattn.svm.pivoting import positive
from jaxattn.svm.solvers import path_loop
from jaxattn.svm.solvers.norm_path import INSIDE, Aim, Begin, Geometry, Local, Point, Task

# The smallest initial gradient, as a fraction of the largest.
_FLOOR = 0.1


class Part(NamedTuple):
    """`wp, wm, zp, zm > 0` for `w+, w-, z+, z-`."""

    wp: Float[Array, "p q"]
    wm: Float[Array, "p q"]
    zp: Float[Array, "p q"]
    zm: Float[Array, "p q"]

    @property
    def W(self) -> Float[Array, "p q"]:
        """The matrix."""
        return self.wp - self.wm


@dataclass(frozen=True)
class Entries(Geometry):
    """The path of an entrywise norm."""

    norm: Entrywise

    @property
    def _rises(self) -> bool:
        """Whether g is written as a function of w."""
        return self.norm.p <= 2

    @property
    def _exponent(self) -> float:
        p = self.norm.p
        return p - 1 if self._rises else 1 / (p - 1)

    def begin(self, task: Task, W: Float[Array, "p q"]) -> Begin:
        """Return part and size at twice the Frobenius solution W, and a function: the fraction of M's room in use."""
        W = 2 * W
        length = metrics.norm(W)
        w = jnp.sqrt(W**2 + positive(length) ** 2 / W.size)
        if self._rises:
            size = self.norm.value(w)
            g = (w / size) ** self._exponent
        else:
            g = jnp.maximum((w / jnp.max(w)) ** (self.norm.p - 1), _FLOOR)
            g = g / self.norm.dual(g)
            size = jnp.max(w / g**self._exponent)
            w = size * g**self._exponent
        if task.squared:
            g = size * g
        return Part((w + W) / 2, (w - W) / 2, g, g), size, lambda M: jnp.max(jnp.abs(M) / g)

    def blank(self, part: Part) -> tuple[Array, Array]:
        """Return zero second-order terms."""
        return jnp.zeros_like(part.wp), jnp.zeros_like(part.wp)

    def at(self, task: Task, part: Part, size: Float[Array, ""], M: Float[Array, "p q"]) -> Local:
        """Return the path's equations, linearized at a point; entries are coupled only by the size."""
        wp, wm, zp, zm = part
        w, g, e = wp + wm, (zp + zm) / 2, self._exponent
        base, other = (w, g) if self._rises else (g, w)
        length = self.norm.value(w) if self._rises else self.norm.dual(g)
        of_length = (base / length) ** e
        if task.squared:
            image, by_size = size ** (1 - e) * base**e, 1 - e
        elif self._rises:
            image, by_size = (base / size) ** e, -e
        else:
            image, by_size = size * base**e, 1.0
        slope, by_size, off = e * image / base, by_size * image / size, image - other
        # The relation `on_g dg - on_w dw = first + along dsize`.
        on_g, on_w = (jnp.ones_like(w), slope) if self._rises else (slope, jnp.ones_like(w))
        first, along = (off, by_size) if self._rises else (-off, -by_size)
        up, down = wp / zp, wm / zm
        total = on_g + on_w * (up + down)
        off_M = M - (zm - zp) / 2

        fixed = not self._rises and not task.squared
        weight = (on_g * (up + down) + 4 * on_w * up * down) / total
        by_M, by_size = of_length * (up - down) / total, along / total
        rate = jnp.sum(of_length * by_size * (-(up + down) if self._rises else 1.0)) - (0.0 if fixed else 1.0)
        rate = rate if task.squared else rate - 1.0
        # `along` is a multiple of `of_length`, so the matrix is symmetric.
        response, across = (task.A @ field.ravel() for field in (by_M, (up - down) * by_size))
        matrix = (task.A * weight.ravel()[None, :]) @ task.A.T + jnp.outer(across, response) / rate

        def follow(aim: Aim, dM: Array, dsize: Array) -> Part:
            second_p, second_m = aim.of_norm
            cp, cm = (aim.mu - second_p) / zp - wp, (aim.mu - second_m) / zm - wm
            dM = dM + off_M
            dg = (on_w * (cp + cm + (up - down) * dM) + first + along * dsize) / total
            return Part(cp - up * (dg - dM), cm - down * (dg + dM), dg - dM, dg + dM)

        def missing(move: Part, dsize: Array) -> Array:
            change = move.wp + move.wm if self._rises else (move.zp + move.zm) / 2
            after = length + jnp.sum(of_length * change)
            return after - (1.0 if fixed else size + dsize)

        def second(move: Part, share: Array) -> tuple[Array, Array]:
            return move.wp * move.zp, move.wm * move.zm

        return Local(matrix, across.reshape(task.problem.b.shape), rate, follow, missing, second)

    def longest(self, now: Point, move: Point, most: Float[Array, ""]) -> Float[Array, ""]:
        """Return how far part and size can go, at most `most`, less a safety margin."""
        longest = partial(path_loop.longest, reach=INSIDE)
        free = [longest(one, change) for one, change in zip(now.part, move.part, strict=True)]
        return jnp.min(jnp.stack([most, longest(now.size, move.size), *free]))

    def products(self, part: Part, size: Float[Array, ""]) -> tuple[Float[Array, ""], int]:
        """Return the sum of the products that equal mu on the path, and their number."""
        return jnp.sum(part.wp * part.zp) + jnp.sum(part.wm * part.zm), 2 * part.wp.size

    def bounds(self, part: Part, size: Float[Array, ""], M: Float[Array, "p q"]) -> tuple[Array, Array]:
        """Return the norm of W and the dual norm of M."""
        return self.norm.value(part.W), self.norm.dual(M)
