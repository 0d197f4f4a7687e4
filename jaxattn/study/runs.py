"""Runs of configurations: where their records are, what these depend on, and how they are made."""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import subprocess
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
from omegaconf import DictConfig, OmegaConf

import jaxattn
from jaxattn import records
from jaxattn.records import RecordError, is_complete, write_json
from jaxattn.records.locks import HeldError, held
from jaxattn.study import fingerprints
from jaxattn.study.configuration.composition import config_keys, setting_of
from jaxattn.study.configuration.names import root
from jaxattn.study.events import Report, Trained, unheard
from jaxattn.study.settings import recording

_PACKAGES = ("jax", "jaxlib", "numpy", "optax", "xarray", "zarr")


def folder(config: DictConfig) -> Path:
    """Return the folder of a configuration's run, named by a hash of configuration and code: equal runs are shared."""
    return _folder(config, fingerprint(config))


def _folder(config: DictConfig, made_from: str) -> Path:
    kind = config.study.record.rpartition(".")[2].lower()
    described = json.dumps([config.study.record, _resolved(config), made_from], sort_keys=True)
    return Path(config.runs) / f"{kind}-{hashlib.sha256(described.encode()).hexdigest()[:12]}"


def record_path(config: DictConfig) -> Path:
    """Return the path of the record of a configuration's run, whether it exists or not."""
    return folder(config) / "record.zarr"


def is_recorded(config: DictConfig) -> bool:
    """Return whether the finished record of a configuration's run exists."""
    return is_complete(record_path(config))


def code(config: DictConfig) -> list[str]:
    """Return the code that makes a record, as dotted paths: its setting, and all targets in the configuration."""
    return [f"{recording.__name__}.run", config.study.record, *fingerprints.targets(_resolved(config))]


def fingerprint(config: DictConfig) -> str:
    """Return a hash of the code that a record depends on, a user's own included, and of the files that are named."""
    of_code, of_files = fingerprints.of(code(config)), fingerprints.contents(_resolved(config))
    return hashlib.sha256(f"{of_code} {of_files}".encode()).hexdigest() if of_files else of_code


def run(config: DictConfig, report: Report = unheard) -> Path:
    """Draw and train what a configuration describes, unless its record exists, and return the record's path.

    The first report is of the seeds that are already recorded. UsageError: values out of range. RecordError: the record
    cannot be written, is being written by another run, or was begun differently.
    """
    made_from = fingerprint(config)
    record = _folder(config, made_from) / "record.zarr"
    if is_complete(record):
        report(Trained(config.seeds))
        return record
    setting = setting_of(config)
    attributes = {
        "config": json.dumps(_resolved(config), sort_keys=True),
        "fingerprint": made_from,
        "precision": config.precision.name,
        "attempted": config.seeds,
    }
    versions = {"python": platform.python_version(), "jaxattn": jaxattn.__version__}
    versions |= {package: version(package) for package in _PACKAGES}
    notes = {"versions": json.dumps(versions), "revision": _revision()}
    steps = config.steps if "steps" in config_keys(config) else 0
    since: list[float] = []
    with jax.enable_x64(config.precision.name == "float64"):

        def advance(seeds: int) -> None:
            # The first call gives the seeds that are already recorded.
            now = time.perf_counter()
            report(Trained(seeds, steps, now - since[-1]) if since else Trained(seeds))
            since.append(now)
            _status(record.parent, "running")

        try:
            recording.run(setting, record, attributes, progress=advance, notes=notes)
        except HeldError:
            raise  # The status belongs to the run that writes the record.
        except BaseException as error:
            # Also on an interrupt: the finished blocks are kept, and the status gives the reason.
            with contextlib.suppress(RecordError):  # On a full disk the error raised below is more useful.
                _status(record.parent, "stopped", reason=f"{type(error).__name__}: {error}")
            raise
        _status(record.parent, "complete")
    return record


def revision(configs: Sequence[DictConfig]) -> str:
    """Return the revision of the code that recorded some runs, as their records say; several where they differ."""
    revisions = (records.attributes(record_path(config))["revision"] for config in configs)
    return ", ".join(dict.fromkeys(map(str, revisions)))


def ended(config: DictConfig) -> None:
    """Mark a run whose process was killed as stopped, unless another process has continued it."""
    status = folder(config) / "status.json"
    if status.exists():
        with contextlib.suppress(RecordError), held(record_path(config)):
            if json.loads(status.read_text())["state"] == "running":
                _status(status.parent, "stopped", reason="its process was killed")


def _resolved(config: DictConfig) -> dict[str, Any]:
    nodes = {key: config[key] for key in config_keys(config).values()}
    values = {
        key: OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
        for key, node in nodes.items()
    }
    return values | {"precision": config.precision.name}


def _revision() -> str:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root()), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        # The environment of an installation may be inside a repository of the user's.
        git("ls-files", "--error-unmatch", "conf/config.yaml")
        # The figures change while they are made, and no record depends on them.
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!figures")
        return git("describe", "--always") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "not a git checkout"


def _status(folder: Path, state: str, **details: str) -> None:
    """Write the state of a run, if it has a folder."""
    if folder.exists():
        write_json(folder / "status.json", {"state": state, **details})
