"""Turn a command line into values: compose a configuration with Hydra, check it, and make its setting."""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import hydra
import jax
import yaml
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from jaxattn.records import RecordError
from jaxattn.study.configuration import schema
from jaxattn.study.configuration.heads import check_fields, check_numbers, check_output
from jaxattn.study.configuration.keys import forced, settled
from jaxattn.study.configuration.names import (
    described,
    experiments,
    folders,
    is_group,
    key_of,
    listing,
    named,
    not_yaml,
)
from jaxattn.study.configuration.values import check_arguments, check_value, own_words, parsed
from jaxattn.study.mistakes import UsageError
from jaxattn.study.settings import recording

# The key in the configuration of a setting's field, if it has another name there.
_KEYS = {"law": "data", "initial": "weights"}
_MOST_RUNS = 10_000


class _UsersFirst(SearchPathPlugin):
    """What Hydra searches before jaxattn's own configurations: those of the user, in the working folder."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        *users, own = map(str, folders())
        # Other applications of Hydra in this process have search paths of their own.
        if own in [element.path for element in search_path.get_path()]:
            for folder in users:
                search_path.prepend("user", folder, anchor="main")


# conf/config.yaml extends it.
ConfigStore.instance().store(name="schema", node=schema.Config(study=schema.Study()))
Plugins.instance().register(_UsersFirst)
logging.getLogger("jax").setLevel(logging.WARNING)


def compose(overrides: Sequence[str]) -> DictConfig:
    """Return the configuration of these overrides.

    UsageError: an unknown key or name (the known ones are listed), an argument that a target does not accept, several
    values for one key, or a value of the wrong type.
    """
    _check_values(overrides)
    with hydra.initialize_config_dir(str(folders()[-1]), version_base="1.3"):
        try:
            config = settled(hydra.compose("config", forced(overrides)), overrides)
            OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        except yaml.YAMLError as error:
            raise UsageError(not_yaml(error)) from error
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            raise UsageError(own_words(error) + listing(overrides)) from error
    return config


def _check_values(overrides: Iterable[str]) -> None:
    for line in overrides:
        override = _override(line)
        if override.is_sweep_override():
            raise UsageError(
                f"{override.input_line}: expected one value, found several; `jaxattn train --multirun` trains each of "
                f"them, `jaxattn which --multirun` ranks them (a list is {override.get_key_element()}=[...])"
            )
        check_value(override)


@functools.lru_cache(maxsize=1024)
def _override(line: str) -> Override:
    return parsed([line])[0]


def with_values(config: DictConfig, values: Mapping[str, Any]) -> DictConfig:
    """Return a copy of a configuration with other values at some of its keys, for example `data.n`."""
    changed = copy.deepcopy(config)
    try:
        for key, value in values.items():
            OmegaConf.update(changed, key, value, merge=False)
        OmegaConf.to_container(changed, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UsageError(own_words(error)) from error
    return changed


def composed(combinations: Sequence[Sequence[str]]) -> Iterator[DictConfig]:
    """Yield what `compose` returns for each combination of a sweep, composed once per choice of groups.

    UsageError: as from `compose`; a value of the wrong type is found before anything is composed.
    """
    _check_values(dict.fromkeys(itertools.chain.from_iterable(combinations)))
    configs: dict[tuple[str, ...], DictConfig] = {}
    for combination in combinations:
        values = _plain_values(combination)
        rest = tuple(override for override in combination if key_of(override) not in values)
        if rest not in configs:
            # Compose with the values, so that all keys are checked.
            configs[rest] = compose(combination)
        yield with_values(configs[rest], values)


def _plain_values(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the overrides that only set a number, text or list at a key, and set each key once."""
    values: dict[str, Any] = {}
    keys = [key_of(override) for override in overrides]
    for line, key in zip(overrides, keys, strict=True):
        if not line.startswith(f"{key}=") or keys.count(key) > 1 or "@" in key or key.endswith("_") or is_group(key):
            continue
        if isinstance(value := _override(line).value(), int | float | str | list):
            values[key] = value
    # The result for a key inside another one would depend on the order.
    return {key: value for key, value in values.items() if not any(other.startswith(f"{key}.") for other in keys)}


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """Return all combinations of a sweep, for example `data.d=4,8 weights=free,factored`; UsageError for too many."""
    choices = []
    for override in parsed(list(overrides)):
        if override.is_sweep_override():
            values = itertools.islice(override.sweep_string_iterator(), _MOST_RUNS + 1)
            choices.append([f"{override.get_key_element()}={value}" for value in values])
        else:
            choices.append([override.input_line or ""])
    if math.prod(map(len, choices)) > _MOST_RUNS:
        raise UsageError(f"--multirun: expected at most {_MOST_RUNS:,} runs in a sweep, found more")
    return [list(combination) for combination in itertools.product(*choices)]


