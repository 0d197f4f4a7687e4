"""The names available on a command line: configurations, groups, keys, and functions at dotted paths."""

from __future__ import annotations

import difflib
import functools
import importlib
import itertools
from collections.abc import Callable, Collection, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from jaxattn.study.configuration import schema
from jaxattn.study.kept import digest
from jaxattn.study.mistakes import UsageError

_PACKAGE = Path(__file__).resolve().parents[2]


def root() -> Path:
    """Return the folder of jaxattn's own `conf/` and `figures/`: the package if it is installed, else its checkout."""
    folder = _PACKAGE if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent
    if not (folder / "conf" / "config.yaml").is_file():
        raise UsageError(f"expected conf/config.yaml in jaxattn's own folder, found none in {folder}; install it again")
    return folder


def folders() -> list[Path]:
    """Return the folders of configurations in the order of search: `conf` in the working folder, then jaxattn's own."""
    own = root() / "conf"
    return [folder for folder in (Path("conf").resolve(),) if folder.is_dir() and folder != own] + [own]


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
    """Return the part `study` of an experiment's file, which is only read: composing it takes a tenth of a second."""
    file = _files("experiment")[name]
    try:
        return cast(DictConfig, OmegaConf.merge(OmegaConf.structured(schema.Study), _study(name, file)))
    except (OmegaConfBaseException, LookupError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"{file}: expected a part study that describes an experiment, found another ({reason})"
        ) from error


def _study(name: str, file: Path) -> Any:
    study = _content(file)["study"]
    # OmegaConf's own error names neither the key nor the value.
    if OmegaConf.is_dict(study):
        for runs in filter(OmegaConf.is_list, (study.get("runs"), study.get("small"), study.get("large"))):
            raise not_by_name(name, runs)
    return study


def not_by_name(name: str, runs: Any) -> UsageError:
    """Return the error of an experiment whose runs are no settings by name."""
    return UsageError(f"{name}: expected runs by name as study.runs, such as {{W: {{seeds: 8}}}}, found {runs}")


def sources(name: str) -> str:
    """Return what decides how an experiment is composed, apart from the command line: a hash of files, and versions."""
    configs = itertools.chain.from_iterable(folder.rglob("*.yaml") for folder in folders())
    files = [file for file in configs if file.parent.name != "experiment" or file.stem == name]
    files += Path(__file__).parent.glob("*.py")
    return f"{digest(files)}, Hydra {version('hydra-core')}, OmegaConf {version('omegaconf')}"


def named(path: str) -> Callable[..., Any]:
    """Return the function or class at a dotted path; UsageError if there is none."""
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
    return sorted(_files(group))


def keys_of(group: str) -> list[str]:
    """Return the keys of all configurations of a group."""
    return sorted({str(key) for file in _files(group).values() for key in _content(file)})


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
    users = [folder / "config.yaml" for folder in folders()[:-1]]
    lines += [f"{file} is used in place of jaxattn's own" for file in users if file.is_file()]
    return "\n" + "\n".join(dict.fromkeys(lines))


def not_yaml(error: yaml.YAMLError) -> str:
    """Return, in one line, where a file is not YAML."""
    mark = getattr(error, "problem_mark", None)
    where = f"{mark.name}, line {mark.line + 1}" if mark else getattr(error, "name", "a configuration")
    reason = getattr(error, "problem", None) or getattr(error, "reason", None) or type(error).__name__
    return f"{where}: expected YAML, found something else ({reason})"


def _files(group: str) -> dict[str, Path]:
    """Return the configurations of a group by name; one of the user's hides jaxattn's own of that name."""
    return {file.stem: file for folder in reversed(folders()) for file in (folder / group).glob("*.yaml")}


def _content(file: Path) -> Any:
    found = file.stat()
    return _loaded(file, found.st_mtime_ns, found.st_size)


@functools.lru_cache(maxsize=256)
def _loaded(file: Path, modified: int, size: int) -> Any:
    """Do the same, once for each version of a file: a command lists all experiments several times."""
    del modified, size
    try:
        return OmegaConf.load(file)
    except yaml.YAMLError as error:
        raise UsageError(not_yaml(error)) from error
