"""Check the types and sizes of single values: against the schema before Hydra composes them, and against targets."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf.errors import ConfigKeyError, InterpolationResolutionError, MissingMandatoryValue, OmegaConfBaseException

from jaxattn.study.configuration import schema
from jaxattn.study.configuration.names import folders, is_group, key_of, listing, named, names_of, suggestion
from jaxattn.study.mistakes import UsageError

# The largest number of steps, seeds or sizes (JAX may have only 32-bit integers), and of a random key.
_MOST = {"": 2**31 - 1, "key": 2**63 - 1}
# The numbers that an annotation allows in a configuration.
_NUMBERS = {
    "int": ("an integer", int),
    "float": ("a number", (int, float)),
    "Number": ("a number", (int, float)),
    "int | None": ("an integer or null", (int, type(None))),
}
# What lists contain, if not sweeps.
_LISTS = {"norms": "a list such as [frobenius,max]"}
# Keys whose values are paths, which may contain any characters.
_PATHS = ("runs", "figures", "style")


def quoted(override: str) -> str:
    """Return an override with its value in quotes if it is a path, which may contain blanks and any letters."""
    key, equals, value = override.partition("=")
    if not equals or key.lstrip("+") not in _PATHS or value[:1] in ("'", '"', "$") or value in ("", "null"):
        return override
    escaped = value.replace("'", "\\'")
    return f"{key}='{escaped}'"


def parsed(overrides: list[str]) -> list[Override]:
    """Parse overrides after quoting paths; UsageError for one that cannot be read."""
    parsed_overrides = []
    for override in overrides:
        key = key_of(override)
        if not key or ("=" not in override and not override.startswith("~")):
            raise UsageError(f"{override}: expected key=value, such as seeds=8")
        try:
            parsed_overrides += OverridesParser.create().parse_overrides([quoted(override)])
        except HydraException as error:
            raise UsageError(
                f"{override}: expected key=value, such as seeds=8, found neither; a value with blanks or special "
                f"characters stands in quotes of its own, as in \"{key}='a b'\""
            ) from error
    return parsed_overrides


def check_value(override: Override) -> None:
    """Raise UsageError if an override gives a group or a key of the schema a value of another type, or out of range."""
    key = override.key_or_group
    if is_group(key):
        _check_choice(key, override)
        return
    if users := [folder / key for folder in folders() if key and (folder / key).is_dir()]:
        near = suggestion(key, [field.name for field in dataclasses.fields(schema.Config)])
        raise UsageError(f"{key}: expected one of jaxattn's groups, found another, {users[0]}{near}{listing(())}")
    above = key.rpartition(".")[0]
    if above and _field(above) is not None and not dataclasses.is_dataclass(_field(above)):
        raise UsageError(f"{key}: unknown key, {above} is a single value")
    field: Any = _field(key)
    if override.is_delete() or field is None:
        return
    value = override.value()
    if isinstance(value, str) and "${" in value:
        return  # Resolved later.
    if expected := _expected(key, field, value):
        raise UsageError(f"{key}: expected {expected}, found {_shown(value)}")
    check_size(key, value)


def check_size(key: str, value: Any) -> None:
    """Raise UsageError for an integer that is too large."""
    most = _MOST.get(key, _MOST[""])
    if isinstance(value, int) and abs(value) > most:
        raise UsageError(f"{key}: expected at most {most:,} in size, found {value:,}")


def check_arguments(key: str, node: Mapping[str, Any]) -> None:
    """Raise UsageError for an argument of a target, at any depth, that should be a number and is none, or too large."""
    for name, annotation in _annotations(node).items():
        if name not in node:
            continue
        value, expected = node[name], _number(annotation)
        if expected and (isinstance(value, bool) or not isinstance(value, expected[1])):
            raise UsageError(f"{key}.{name}: expected {expected[0]}, found {value!r}")
        for number in value if isinstance(value, list) else [value]:
            check_size(f"{key}.{name}", number)
    for name, inner in node.items():
        if isinstance(inner, dict):
            check_arguments(f"{key}.{name}", inner)


def _annotations(node: Mapping[str, Any]) -> dict[str, Any]:
    try:
        parameters = inspect.signature(named(node["_target_"])).parameters if "_target_" in node else {}
    except (TypeError, ValueError):  # A C function may have no signature.
        return {}
    return {name: parameter.annotation for name, parameter in parameters.items()}


def _number(annotation: Any) -> tuple[str, Any] | None:
    """Return how a configuration may write a number that an annotation asks for, in words and types; None: none is."""
    kinds = typing.get_args(annotation)
    if float not in kinds or str in kinds:
        return _NUMBERS.get(getattr(annotation, "__name__", annotation))
    # As optax has them: a number or an array, perhaps a schedule, which has a _target_.
    optional = type(None) in kinds
    return "a number" + " or null" * optional, (int, float, dict, *([type(None)] if optional else []))


def own_words(error: BaseException) -> str:
    """Return, in one line, why Hydra or OmegaConf cannot compose a configuration."""
    inner = error.__cause__ or error
    # Of a mistake in a file, the first line only says where it is.
    where, _, rest = str(inner).partition("\n")
    reason = " ".join([where, *rest.splitlines()[: where.endswith(":")]]).strip() or type(inner).__name__
    key = getattr(inner, "full_key", None) or ""
    if isinstance(inner, MissingMandatoryValue):
        return f"{key}: expected a value, found none"
    if isinstance(inner, InterpolationResolutionError):
        return f"{key}: expected a value that can be resolved, found one that cannot ({reason})"
    if isinstance(inner, ConfigKeyError | OmegaConfBaseException) and key:
        return f"{key}: expected a value that fits the configuration, found another ({reason})"
    return f"expected a configuration that can be composed, found another ({reason})"


def _check_choice(group: str, override: Override) -> None:
    if override.is_delete():
        raise UsageError(f"{group}: expected one of its known names, found that it is deleted{listing([group])}")
    name = override.value()
    if override.package is not None:
        raise UsageError(f"{override.input_line}: expected {group}=name, found a package{listing([group])}")
    if name not in names_of(group):
        near = suggestion(name, names_of(group)) if isinstance(name, str) else ""
        raise UsageError(f"{group}: expected one of its known names, found {_shown(name)}{near}{listing([group])}")


def _field(key: str) -> Any:
    """Return the type of a key of the schema; None if the schema does not have it, or allows any type."""
    kind: Any = schema.Config
    for name in key.split("."):
        fields = typing.get_type_hints(kind) if dataclasses.is_dataclass(kind) else {}
        kind = fields.get(name)
    return None if kind is Any else kind


def _expected(key: str, field: Any, value: Any) -> str:
    """Return what a key expects; empty if a value has its type."""
    kinds = typing.get_args(field) if isinstance(field, types.UnionType) else (field,)
    expected = []
    for kind in kinds:
        if dataclasses.is_dataclass(kind):
            fits, words = False, f"keys such as {key}.{dataclasses.fields(kind)[0].name}"
        elif isinstance(kind, type) and issubclass(kind, enum.Enum):
            fits, words = value in kind.__members__, f"one of {', '.join(kind.__members__)}"
        elif kind is type(None):
            fits, words = value is None, "null"
        elif kind is int:
            fits, words = isinstance(value, int) and not isinstance(value, bool), "an integer"
        elif kind is str:
            fits = isinstance(value, str | int | float) and value != "" and not isinstance(value, bool)
            words = "a text"
        elif typing.get_origin(kind) is dict:
            fits, words = isinstance(value, dict), "settings by name, such as {W: {seeds: 8}}"
        else:
            fits, words = isinstance(value, list), _LISTS[key]
        if fits:
            return ""
        expected.append(words)
    return " or ".join(expected)


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) and value else repr(value)
