"""Read the overrides of a command line, and compose the configuration that they describe."""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError, MissingMandatoryValue, OmegaConfBaseException

from jaxattn.study.configuration import schema
from jaxattn.study.configuration.names import content_of, is_group, key_of, listing, names_of, root, suggestion
from jaxattn.study.mistakes import UsageError

# The largest number of steps, seeds or sizes (JAX may have only 32-bit integers), and of a random key.
_MOST = {"": 2**31 - 1, "key": 2**63 - 1}
# Keys whose values are paths, which may contain any characters.
_PATHS = ("runs", "figures")
_EXPECTED = {int: "an integer", str: "a text", types.NoneType: "null"}
_LISTS = {"norms": "a list such as [frobenius,max]"}


def parsed(overrides: Sequence[str]) -> list[Override]:
    """Parse overrides after quoting paths.

    Raises:
        UsageError: one that cannot be read.
    """
    found = []
    for one in overrides:
        key = key_of(one)
        if not key or ("=" not in one and not one.startswith("~")):
            raise UsageError(f"{one}: expected key=value, such as seeds=8")
        try:
            found.append(_parsed(_quoted(one)))
        except HydraException as error:
            raise UsageError(
                f"{one}: expected key=value, such as seeds=8, found neither; a value with blanks or special "
                f"characters stands in quotes of its own, as in \"{key}='a b'\""
            ) from error
    return found


@functools.lru_cache(maxsize=1024)
def _parsed(override: str) -> Override:
    return OverridesParser.create().parse_overrides([override])[0]


def _quoted(override: str) -> str:
    """Return an override with its value in quotes if it is a path, which may contain blanks and any letters."""
    key, equals, value = override.partition("=")
    if not equals or key.lstrip("+") not in _PATHS or value[:1] in ("'", '"', "$") or value in ("", "null"):
        return override
    escaped = value.replace("'", "\\'")
    return f"{key}='{escaped}'"


def forced(arguments: Sequence[str]) -> list[str]:
    """Return a command line for Hydra in which it sets every key, also those that only a new `_target_` accepts."""
    found = []
    for one in map(_quoted, arguments):
        bare = one.lstrip("+")
        key, equals, _ = bare.partition("=")
        plain = equals and key.replace(".", "").replace("_", "").isalnum() and key.split(".")[0] != "hydra"
        found.append(bare if is_group(key) else f"++{bare}" if plain else one)
    return found


def merged(overrides: Sequence[Override], values: Mapping[str, Any]) -> DictConfig:
    """Return the configuration that Hydra composes of `conf/` and these overrides and values, in a tenth of its time.

    Of Hydra's language `conf/` uses default groups, `override /group: name` in experiments, the package `_global_`, and
    files that begin with another one of their group. A test composes every experiment in both ways.

    Args:
        overrides: of the command line.
        values: more choices and values by key, which replace those of the overrides.

    Raises:
        UsageError: an unknown key or name, or a value of the wrong type.
    """
    chosen = {one.key_or_group: _name(one) for one in overrides if is_group(one.key_or_group)}
    chosen |= {key: _known_name(key, value) for key, value in values.items() if is_group(key)}
    base = content_of(root() / "conf" / "config.yaml")
    choices = {group: name for entry in base["defaults"] if isinstance(entry, dict) for group, name in entry.items()}
    if "experiment" in chosen:
        for entry in _group_file("experiment", chosen["experiment"]).get("defaults", ()):
            choices |= {group.removeprefix("override /"): name for group, name in entry.items()}
    content = base
    for group, name in (choices | chosen).items():
        if name is not None and not group.startswith("override "):
            part = _group_file(group, name)
            content = _updated(content, part if group in ("experiment", "size") else {group: part})
    for one in overrides:
        if one.is_delete():
            if _kind(one.key_or_group) is not None:
                raise UsageError(f"{one.key_or_group}: expected a value, found that it is deleted")
            try:
                content = _without(content, one.key_or_group)
            except (KeyError, TypeError) as error:
                raise UsageError(f"{one.key_or_group}: expected a key to delete, found none") from error
        elif not is_group(one.key_or_group):
            content = _updated(content, _checked(one.key_or_group, one.value()))
    for key, value in values.items():
        if not is_group(key):
            # A mapping replaces the one that is there, instead of being merged into it.
            content = _updated(_updated(content, _nested(key, None)), _checked(key, value))
    plain = {key: value for key, value in content.items() if key not in ("defaults", "hydra")}
    try:
        config = OmegaConf.merge(schema.node(), plain)
    except OmegaConfBaseException as error:
        key = error.full_key or ""
        value = functools.reduce(lambda inside, name: inside[name], key.split("."), plain)
        raise UsageError(f"{key}: expected {_expected(key, _kind(key))}, found {_shown(value)}") from error
    assert isinstance(config, DictConfig)
    return config


