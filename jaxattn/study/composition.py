"""From a command line to values: configurations composed by Hydra, checked, and made into settings."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import itertools
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
import jax
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from jaxattn.study import schema
from jaxattn.study.settings import recording

_CHECKOUT = Path(__file__).resolve().parents[2]
# Where a field of a setting stands in the configuration, if under another name.
_PLACES = {"law": "data", "initial": "weights"}
# What an annotation asks of a number in a configuration.
_NUMBERS = {"int": ("an integer", int), "float": ("a number", (int, float))}

schema.register()
logging.getLogger("jax").setLevel(logging.WARNING)


class UsageError(Exception):
    """A command line that cannot be run; its message says what was expected and found."""


def root() -> Path:
    """Return the checkout whose `conf/` is used: the one that this package stands in, or else the working folder.

    Raises:
        UsageError: neither has the configurations.
    """
    for place in (_CHECKOUT, Path.cwd()):
        if (place / "conf" / "config.yaml").is_file():
            return place
    raise UsageError(
        f"expected conf/config.yaml in the working folder, a checkout of jaxattn, found none in {Path.cwd()}"
    )


def compose(overrides: Sequence[str]) -> DictConfig:
    """Return the configuration that these overrides describe.

    Raises:
        UsageError: an unknown key or name (the known ones are listed), or a value of the wrong type.
    """
    with hydra.initialize_config_dir(str(root() / "conf"), version_base="1.3"):
        try:
            config = hydra.compose("config", list(overrides))
            OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        except (HydraException, OmegaConfBaseException) as error:
            causes = [str(error)] + ([str(error.__cause__)] if error.__cause__ else [])
            raise UsageError("\n".join(causes) + _known(overrides)) from error
    return config


def is_group(key: str) -> bool:
    """Whether a key of the command line chooses one of a group of configurations."""
    return (root() / "conf" / key).is_dir()


def with_values(config: DictConfig, values: Mapping[str, Any]) -> DictConfig:
    """Return a copy of a configuration with other values at some of its keys, such as `data.n`.

    Raises:
        UsageError: an unknown key, or a value of the wrong type.
    """
    changed = copy.deepcopy(config)
    try:
        for key, value in values.items():
            OmegaConf.update(changed, key, value, merge=False)
        OmegaConf.to_container(changed, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UsageError(str(error)) from error
    return changed


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """Return every combination of a sweep such as `data.d=4,8 weights=free,factored`.

    Raises:
        UsageError: an override that cannot be read.
    """
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise UsageError(str(error)) from error
    choices = [
        [f"{one.get_key_element()}={value}" for value in one.sweep_string_iterator()]
        if one.is_sweep_override()
        else [one.input_line or ""]
        for one in parsed
    ]
    return [list(combination) for combination in itertools.product(*choices)]


def check(overrides: Sequence[str]) -> None:
    """Compose and trace every combination of a sweep, so that a mistake in the last is found before the first runs.

    Raises:
        UsageError: a combination that cannot be trained.
    """
    for combination in expand(overrides):
        config = compose(combination)
        setting = setting_of(config)
        try:
            with jax.enable_x64(config.precision.name == "float64"):
                recording.shapes(setting)
        except (ValueError, TypeError) as error:
            raise UsageError(f"{' '.join(combination)}: {error}") from error


def experiments() -> list[str]:
    """Return the names of all experiments."""
    return sorted(path.stem for path in (root() / "conf" / "experiment").glob("*.yaml"))


def setting_of(config: DictConfig) -> recording.Setting:
    """Instantiate what a configuration's record is made from: its `study.record`, field by field.

    Raises:
        UsageError: a value out of range, or a target that cannot be made.
    """
    try:
        fields = {
            name: _made(place, config[place]) if OmegaConf.is_dict(config[place]) else config[place]
            for name, place in places(config).items()
        }
        return named(config.study.record)(**fields)
    except (ValueError, TypeError, HydraException) as error:
        raise UsageError(str(error.__cause__ or error)) from error


def named(path: str) -> Callable[..., Any]:
    """Return the function or class at a dotted path."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def places(config: DictConfig) -> dict[str, str]:
    """Return the fields of the setting that a record depends on, each with its place in the configuration."""
    names = inspect.signature(named(config.study.record)).parameters
    return {name: _PLACES.get(name, name) for name in names}


def _made(place: str, node: DictConfig) -> Any:
    """Return the value that a group's configuration describes.

    Raises:
        UsageError: a parameter that its function wants a number for is none.
    """
    described = json.dumps(OmegaConf.to_container(node, resolve=True), sort_keys=True)
    for name, parameter in inspect.signature(named(node["_target_"])).parameters.items():
        wanted = _NUMBERS.get(getattr(parameter.annotation, "__name__", parameter.annotation))
        if wanted and name in node and (isinstance(node[name], bool) or not isinstance(node[name], wanted[1])):
            raise UsageError(f"{place}.{name}: expected {wanted[0]}, found {node[name]!r}")
    return _value(described)


@functools.lru_cache(maxsize=256)
def _value(described: str) -> Any:
    """One object for each description, so that what was compiled for it is found again."""
    value = instantiate(json.loads(described))
    plain = isinstance(value, functools.partial) and not value.args and not value.keywords
    return value.func if plain else value


def _known(overrides: Sequence[str]) -> str:
    """List the known keys beside those that an unknown one was given for."""
    schema_keys = sorted(schema.Config.__dataclass_fields__)
    lines = [f"known keys: {', '.join(schema_keys)}"]
    for key in {override.lstrip("+~").partition("=")[0] for override in overrides}:
        group = root() / "conf" / key.partition(".")[0]
        if group.is_dir():
            names = sorted(path.stem for path in group.glob("*.yaml"))
            lines.append(f"known names of {group.name}: {', '.join(names)}")
            keys: Iterator[str] = (str(k) for path in group.glob("*.yaml") for k in OmegaConf.load(path))
            if "." in key:
                lines.append(f"known keys of {group.name}: {', '.join(sorted(set(keys)))}")
    return "\n" + "\n".join(lines)
