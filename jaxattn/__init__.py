"""Study the implicit bias of softmax attention in JAX.

Gradient descent on the attention weights of a one-layer transformer converges in direction to a hard-margin SVM that
separates the selected token of each input from the other tokens. This package offers pure functions for data,
attention, losses and descent, and certified SVM solutions.

Importing it changes no JAX setting. The papers use float64; to enable it, run this first::

    import jax

    jax.config.update("jax_enable_x64", True)

The examples in docstrings assume these names: `key = jax.random.key(0)`, `problem = data.sphere(key, n=3, T=4, d=5)`,
`start = initial.free(key, 5)`, `run = descent.train(start, problem, steps=20)`, `alpha = tokens.selected(run.weights,
problem)`, `constraints = svm.token_constraints(problem, alpha)` and `solution = svm.solve(constraints)`.
"""

__version__ = "0.1.0"

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxattn import attention, bias, data, descent, heads, initial, language, losses, metrics, models, svm, tokens
    from jaxattn.parallel import batch
    from jaxattn.problem import Problem

__all__ = [
    "Problem",
    "attention",
    "batch",
    "bias",
    "data",
    "descent",
    "heads",
    "initial",
    "language",
    "losses",
    "metrics",
    "models",
    "svm",
    "tokens",
]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that the command `jaxattn` can answer before it imports JAX."""
    if name == "Problem":
        return importlib.import_module("jaxattn.problem").Problem
    if name not in __all__ and (name.startswith("_") or importlib.util.find_spec(f"jaxattn.{name}") is None):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("jaxattn.parallel.batch" if name == "batch" else f"jaxattn.{name}")


def __dir__() -> list[str]:
    """Return the public names and the module's other names, imported or not."""
    return sorted({*globals(), *__all__})