def varied(combinations: Sequence[Sequence[str]]) -> list[dict[str, str]]:
    """Return for each combination of a sweep the values of the keys that vary, as they are written."""
    # If a key is given twice the last value counts.
    written = [{key_of(line): line.partition("=")[2] for line in combination} for combination in combinations]
    keys = [key for key in written[0] if len({values[key] for values in written}) > 1]
    return [{key: values[key] for key in keys} for values in written]


def check(combinations: Sequence[Sequence[str]]) -> None:
    """Compose and trace all combinations of a sweep before the first of them runs."""
    tried: list[Any] = []
    for combination, config in zip(combinations, composed(combinations), strict=True):
        check_setting(config, setting_of(config), tried, f"{' '.join(combination)}: ")


def check_setting(config: DictConfig, setting: recording.Setting, tried: list[Any], named: str = "") -> None:
    """Trace the setting of a configuration; raise UsageError, which begins with `named`, if it cannot be trained.

    The heads in `tried` are known to give finite numbers; that of the setting is added.
    """
    head = getattr(setting, "head", None)
    try:
        with jax.enable_x64(config.precision.name == "float64"):
            check_output(setting)
            recording.check_size(setting, Path(config.runs) / "record.zarr")
            if head not in tried:
                check_numbers(setting)
                tried.append(head)
    except (ValueError, TypeError, MemoryError, RecordError) as error:
        # What another record takes fails here for a reason that does not say so.
        raise UsageError(f"{named}{_of_others(setting, config_keys(config)) or error}") from error


def _of_others(setting: Any, keys: dict[str, str]) -> str:
    """Say which fields of a setting have values of types that another record asks for, by keys; "" if none has.

    A field whose own record names a type as well is not looked at: both may take it.
    """
    own = _types(type(setting))
    said: dict[str, str] = {}
    for name in sorted(experiments(), key=lambda name: described(name).place):
        record = named(described(name).record)
        for field, kind in _types(record).items():
            if field in keys and field not in own and isinstance(getattr(setting, field), kind):
                expected = f"{keys[field]}: expected what a {type(setting).__name__} takes"
                found = f"found a {kind.__name__}, which a {record.__name__} takes: add experiment={name}"
                said.setdefault(field, f"{expected}, {found}")
    return "; ".join(said.values())


def _types(record: Any) -> dict[str, type]:
    hints = get_type_hints(record)
    return {name: hint for name, hint in hints.items() if isinstance(hint, type) and hint is not Any}


def setting_of(config: DictConfig) -> recording.Setting:
    """Instantiate a configuration's `study.record`, field by field; UsageError for a value that cannot be used."""
    try:
        fields = {
            name: _instantiated(key, _described(config[key])) if OmegaConf.is_dict(config[key]) else config[key]
            for name, key in config_keys(config).items()
        }
        check_fields(fields)
        setting = named(config.study.record)(**fields)
    except (ValueError, TypeError, HydraException) as error:
        raise UsageError(str(error.__cause__ or error)) from error
    if not hasattr(setting, "one_seed"):
        raise UsageError(f"study.record: expected a setting such as {schema.Study.record}, found {config.study.record}")
    return setting


def config_keys(config: DictConfig) -> dict[str, str]:
    """Return the fields of the setting that a record depends on, with their keys in the configuration."""
    names = inspect.signature(named(config.study.record)).parameters
    return {name: _KEYS.get(name, name) for name in names}


def _described(node: DictConfig) -> str:
    return json.dumps(OmegaConf.to_container(node, resolve=True), sort_keys=True)


@functools.lru_cache(maxsize=1024)
def _instantiated(key: str, described: str) -> Any:
    """Return one object for each description of a group's value, so that what was compiled for it is found again."""
    node = json.loads(described)
    if "_target_" not in node:
        raise UsageError(f"{key}: expected a value with a _target_, found {node}")
    check_arguments(key, node)
    value = instantiate(node)
    plain = isinstance(value, functools.partial) and not value.args and not value.keywords
    return value.func if plain else value
