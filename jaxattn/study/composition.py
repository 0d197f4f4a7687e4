"""From a command line to values: compose configurations, check them, name and run what they describe."""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import importlib
import inspect
import itertools
import json
import logging
import multiprocessing
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import hydra
import jax
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from tqdm import tqdm

import jaxattn
from jaxattn.parallel.processes import ProcessError
from jaxattn.records import RecordError, is_complete, write_json
from jaxattn.records.locks import HeldError
from jaxattn.study import schema
from jaxattn.study.settings import recording

ROOT = Path(__file__).resolve().parent.parent
# Where a field of a setting stands in the configuration, if under another name.
_PLACES = {"law": "data", "initial": "weights"}
# What an annotation asks of a number in a configuration.
_NUMBERS = {"int": ("an integer", int), "float": ("a number", (int, float))}
_MODULES = (
    "problem",
    "draws",
    "data",
    "attention",
    "tokens",
    "selection",
    "heads",
    "initial",
    "losses",
    "metrics",
    "lanes",
    "gradients",
    "spans",
    "engines",
    "optimizers",
    "stepping",
    "descent",
    "language/law",
    "language/choices",
    "language/scores",
    "language/model",
    "language/slopes",
    "language/training",
    "batch",
    "svm/constraints",
    "svm/pivoting",
    "regularization/balls",
    "regularization/newton",
    "regularization/following",
    "regularization/path",
)

schema.register()
logging.getLogger("jax").setLevel(logging.WARNING)


class UsageError(Exception):
    """A command line that cannot be run; its message says what was expected and found."""


def compose(overrides: Sequence[str]) -> DictConfig:
    """Return the configuration that these overrides describe.

    Raises:
        UsageError: an unknown key or name (the known ones are listed), or a value of the wrong type.
    """
    with hydra.initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        try:
            config = hydra.compose("config", list(overrides))
            OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        except (HydraException, OmegaConfBaseException) as error:
            causes = [str(error)] + ([str(error.__cause__)] if error.__cause__ else [])
            raise UsageError("\n".join(causes) + _known(overrides)) from error
    return config