def _kind(key: str) -> Any:
    """Return the type of a key of the schema; None if it does not have it.

    Raises:
        UsageError: the schema has the part above, but no such key.
    """
    kind: Any = schema.Config
    above = ""
    for name in key.split("."):
        if kind is Any:
            return None
        if not dataclasses.is_dataclass(kind):
            raise UsageError(f"{key}: unknown key, {above} is a single value")
        kinds = typing.get_type_hints(kind)
        known = [*kinds, *(() if above else ["experiment"])]
        prefix = f"{above}." if above else ""
        if name not in kinds:
            listed = f"\nknown keys of {above}: {', '.join(known)}" if above else listing(())
            raise UsageError(f"{prefix}{name}: unknown key{suggestion(name, known, prefix)}{listed}")
        kind, above = kinds[name], f"{prefix}{name}"
    return None if kind is Any else kind


def _checked(key: str, value: Any) -> dict[str, Any]:
    """Return a key and its value as content.

    Raises:
        UsageError: an unknown key of the schema, an empty text, or a number that is too large.
    """
    kind = _kind(key)
    if (kind is str and value == "") or (dataclasses.is_dataclass(kind) and not isinstance(value, dict)):
        raise UsageError(f"{key}: expected {_expected(key, kind)}, found {_shown(value)}")
    if kind is not None:
        check_size(key, value)
    return _nested(key, value)


def _nested(key: str, value: Any) -> dict[str, Any]:
    name, _, rest = key.partition(".")
    return {name: _nested(rest, value) if rest else value}


def _without(content: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a content without a key.

    Raises:
        KeyError: it does not have it.
    """
    name, _, rest = key.partition(".")
    inside = content[name]
    others = {other: value for other, value in content.items() if other != name}
    return {**others, name: _without(inside, rest)} if rest else others


def check_size(key: str, value: Any) -> None:
    """Raise UsageError for an integer that is too large."""
    most = _MOST.get(key, _MOST[""])
    if isinstance(value, int) and abs(value) > most:
        raise UsageError(f"{key}: expected at most {most:,} in size, found {value:,}")


def own_words(error: BaseException) -> str:
    """Return, in one line, why Hydra or OmegaConf cannot compose a configuration."""
    inner = error.__cause__ or error
    said = str(inner).partition("\n")[0] or type(inner).__name__
    key = getattr(inner, "full_key", None) or ""
    if isinstance(inner, MissingMandatoryValue):
        return f"{key}: expected a value, found none"
    if isinstance(inner, InterpolationResolutionError):
        return f"{key}: expected a value that can be resolved, found one that cannot ({said})"
    what = f"{key}: expected a value that fits the" if key else "expected a"
    return f"{what} configuration, found another ({said})"


def _name(override: Override) -> str:
    """Return the name that an override chooses of a group.

    Raises:
        UsageError: none of its known names.
    """
    group = override.key_or_group
    if override.is_delete():
        raise UsageError(f"{group}: expected one of its known names, found that it is deleted{listing([group])}")
    if override.package is not None:
        raise UsageError(f"{override.input_line}: expected {group}=name, found a package{listing([group])}")
    return _known_name(group, override.value())


def _known_name(group: str, name: Any) -> str:
    if not isinstance(name, str) or name not in names_of(group):
        near = suggestion(name, names_of(group)) if isinstance(name, str) else ""
        raise UsageError(f"{group}: expected one of its known names, found {_shown(name)}{near}{listing([group])}")
    return name


def _group_file(group: str, name: str) -> dict[str, Any]:
    """Return the content of a group's file, after that of the file of the group which its defaults name."""
    own = content_of(root() / "conf" / group / f"{name}.yaml")
    above = [entry for entry in own.get("defaults", ()) if isinstance(entry, str) and entry != "_self_"]
    if not above:
        return own
    inherited = functools.reduce(_updated, (_group_file(group, entry) for entry in above))
    return _updated(inherited, {key: value for key, value in own.items() if key != "defaults"})


def _updated(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first content with the second merged into it, at any depth."""
    both = {key: isinstance(first.get(key), dict) and isinstance(value, dict) for key, value in second.items()}
    return {**first, **{key: _updated(first[key], second[key]) if both[key] else second[key] for key in second}}


def _expected(key: str, kind: Any) -> str:
    """Return in words what a key of the schema expects."""
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    said = []
    for one in kinds:
        if dataclasses.is_dataclass(one):
            said.append(f"keys such as {key}.{dataclasses.fields(one)[0].name}")
        elif isinstance(one, type) and issubclass(one, enum.Enum):
            said.append(f"one of {', '.join(one.__members__)}")
        else:
            said.append(_EXPECTED.get(one) or _LISTS.get(key, "a list of sweeps"))
    return " or ".join(said)


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return value if isinstance(value, str) and value else repr(value)
