"""What a result depends on: the source files that its code imports, found by reading them, and a hash of all.

Imports are followed name by name: `from jaxattn import svm` with `svm.solve` in use leads to the module that defines
`solve`, and not to all that the package offers. Imports inside functions count, as do a user's own modules beside the
one that is named in a configuration. What is installed from elsewhere does not; its version is in the record. Comments,
docstrings, blank lines and the messages of errors are not hashed, so that rewording them leaves every record current.
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
# Files beside a module that it reads.
_READ = ("*.mplstyle",)


class _Imported(NamedTuple):
    """A name that a module imports: `name` of `module`, or the module itself where `name` is empty."""

    module: str
    name: str


class _Source(NamedTuple):
    """What a file imports, by the local names; which attributes of these it uses; and what it imports as a whole."""

    names: Mapping[str, _Imported]
    uses: Mapping[str, frozenset[str]]
    bare: frozenset[str]
    whole: frozenset[str]
    defined: frozenset[str]


def targets(config: Any) -> Iterator[str]:
    """Yield every `_target_` of a configuration, however deep."""
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
        root: the folder in which the package stands.

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
            if place is None:  # Installed from elsewhere.
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
            # Of a package only what leads to this name.
            if name in source.names:
                waiting.append(source.names[name])
                continue
            if name not in source.defined and not name.startswith("__"):
                raise ValueError(f"{module}.{name}: expected a name of the package {module}, found none")
        found[module] = file
        waiting += _followed(source, places)
    return found


def of(named: Iterable[str], root: Path = _ROOT) -> str:
    """Return a hash of all files that some code depends on, and of those that stand beside them to be read.

    Args:
        named: dotted paths of modules, or of functions and classes in them.
        root: the folder in which the package stands.
    """
    asked = frozenset(named), root
    if _known is None:
        return _hash(*asked)
    if asked not in _known.hashes:
        _known.hashes[asked] = _hash(*asked)
    return _known.hashes[asked]


class _Known(NamedTuple):
    """What was found out since the files stand still: hashes, and in which file a module stands."""

    hashes: dict[tuple[frozenset[str], Path], str]
    files: dict[tuple[str, Path], Path | None]


# None where files may change.
_known: _Known | None = None


@contextmanager
def still() -> Iterator[None]:
    """Take it that no file changes in a `with`, such as while a command runs, whose code is loaded already."""
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
        content = _code(file.read_text(), str(file)) if file.suffix == ".py" else file.read_text()
        digest.update(name.encode() + b"\0" + hashlib.sha256(content.encode()).digest())
    return digest.hexdigest()[:16]


def _code(text: str, file: str) -> str:
    """Return a file's text without its comments, docstrings and blank lines; with them where it reads `__doc__`."""
    if "__doc__" in text:
        return text
    # Positions are the same in every version of Python; a dump of the tree is not.
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
    """Yield what a file imports, of packages only the attributes that it uses."""
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
    """Return the folder in which a module's top level stands: that of the package, or one of a user's."""
    top = module.partition(".")[0]
    if top in places:
        return places[top]
    beside = (place for own, place in places.items() if own != PACKAGE and _file(top, place))
    return next(beside, None)


def _place(top: str, path: str) -> Path | None:
    """Return the folder in which a user's module or package stands, or None if it is installed from elsewhere.

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
    """Return module and name of a dotted path: as much of it as is a module, then the first part of the rest."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        if _file(".".join(parts[:length]), place):
            return _Imported(".".join(parts[:length]), parts[length] if length < len(parts) else "")
    raise ValueError(f"{path}: expected a module in {place}, found none")


def _file(module: str, place: Path) -> Path | None:
    """Return the file in which a module stands below a folder, if there is one."""
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
    """Read what a file imports; `changed` is when it was written, so that a file that changes is read anew."""
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
    # Annotations are strings to a reader of the file, too.
    defined = {one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    defined |= {
        t.id for one in tree.body if isinstance(one, ast.Assign) for t in one.targets if isinstance(t, ast.Name)
    }
    frozen = {local: frozenset(attributes) for local, attributes in uses.items()}
    return _Source(names, frozen, frozenset(bare), frozenset(whole), frozenset(defined))
