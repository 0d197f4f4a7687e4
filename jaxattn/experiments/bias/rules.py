"""The norms of the atlas, and the names of its rules, which are read from their configuration."""

from __future__ import annotations

from typing import Any

from jaxattn.bias import NORMS as RANKED

__all__ = ["NORMS", "RULES", "STEPS", "described", "last"]

NORMS = (*RANKED, "l_1.75", "l_3")
# Names of rules and steps in figures, the rules in the order of the rows.
RULES = {
    "normalized_gd": "normalized GD",
    "momentum frobenius": "GD with momentum",
    "steepest max": "sign descent",
    "lion": "Lion",
    "rmsprop": "RMSProp",
    "adam": "Adam",
    "steepest spectral": "polar factor",
    "muon": "Muon",
    "steepest l1": "coordinate descent",
    "mirror 1.75": "mirror descent, $p = 1.75$",
    "mirror 3": "mirror descent, $p = 3$",
}
STEPS = {"constant": "constant", "falling": "$k^{-1/2}$"}


def described(config: dict[str, Any], weights: str) -> dict[str, str]:
    """Return a description of a run from the configuration in its record.

    Args:
        config: of the run.
        weights: "W" or "KQ".

    Returns:
        `run`, in words; `weights`; `rule`, one of RULES; `step`, one of STEPS; and `variant`, how size, start or
        precision differ from those of the atlas: empty if they do not.
    """
    optimizer, step, prefix = config["optimizer"], "constant", ""
    while "optimizer" in optimizer:
        outer, optimizer = last(optimizer), optimizer["optimizer"]
        step = "falling" if outer == "falling" else step
        prefix = "momentum" if outer == "momentum" else prefix
    # Without floor and penalty the exact rule is the published one along the exact gradient direction.
    rule = prefix or last(optimizer).removeprefix("exact_")
    length = next(optimizer[name] for name in ("step_size", "step", "learning_rate") if name in optimizer)
    if isinstance(length, dict):
        step, length = "falling", length["step"]
    for name in ("norm", "p"):
        rule += f" {optimizer[name]}" if isinstance(optimizer.get(name), str) else ""
        rule += f" {optimizer[name]:g}" if isinstance(optimizer.get(name), float) else ""
    said = f"{length:g}" if step == "constant" else f"{length:g} k^-1/2"
    variant = _variant(config)
    run = ", ".join(part for part in (weights, rule, f"step {said}", variant) if part)
    return {"run": run, "weights": weights, "rule": rule, "step": step, "variant": variant}


def _variant(config: dict[str, Any]) -> str:
    law, start = config["data"], config["weights"]
    size, scale = (law["n"], law["T"], law["d"]), start.get("scale", 1.0)
    parts = [f"{size}"] if size != (6, 8, 10) else []
    parts += [f"start of scale {scale:g}"] if scale != 1 else []
    parts += ["start as published"] if last(start) == "free" else []
    parts += ["single precision"] if config["precision"] == "float32" else []
    return ", ".join(parts)


def last(value: dict[str, Any]) -> str:
    """Return the last part of the target of a configuration's value."""
    return str(value["_target_"]).rpartition(".")[2]