def is_group(key: str) -> bool:
    """Whether a key of the command line chooses one of a group of configurations."""
    return (ROOT / "conf" / key).is_dir()


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
    return sorted(path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml"))


def setting_of(config: DictConfig) -> recording.Setting:
    """Instantiate what a configuration's record is made from: its `study.record`, field by field.

    Raises:
        UsageError: a value out of range, or a target that cannot be made.
    """
    try:
        fields = {
            name: _made(place, config[place]) if OmegaConf.is_dict(config[place]) else config[place]
            for name, place in _fields(config).items()
        }
        return named(config.study.record)(**fields)
    except (ValueError, TypeError, HydraException) as error:
        raise UsageError(str(error.__cause__ or error)) from error


def folder(config: DictConfig) -> Path:
    """Return the folder of a configuration's run: what kind of record, then a hash of config and code.

    Experiments that need the same run share it.
    """
    kind = config.study.record.rpartition(".")[2].lower()
    described = json.dumps([config.study.record, _resolved(config), fingerprint(config)], sort_keys=True)
    return Path(config.runs) / f"{kind}-{hashlib.sha256(described.encode()).hexdigest()[:12]}"


def record_path(config: DictConfig) -> Path:
    """Return where the record of a configuration's run stands, or will."""
    return folder(config) / "record.zarr"


def is_recorded(config: DictConfig) -> bool:
    """Whether the finished record of a configuration's run is there."""
    return is_complete(record_path(config))


def fingerprint(config: DictConfig) -> str:
    """Return a hash of the code that a record depends on, a user's own head or law included."""
    files = {Path(inspect.getfile(jaxattn)).parent / f"{module}.py" for module in _MODULES}
    files |= {Path(inspect.getfile(of)) for of in (recording, named(config.study.record))}
    for place in _fields(config).values():
        if OmegaConf.is_dict(config[place]):
            module, _, _ = str(config[place]["_target_"]).rpartition(".")
            files.add(Path(inspect.getfile(importlib.import_module(module))))
    digest = hashlib.sha256()
    # By name, and files of one name by their folders: the same order in every process and every clone.
    for path in sorted(files, key=lambda path: path.parts[::-1]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def run(config: DictConfig) -> Path:
    """Draw and train what a configuration describes, unless its record is there, and return the record's path.

    Raises:
        UsageError: values out of range, or several processes asked for that this one has not joined.
        RecordError: the record cannot be written, or is being written by another run.
        ProcessError: another process of this run has failed.
    """
    asked = config.processes
    if (asked.count > 1 or asked.detect is not None) and not jax.distributed.is_initialized():
        raise UsageError("processes: only scripts/train.py runs in several; let it train first, without them here")
    record = record_path(config)
    if is_complete(record) and jax.process_count() == 1:
        return record
    place = record.parent
    setting = setting_of(config)
    attributes = {
        "config": json.dumps(_resolved(config), sort_keys=True),
        "fingerprint": fingerprint(config),
        "precision": config.precision.name,
        "versions": json.dumps(_versions()),
        "revision": _revision(),
        "attempted": config.seeds,
    }
    # Bars of several processes would write over each other.
    hidden = jax.process_index() > 0 or multiprocessing.parent_process() is not None or None
    bar = tqdm(total=config.seeds, desc=place.name, unit="seed", disable=hidden)
    with jax.enable_x64(config.precision.name == "float64"), bar:

        def advance(seeds: int) -> None:
            bar.update(seeds)
            _status(place, "running")

        try:
            recording.run(setting, record, attributes, progress=advance)
        except HeldError:
            raise  # The status is that of the run that holds it.
        except BaseException as error:
            # Also on an interrupt: the finished blocks stay, and the status says why it ended.
            with contextlib.suppress(RecordError):  # On a full disk what is raised below says more.
                _status(place, "stopped", reason=f"{type(error).__name__}: {error}")
            raise
        _status(place, "complete")
    return record


def named(path: str) -> Callable[..., Any]:
    """Return the function or class at a dotted path."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def tune() -> None:
    """Keep compiled programs in the user's cache folder, so that the next process finds them; tell XLA how to compile.

    JAX's own variables have the last word: JAX_COMPILATION_CACHE_DIR names another folder, and
    JAX_ENABLE_COMPILATION_CACHE=0 switches it off; XLA_FLAGS as given are not touched.
    """
    # A tenth more steps a second where a processor has vectors of 512 bits, else nothing.
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_prefer_vector_width=512")
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(caches / "jaxattn"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def entry(main: Callable[[list[str]], None]) -> None:
    """Run a script's main function; a mistake of the user's ends it with one message and status 2."""
    tune()
    try:
        main(sys.argv[1:])
    except (UsageError, RecordError, ProcessError, ValueError, OSError) as error:
        print(f"jaxattn: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("jaxattn: interrupted; what was finished is kept, the same command goes on from there", file=sys.stderr)
        raise SystemExit(130) from None


def _resolved(config: DictConfig) -> dict[str, Any]:
    content = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    assert isinstance(content, dict)
    return {name: content[name] for name in (*_fields(config).values(), "precision")}


def _fields(config: DictConfig) -> dict[str, str]:
    """Return the fields of the setting that a record depends on, each with its place in the configuration."""
    fields = inspect.signature(named(config.study.record)).parameters
    return {name: _PLACES.get(name, name) for name in fields}


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


def _versions() -> dict[str, str]:
    packages = ("jax", "jaxlib", "numpy", "optax", "xarray", "zarr")
    return {"python": platform.python_version(), "jaxattn": jaxattn.__version__} | {p: version(p) for p in packages}


def _revision() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "not a git checkout"


def _status(place: Path, state: str, **more: str) -> None:
    """Say how a run stands, if it has a folder and this is the first of its processes."""
    if place.exists() and jax.process_index() == 0:
        write_json(place / "status.json", {"state": state, **more})


def _known(overrides: Sequence[str]) -> str:
    """List the known keys beside those that an unknown one was given for."""
    schema_keys = sorted(schema.Config.__dataclass_fields__)
    lines = [f"known keys: {', '.join(schema_keys)}"]
    for key in {override.lstrip("+~").partition("=")[0] for override in overrides}:
        group = ROOT / "conf" / key.partition(".")[0]
        if group.is_dir():
            names = sorted(path.stem for path in group.glob("*.yaml"))
            lines.append(f"known names of {group.name}: {', '.join(names)}")
            keys: Iterator[str] = (str(k) for path in group.glob("*.yaml") for k in OmegaConf.load(path))
            if "." in key:
                lines.append(f"known keys of {group.name}: {', '.join(sorted(set(keys)))}")
    return "\n" + "\n".join(lines)
