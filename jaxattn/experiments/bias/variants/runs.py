"""The name of a run of a variant, read from its configuration."""

from __future__ import annotations

from typing import Any

from jaxattn.experiments.bias.rules import last

# The names of rules, by the last part of their target, or by their norm.
_RULES = {"normalized_gd": "normalized GD", "jointly_normalized_gd": "normalized GD, one norm", "max": "sign descent"}
# What a run is compared with: the problem of its model, and another one.
OWN = "its own problem"
_OTHERS = {"heads": "each head's own problem", "tokens": "the tokens as given"}


def described(config: dict[str, Any]) -> dict[str, str]:
    """Return a description of a run, from the configuration in its record.

    Returns:
        `run`, in words; its `weights`, "W" or "KQ"; the `model`, the `rule` and the `noise`, in words; and `other`,
        what the other ratios are about, or nothing.
    """
    weights = "KQ" if "factored" in json_of(config["weights"]) else "W"
    model, noise, rule = _model(config), _noise(config["noise"]), _rule(config["optimizer"])
    heads, seen = "heads" in model, model not in ("", "trained values")
    other = _OTHERS["heads"] if heads else _OTHERS["tokens"] if seen else ""
    law = "tokens of other lengths" if last(config["data"]) == "stretched" else ""
    run = ", ".join(part for part in (weights, model, law, noise, rule) if part)
    return {"run": run, "weights": weights, "model": model, "rule": rule, "noise": noise, "other": other}


def said_of(other: str) -> str:
    """Return the name of another problem than its own, "heads" or "tokens", in a run's attributes."""
    return _OTHERS[other]


def json_of(value: Any) -> str:
    """Return all targets inside a value of a configuration, as one text."""
    if isinstance(value, dict):
        return " ".join(json_of(one) for one in value.values())
    return str(value)


def _model(config: dict[str, Any]) -> str:
    model = config["model"]
    name, count = last(model), model.get("count")
    if name in ("summed", "concatenated"):
        return f"{count} heads {'added up' if name == 'summed' else 'concatenated'}"
    words = {
        "TransformedInputs": "",
        "with_values": "trained values",
        "rotary": "rotary positions",
        "key_only": "positions in the keys",
        "additive": "added positions",
        "normalized": "normalized tokens",
        "temperature": f"temperature {model.get('tau')}",
    }
    return words[name]


def _noise(noise: dict[str, Any]) -> str:
    name = last(noise)
    words = {
        "full_batch": "",
        "minibatches": f"minibatches of {noise.get('size')}",
        "dropout": f"dropout {noise.get('rate')}",
    }
    return words[name]


def _rule(optimizer: dict[str, Any]) -> str:
    if "optimizer" in optimizer:
        return f"{_rule(optimizer['optimizer'])}, falling steps"
    # Without floor and penalty the exact rule is the published one along the exact gradient direction.
    name = last(optimizer).removeprefix("exact_")
    return _RULES[optimizer["norm"]] if name == "steepest" else _RULES[name]
