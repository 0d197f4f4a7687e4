"""Fingerprints of code: the source files that a result depends on, found by following imports, and their hash.

Imports are followed name by name: `from jaxattn import svm` and a use of `svm.solve` lead to the module that defines
`solve`, not to everything in the package. Imports inside functions count, and so do a user's modules beside one that is
named in a configuration. Installed packages do not; the record has their versions. Comments, docstrings, blank lines
and the messages of errors are not hashed, so rewording them leaves all records current.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import io
import sysconfig
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = "jaxattn"
_ROOT = Path(__file__).resolve().parents[2]
# Other files that modules read from their folder.
_READ = ("*.mplstyle",)


class _Imported(NamedTuple):
    """An imported name: `name` of `module`, or the module itself if `name` is empty."""

    module: str
    name: str


class _Source(NamedTuple):
    """A file's imports by local name, the attributes used of each, and the modules imported as a whole."""

    names: Mapping[str, _Imported]
    uses: Mapping[str, frozenset[str]]
    bare: frozenset[str]
    whole: frozenset[str]
    defined: frozenset[str]


def targets(config: Any) -> Iterator[str]:
    """Yield every `_target_` of a configuration, at any depth."""
    if isinstance(config, Mapping):
        for key, value in config.items():
            if key == "_target_":
                yield str(value)
            yield from targets(value)
    elif isinstance(config, list | tuple):
        for value in config:
            yield from targets(value)


def sources(named: Iterable[str], root: Path = _ROOT) -> dict[str, Path]:
    """Return the files that some code depends on, by the dotted names of their modules.

    Args:
        named: dotted paths of modules, or of functions and classes in them.
        root: the folder that contains the package.

    Raises:
        ValueError: a path that leads to no module, or a name that its package does not have.
    """
    found: dict[str, Path] = {}
    waiting = []
    places = {PACKAGE: root}
    for path in dict.fromkeys(named):
        top = path.partition(".")[0]
        if top not in places:
            place = _place(top, path)
            if place is None:  # An installed package.
                continue
            places[top] = place
        waiting.append(_split(path, places[top]))
    seen = set()
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        module, name = one
        place = _home(module, places)
        file = place and _file(module, place)
        if place is None or file is None:
            continue
        if name and _file(f"{module}.{name}", place):
            waiting.append(_Imported(f"{module}.{name}", ""))
            continue
        source = _read(file, module, file.stat().st_mtime_ns)
        if name and file.name == "__init__.py":
            # Follow only this name of a package.
            if name in source.names:
                waiting.append(source.names[name])
                continue
            if name not in source.defined and not name.startswith("__"):
                raise ValueError(f"{module}.{name}: expected a name of the package {module}, found none")
        found[module] = file
        waiting += _followed(source, places)
    return found


def of(named: Iterable[str], root: Path = _ROOT) -> str:
    """Return a hash of all files that some code depends on, and of the files that these read from their folders.

    Args:
        named: dotted paths of modules, or of functions and classes in them.
        root: the folder that contains the package.
    """
    asked = frozenset(named), root
    if _known is None:
        return _hash(*asked)
    if asked not in _known.hashes:
        _known.hashes[asked] = _hash(*asked)
    return _known.hashes[asked]


class _Known(NamedTuple):
    """Cached hashes and locations of modules, valid while no file changes."""

    hashes: dict[tuple[frozenset[str], Path], str]
    files: dict[tuple[str, Path], Path | None]


# None: files may change, so nothing is cached.
_known: _Known | None = None


@contextmanager
def still() -> Iterator[None]:
    """Assume that no file changes inside a `with` block, for example while a command runs with its code loaded."""
    global _known
    before, _known = _known, _Known({}, {}) if _known is None else _known
    try:
        yield
    finally:
        _known = before


def _hash(named: Iterable[str], root: Path) -> str:
    files = sources(named, root)
    read = {
        f"{file.parent.name}/{one.name}": one for file in files.values() for k in _READ for one in file.parent.glob(k)
    }
    digest = hashlib.sha256()
    for name, file in sorted({**files, **read}.items()):
        digest.update(name.encode() + b"\0" + _digest(file, file.stat().st_mtime_ns))
    return digest.hexdigest()[:16]


@functools.lru_cache(maxsize=4096)
def _digest(file: Path, changed: int) -> bytes:
    """Return the hash of one file; `changed` is its modification time, so that a changed file is read again."""
    del changed
    text = file.read_text()
    return hashlib.sha256((_code(text, str(file)) if file.suffix == ".py" else text).encode()).digest()


