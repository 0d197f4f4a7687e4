"""The names available on a command line: configurations, groups, keys, and functions at dotted paths."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Collection, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from jaxattn.study.configuration import schema
from jaxattn.study.kept import digest
from jaxattn.study.mistakes import UsageError

_CHECKOUT = Path(__file__).resolve().parents[3]


def root() -> Path:
    """Return the checkout whose `conf/` is used: the one that contains this package, or else the working folder.

    Raises:
        UsageError: neither has a `conf/config.yaml`.
    """
    for folder in (_CHECKOUT, Path.cwd()):
        if (folder / "conf" / "config.yaml").is_file():
            return folder
    raise UsageError(
        f"expected conf/config.yaml in the working folder, a checkout of jaxattn, found none in {Path.cwd()}"
    )


def is_group(key: str) -> bool:
    """Return whether a key of the command line chooses one of a group of configurations."""
    return bool(key) and (root() / "conf" / key).is_dir()


def experiments() -> list[str]:
    """Return the names of all experiments."""
    return names_of("experiment")


def published() -> list[str]:
    """Return the names of the experiments that make a figure of the two papers or of the authors' repository."""
    return [name for name in experiments() if described(name).published]


def described(name: str) -> DictConfig:
    """Return an experiment file's own entries: `of`, `departs`, `place`, `published`, and its folder.

    The file is only read, since composing the configuration takes a tenth of a second.
    """
    study = OmegaConf.load(root() / "conf" / "experiment" / f"{name}.yaml").study
    return cast(DictConfig, OmegaConf.merge(OmegaConf.structured(schema.Study), study))


def sources(name: str) -> str:
    """Return what decides how an experiment's configurations are composed, apart from the command line.

    It is a hash of the YAML files and of this package, and the versions of Hydra and OmegaConf.
    """
    configs = (root() / "conf").rglob("*.yaml")
    files = [file for file in configs if file.parent.name != "experiment" or file.stem == name]
    files += Path(__file__).parent.glob("*.py")
    return f"{digest(files)}, Hydra {version('hydra-core')}, OmegaConf {version('omegaconf')}"


def named(path: str) -> Callable[..., Any]:
    """Return the function or class at a dotted path.

    Raises:
        UsageError: there is no such module, or it has nothing of this name.
    """
    module, _, name = path.rpartition(".")
    if not module or not name:
        raise UsageError(f"{path}: expected a module and a name in it, such as mymodule.myfunction")
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise UsageError(f"{path}: {module} cannot be imported: {error}") from error
        raise UsageError(f"{path}: expected a module {error.name} on the PYTHONPATH, found none") from error
    except Exception as error:  # A user's module may raise anything.
        raise UsageError(f"{path}: {module} cannot be imported: {type(error).__name__}: {error}") from error
    if not hasattr(imported, name):
        names = getattr(imported, "__all__", None) or [public for public in vars(imported) if public[:1] != "_"]
        raise UsageError(
            f"{path}: expected a name of {module} ({', '.join(sorted(names))}), found {name}{suggestion(name, names)}"
        )
    return getattr(imported, name)


def suggestion(name: str, names: Collection[str], prefix: str = "") -> str:
    """Return a question whether a similar known name was meant; empty if there is none."""
    alike = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), alike, n=1)
    return f"; did you mean {prefix}{alike[near[0]]}?" if near else ""


def key_of(override: str) -> str:
    """Return the key of an override."""
    return override.lstrip("+~").partition("=")[0]


def names_of(group: str) -> list[str]:
    """Return the names of all configurations of a group."""
    return sorted(path.stem for path in (root() / "conf" / group).glob("*.yaml"))


def keys_of(group: str) -> list[str]:
    """Return the keys of all configurations of a group."""
    return sorted({str(key) for path in (root() / "conf" / group).glob("*.yaml") for key in OmegaConf.load(path)})


def listing(overrides: Sequence[str]) -> str:
    """List the known names or keys of the groups in some overrides; the known keys if there are no groups."""
    lines = []
    for key in dict.fromkeys(map(key_of, overrides)):
        group, inside, _ = key.partition(".")
        if is_group(group):
            what, known = ("keys", keys_of(group)) if inside else ("names", names_of(group))
            lines.append(f"known {what} of {group}: {', '.join(known)}")
    if not lines:
        lines = [f"known keys: {', '.join(sorted([*schema.Config.__dataclass_fields__, 'experiment']))}"]
    return "\n" + "\n".join(dict.fromkeys(lines))
