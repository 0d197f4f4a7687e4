"""Convert the parameters of models to the named arrays of a record, and back.

The names are W, or K and Q; for several heads with the head's number (W0, W1, ...); and `readout` for a trained
readout.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool

from jaxattn.attention import Factored, Spanned
from jaxattn.models import Joint

# The axes of each parameter, after those of seeds and snapshots.
_DIMS: dict[str, tuple[str, ...]] = {
    "W": ("feature", "query_feature"),
    "K": ("feature", "width"),
    "Q": ("query_feature", "width"),
    "readout": ("feature", "unit"),
}
_NAME = re.compile(r"(W|K|Q)(\d*)|readout")


def named(params: Any) -> dict[str, Any]:
    """Return the arrays of a model's parameters by name; TypeError for others than the module's docstring tells."""
    if isinstance(params, Joint):
        return named(params.attention) | {"readout": params.readout}
    if isinstance(params, Factored):
        return dict(params._asdict())
    if isinstance(params, tuple) and not isinstance(params, Spanned):
        return {f"{name}{h}": leaf for h, one in enumerate(params) for name, leaf in named(one).items()}
    if not hasattr(params, "shape"):
        raise TypeError(f"weights: expected W, Factored(K, Q) or several heads of these, found {type(params).__name__}")
    return {"W": params}


def weights_of(arrays: Mapping[str, Any], suffix: str = "") -> Any:
    """Return the parameters stored in a record, with a suffix `_initial` or `_snapshots`."""
    own = {name.removesuffix(suffix): array for name, array in arrays.items() if name.endswith(suffix)}
    found = {name: array for name, array in own.items() if _NAME.fullmatch(name)}
    weights = {name: array for name, array in found.items() if name != "readout"}
    heads = sorted({int(name[1:]) for name in weights if name[1:]})
    per_head = [{name[0]: weights[name] for name in weights if name[1:] == str(h)} for h in heads]
    attention = tuple(map(_weights, per_head)) if heads else _weights(weights)
    return Joint(attention, found["readout"]) if "readout" in found else attention


def _weights(arrays: Mapping[str, Any]) -> Any:
    return arrays["W"] if "W" in arrays else Factored(arrays["K"], arrays["Q"])


def is_parameter(name: str) -> bool:
    """Return whether an array of a record is a parameter at the end, at the start, or at the snapshots."""
    return _NAME.fullmatch(_bare(name)) is not None


def is_final(name: str) -> bool:
    """Return whether an array of a record is a parameter at the end."""
    return _NAME.fullmatch(name) is not None


def dims(name: str, axes: int) -> tuple[str, ...]:
    """Return the names of the last `axes` axes of a parameter."""
    bare = _bare(name)
    return _DIMS[bare if bare == "readout" else bare[0]][:axes]


def _bare(name: str) -> str:
    return name.removesuffix("_snapshots").removesuffix("_initial")


def finite_seeds(params: Any) -> Bool[np.ndarray, " seeds"]:
    """Return whether all parameters of each seed are finite, for the seeds of the leading axis."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(params)]
    return np.all([np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1) for leaf in leaves], axis=0)
