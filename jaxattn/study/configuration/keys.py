"""Check the keys of a configuration against the schema and against the arguments of each value's target."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Collection, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from jaxattn.study.configuration import schema
from jaxattn.study.configuration.names import is_group, key_of, keys_of, listing, named, suggestion
from jaxattn.study.configuration.values import quoted
from jaxattn.study.mistakes import UsageError


def forced(arguments: Sequence[str]) -> list[str]:
    """Return a command line in which Hydra sets every key, known or not; `settled` then reports the unknown ones.

    Hydra itself refuses `optimizer.learning_rate=0.1` because the default optimizer has no such argument, whatever
    `optimizer._target_` is, and advises adding unknown keys with a `+`.
    """
    line = []
    for argument in map(quoted, arguments):
        # A key may have one plus, two or none: treat all alike.
        bare = argument.lstrip("+")
        key, equals, _ = bare.partition("=")
        if is_group(key):
            line.append(bare)
        elif equals and key.replace(".", "").replace("_", "").isalnum() and bare.split(".")[0] != "hydra":
            line.append(f"++{bare}")
        else:
            line.append(argument)
    return line


def settled(config: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """Return a configuration after checking that the schema or a target accepts each of its keys, else UsageError.

    If the overrides give another `_target_`, arguments that it does not accept and that they do not give are dropped.
    """
    given = {key_of(override) for override in overrides}
    top = [field.name for field in dataclasses.fields(schema.Config)]
    # An experiment is chosen like a group, but leaves no key in the configuration.
    _fits("", list(config), top, sorted([*top, "experiment"]))
    names = [field.name for field in dataclasses.fields(schema.Study)]
    if not isinstance(config.study, DictConfig):
        raise UsageError(f"study: expected keys such as study.{names[0]}, found {config.study!r}")
    _fits("study", list(config.study), names, names)
    config = copy.deepcopy(config)
    for name in top:
        if is_group(name) and OmegaConf.is_dict(config._get_node(name)):
            _settle(name, config[name], given)
    return config


def _fits(above: str, keys: Sequence[Any], names: Sequence[str], known: Sequence[str]) -> None:
    """Raise UsageError unless a part of the configuration has exactly the keys of its schema."""
    prefix = f"{above}." if above else ""
    for key in map(str, keys):
        if key not in names:
            listed = f"\nknown keys of {above}: {', '.join(known)}" if above else listing(())
            raise UsageError(f"{prefix}{key}: unknown key{suggestion(key, known, prefix)}{listed}")
    for key in names:
        if key not in keys:
            raise UsageError(f"{prefix}{key}: expected a value, found that it is deleted")


def _settle(above: str, node: DictConfig, given: Collection[str]) -> None:
    """Check the keys of a value, and of values inside it, against their targets; drop those left by another target."""
    own = [str(key) for key in node if not (str(key).startswith("_") and str(key).endswith("_"))]
    if "_target_" in node:
        if not isinstance(node["_target_"], str):
            raise UsageError(
                f"{above}._target_: expected a dotted path such as mymodule.myfunction, found {node['_target_']!r}"
            )
        if not isinstance(node.get("_partial_", False), bool):
            raise UsageError(f"{above}._partial_: expected true or false, found {node['_partial_']!r}")
        chosen = f"{above}._target_" in given
        try:
            accepted, needed = _arguments(node)
        except UsageError as error:
            raise UsageError(f"{above}._target_: {error}") from error
        for key in own:
            if accepted is None or key in accepted:
                continue
            if chosen and not any(f"{other}.".startswith(f"{above}.{key}.") for other in given):
                OmegaConf.set_struct(node, False)
                del node[key]
                continue
            takes = ", ".join(accepted) or "no arguments"
            listed = "" if chosen else listing([f"{above}.{key}"])
            near = suggestion(key, accepted, f"{above}.") or _inside(above, node, key)
            raise UsageError(f"{above}.{key}: unknown key, {node['_target_']} accepts {takes}{near}{listed}")
        if missing := [name for name in needed if name not in node]:
            raise UsageError(
                f"{above}.{missing[0]}: expected a value, which {node['_target_']} needs, found none "
                f"(it accepts {', '.join(accepted or ())})"
            )
    elif "." not in above:
        # A group whose values may be null, for example `svm.solver`.
        known = keys_of(above)
        for key in own:
            if key not in known:
                raise UsageError(
                    f"{above}.{key}: unknown key{suggestion(key, known, above + '.')}{listing([f'{above}.{key}'])}"
                )
            if node[key] is not None and not (OmegaConf.is_dict(node[key]) and "_target_" in node[key]):
                raise UsageError(
                    f"{above}.{key}: expected null or a value with a _target_, found {node[key]!r}; "
                    f"{above}=... chooses one{listing([above])}"
                )
    for key in own:
        if key in node and OmegaConf.is_dict(node._get_node(key)) and node[key] is not None:
            _settle(f"{above}.{key}", node[key], given)


def _inside(above: str, node: DictConfig, key: str) -> str:
    """Suggest the value inside another one that accepts a key; "" if none does."""
    inner = {str(name): node[name] for name in node if OmegaConf.is_dict(node[name]) and "_target_" in node[name]}
    paths = [f"{above}.{name}.{key}" for name, value in inner.items() if key in (_arguments(value)[0] or ())]
    return f"; did you mean {paths[0]}?" if paths else ""


def _arguments(node: DictConfig) -> tuple[list[str] | None, list[str]]:
    """Return the arguments that a value's target accepts by name (None: any), and which of these it requires.

    For a function that is called later, the arguments of that call, for example a key, are excluded.
    """
    if not callable(target := named(node["_target_"])):
        kind = type(target).__name__
        raise UsageError(f"{node['_target_']}: expected a function, found a {kind}; write a function that returns it")
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):  # A C function may have no signature.
        return None, []
    by_name = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    needed = [p.name for p in parameters if p.name in by_name and p.default is p.empty]
    later = bool(node.get("_partial_")) or "_args_" in node
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None, [] if later else needed
    if later:
        return [name for name in by_name if name not in needed or name in node], []
    return by_name, needed
