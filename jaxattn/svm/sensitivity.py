"""Internal: the derivative of a problem's optimal value, from its solution and multipliers.

By the envelope theorem it is the derivative of the Lagrangian `||W||^k / k + sum C_k x_k + sum a_k (b_k - x_k - <A_k,
W>)` at the optimum, with shortfalls x. It is unique if W and the multipliers are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.solution import Solution, Status


def with_derivative(solved: Callable[[Constraints], Solution]) -> Callable[[Constraints], Solution]:
    """Return the same function, whose `primal` has a derivative; that of any other number is refused."""
    function = jax.custom_vjp(solved)

    def forward(given: Any) -> tuple[Solution, Any]:
        constraints = jax.tree.map(lambda leaf: leaf.value, given, is_leaf=lambda leaf: hasattr(leaf, "perturbed"))
        solution = solved(constraints)
        return solution, (constraints, solution.W, solution.duals, solution.status)

    def backward(kept: Any, along: Solution) -> tuple[Constraints]:
        used = [
            name for name, one in along._asdict().items() if not isinstance(one, jax.custom_derivatives.SymbolicZero)
        ]
        if others := [name for name in used if name != "primal"]:
            raise ValueError(
                f"solve: expected the derivative of a solution's `primal`, found that of {', '.join(others)}; only the "
                "optimal value has one, by its multipliers"
            )
        constraints, W, duals, status = kept
        # Where nothing is proved to be optimal, no derivative is known.
        times = jnp.where(status == Status.OPTIMAL, along.primal, 0.0) if used else jnp.zeros((), W.dtype)
        of, a = cons.rows(constraints), times * duals
        weighted = jnp.einsum("nm,nmd->nd", a, constraints.differences)
        short = jnp.maximum(of.targets - cons.margins(constraints, W), 0.0)
        return (
            Constraints(
                differences=-jnp.einsum("nm,nd->nmd", a, constraints.queries @ W.T),
                queries=-weighted @ W,
                targets=None if constraints.targets is None else a,
                penalty=None if constraints.penalty is None else jnp.where(of.present & ~of.hard, times * short, 0.0),
            ),
        )

    function.defvjp(forward, backward, symbolic_zeros=True)
    return function