def _code(text: str, file: str) -> str:
    """Return a file's text without comments, docstrings and blank lines; with docstrings if it reads `__doc__`."""
    if "__doc__" in text:
        return text
    # Use positions, which are the same in all versions of Python; a dump of the tree is not.
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line, start = token.start
            lines[line - 1] = lines[line - 1][:start]
    for node in ast.walk(ast.parse(text, file)):
        if isinstance(node, ast.Raise):
            _blank(lines, node)
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            _blank(lines, node.body[0])
    return "\n".join(stripped for line in lines if (stripped := line.rstrip()))


def _blank(lines: list[str], statement: ast.stmt) -> None:
    """Empty the lines of a statement in place."""
    for line in range(statement.lineno - 1, statement.end_lineno or statement.lineno):
        lines[line] = ""


def _followed(source: _Source, places: Mapping[str, Path]) -> Iterator[_Imported]:
    """Yield what a file imports; of packages only the attributes that it uses."""
    yield from (_Imported(module, "") for module in source.whole)
    for local, (module, name) in source.names.items():
        full = f"{module}.{name}" if name else module
        place = _home(full, places)
        file = place and _file(full, place)
        if file is None or file.name != "__init__.py" or local in source.bare:
            yield _Imported(module, name)
        else:
            yield from (_Imported(full, attribute) for attribute in source.uses.get(local, ()))


def _home(module: str, places: Mapping[str, Path]) -> Path | None:
    """Return the folder of a module's top level: that of the package, or one of a user."""
    top = module.partition(".")[0]
    if top in places:
        return places[top]
    beside = (place for own, place in places.items() if own != PACKAGE and _file(top, place))
    return next(beside, None)


def _place(top: str, path: str) -> Path | None:
    """Return the folder of a user's module or package, or None if it is an installed package.

    Raises:
        ValueError: there is no such module.
    """
    spec = importlib.util.find_spec(top)
    if spec is None:
        raise ValueError(f"{path}: expected a module {top} on the PYTHONPATH, found none")
    if spec.origin is None or not spec.origin.endswith(".py"):
        return None
    file = Path(spec.origin).resolve()
    installed = (Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib"))
    if any(file.is_relative_to(one) for one in installed):
        return None
    return file.parent.parent if file.name == "__init__.py" else file.parent


def _split(path: str, place: Path) -> _Imported:
    """Split a dotted path into the longest part that is a module, and the first name after it."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        if _file(".".join(parts[:length]), place):
            return _Imported(".".join(parts[:length]), parts[length] if length < len(parts) else "")
    raise ValueError(f"{path}: expected a module in {place}, found none")


def _file(module: str, place: Path) -> Path | None:
    """Return the file of a module below a folder, or None."""
    if _known is None:
        return _looked_up(module, place)
    if (module, place) not in _known.files:
        _known.files[module, place] = _looked_up(module, place)
    return _known.files[module, place]


def _looked_up(module: str, place: Path) -> Path | None:
    path = place.joinpath(*module.split("."))
    for file in (
        path / "__init__.py",
        path.with_suffix(".py") if path.suffix == "" else path.parent / f"{path.name}.py",
    ):
        if file.is_file():
            return file
    return None


@functools.lru_cache(maxsize=1024)
def _read(file: Path, module: str, changed: int) -> _Source:
    """Read what a file imports; `changed` is its modification time, so that a changed file is read again."""
    del changed
    tree = ast.parse(file.read_text(), str(file))
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    names: dict[str, _Imported] = {}
    whole = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    names[alias.asname] = _Imported(alias.name, "")
                else:
                    whole.add(alias.name)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            above = ".".join(parts) if (parts := parents[: len(parents) - node.level + 1]) and node.level else ""
            base = ".".join(filter(None, (above, node.module)))
            for alias in node.names:
                if alias.name == "*":
                    whole.add(base)
                else:
                    names[alias.asname or alias.name] = _Imported(base, alias.name)
    uses: dict[str, set[str]] = {}
    bare = set()
    held = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            uses.setdefault(node.value.id, set()).add(node.attr)
            held.add(id(node.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names and id(node) not in held:
            bare.add(node.id)
    # Annotations count as names too.
    defined = {one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    defined |= {
        t.id for one in tree.body if isinstance(one, ast.Assign) for t in one.targets if isinstance(t, ast.Name)
    }
    frozen = {local: frozenset(attributes) for local, attributes in uses.items()}
    return _Source(names, frozen, frozenset(bare), frozenset(whole), frozenset(defined))
