"""The loop that a PyTorch user would write: one seed, with automatic differentiation in each step."""

from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]  # In the extra `bench`, which CI does not install.

from jaxattn import Problem, attention, descent


def loop(weights: Any, problem: Problem, steps: int) -> list[torch.Tensor]:
    """Train one seed with the published optimizer, and return its weights."""
    X, Z, Y, v = (torch.tensor(np.asarray(leaf)) for leaf in (problem.X, problem.Z, problem.Y, problem.v))
    parts = weights if isinstance(weights, attention.Factored) else (weights,)
    parameters = [torch.tensor(np.asarray(part), requires_grad=True) for part in parts]
    epsilon = descent.PUBLISHED_EPSILON
    for _ in range(steps):
        W = parameters[0] @ parameters[1].T if len(parameters) == 2 else parameters[0]
        probabilities = torch.softmax(torch.einsum("ntd,de,ne->nt", X, W, Z), dim=1)
        margins = Y * (torch.einsum("ntd,nt->nd", X, probabilities) @ v)
        loss = torch.nn.functional.softplus(-margins).mean()
        if len(parameters) == 2:
            loss = loss + epsilon * sum((part**2).sum() for part in parameters)
        loss.backward()
        with torch.no_grad():
            for part in parameters:
                assert part.grad is not None
                part -= 0.1 * part.grad / (part.grad.norm() + epsilon)
                part.grad = None
    return parameters
