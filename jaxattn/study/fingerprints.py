"""Fingerprints of code: the top-level definitions that a result depends on, found by name, and their hash.

A definition is a function, a class or an assignment. It depends on the definitions that it names, in its own module and
in imported ones, so that a claim or a figure may stand in the file of the function that measures. Imports inside
functions count, and so do a user's modules on the PYTHONPATH. Installed packages do not; the record has their versions.
Other statements of a module, such as a registration, always count. Comments, docstrings, blank lines and the messages
of errors are not hashed. (The package grimp finds imports by module: a changed figure would make its whole file again.)
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import io
import os
import sys
import sysconfig
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from jaxattn.study.kept import digest, kept
from jaxattn.study.mistakes import UsageError

PACKAGE = "jaxattn"
_ROOT = Path(__file__).resolve().parents[2]
# Other files that modules read from their folder.
_READ = ("*.mplstyle",)
_ALWAYS, _ALL = "", "*"
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
# This decorator of the package registers nothing: a claim may stand beside what it judges.
_WITHOUT_EFFECT = {f"{PACKAGE}.study.claims.claim"}
# Builtins that reach definitions without naming them.
_REFLECTION = {"eval", "exec", "globals", "vars"}


class Definition(NamedTuple):
    """What a name of a module is bound to; "*" is all of the module, and "" what always counts."""

    module: str
    name: str


class _Statement(NamedTuple):
    """A top-level statement: its text as it is hashed, and the dotted names that it uses."""

    text: str
    uses: frozenset[str]


class _Module(NamedTuple):
    """A parsed file: statements by the names that they bind, all others, and dotted paths by the local names."""

    bound: Mapping[str, list[_Statement]]
    always: list[_Statement]
    imported: Mapping[str, set[str]]
    # Modules imported as `import a.b`, with `*`, or without being used.
    whole: frozenset[str]
    is_package: bool


def targets(config: Any) -> Iterator[str]:
    """Yield every `_target_` of a configuration, at any depth."""
    return (text for key, text in _texts(config) if key == "_target_")


def contents(config: Any) -> str:
    """Return a hash of the files, and of all in the folders, that a configuration names; "" for none."""
    named = [Path(text) for key, text in _texts(config) if key != "_target_" and os.path.exists(text)]
    files = [file for path in named for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file()]
    try:
        return digest(files) if files else ""
    except OSError as error:
        raise UsageError(f"{error.filename}: expected a file that can be read, found: {error.strerror}") from error


def _texts(config: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text of a configuration, at any depth, behind the key that it stands under."""
    if isinstance(config, str):
        yield key, config
    elif isinstance(config, Mapping):
        for own, value in config.items():
            yield from _texts(value, own)
    elif isinstance(config, list | tuple):
        for value in config:
            yield from _texts(value, key)


def definitions(paths: Iterable[str], root: Path = _ROOT) -> set[Definition]:
    """Return the definitions that dotted paths depend on in the package below `root`; ValueError: one leads nowhere."""
    return set().union(*map(_code(root).closure, paths))


def of(paths: Iterable[str], root: Path = _ROOT) -> str:
    """Return a hash of `definitions`, and of other files that their modules read from their folders."""
    code, paths = _code(root), frozenset(paths)
    return code.hash(paths) if _known is None else code.kept(paths)


def _hashed(paths: Sequence[str], root: Path, sources: str) -> str:
    """Return the hash of paths that lead into the package, whose files have the hash `sources`."""
    del sources
    return _code(root).hash(frozenset(paths))


# Inside `still`: what is known of the code below each root.
_known: dict[Path, _Code] | None = None


@contextmanager
def still() -> Iterator[None]:
    """Assume that no file changes inside a `with` block, for example while a command runs with its code loaded."""
    global _known
    before, _known = _known, {} if _known is None else _known
    try:
        yield
    finally:
        _known = before


def _code(root: Path) -> _Code:
    return _Code(root) if _known is None else _known.setdefault(root, _Code(root))


class _Code:
    """The package below a root and the user's modules, as long as no file changes."""

    def __init__(self, root: Path):
        self.file = functools.cache(functools.partial(_file, root))
        self.module = functools.cache(self._module)
        self.resolve = functools.cache(self._resolve)
        self.uses = functools.cache(self._uses)
        self.closure = functools.cache(self._closure)
        self.text = functools.cache(self._text)
        self.hash = functools.cache(self._hash)
        self.kept = functools.cache(self._kept)
        self.sources = functools.cache(functools.partial(_sources, root))
        self._root = root

    def _module(self, name: str) -> _Module:
        file = self.file(name)
        assert file is not None
        return _parse(file, name, file.stat().st_mtime_ns)

    def _closure(self, path: str) -> frozenset[Definition]:
        top = path.partition(".")[0]
        if top != PACKAGE and importlib.util.find_spec(top) is None:
            raise ValueError(f"{path}: expected a module {top} on the PYTHONPATH, found none")
        waiting, reached = set(self.resolve(path)), set()
        for module, name in waiting:
            if name == _ALL and self.module(module).is_package and path.startswith(f"{module}."):
                unknown = path.removeprefix(f"{module}.").partition(".")[0]
                raise ValueError(f"{module}.{unknown}: expected a name of the package {module}, found none")
        while waiting:
            reached.add(definition := waiting.pop())
            waiting |= frozenset().union(*self.uses(definition).values()) - reached
        return frozenset(reached)

    def _resolve(self, path: str, behind: frozenset[str] = frozenset()) -> frozenset[Definition]:
        """Return what a dotted path leads to: nothing in an installed package, several after conditional imports.

        It is all of a module or package that binds no such name, or only imports it from itself, as a package does with
        a compiled module; `behind` are the paths that led here.
        """
        parts = path.split(".")
        length = next((k for k in range(len(parts), 0, -1) if self.file(".".join(parts[:k]))), 0)
        if not length:
            return frozenset()
        module, rest = ".".join(parts[:length]), parts[length:]
        if not rest:
            # A name of the package above may hide the module, as svm.solve does.
            above = ".".join(parts[:-1])
            hiding = self.module(above).imported.get(parts[-1], set()) - {path} if above else ()
            return frozenset().union(*map(self.resolve, hiding)) or frozenset({Definition(module, _ALL)})
        source, name = self.module(module), rest[0]
        behind = behind | {path}
        imports = {".".join([one, *rest[1:]]) for one in source.imported.get(name, ())} - behind
        leads = [self._resolve(one, behind) for one in imports]
        if name in source.bound or not leads:
            leads.append(frozenset({Definition(module, name if name in source.bound else _ALL)}))
        return frozenset().union(*leads)

    def _uses(self, definition: Definition) -> dict[str, frozenset[Definition]]:
        """Return what a definition depends on directly, by the names in its code, or by "" if it needs no name."""
        module, name = definition
        source = self.module(module)
        without_name = {Definition(module, _ALWAYS)}
        if name == _ALL:
            paths = set().union(*source.imported.values())
            without_name |= {Definition(module, bound) for bound in source.bound}.union(*map(self.resolve, paths))
        elif name == _ALWAYS:
            without_name = without_name.union(*map(self.resolve, source.whole))
        uses = {"": frozenset(without_name)}
        for use in set().union(*(statement.uses for statement in self.statements(definition))):
            if use.partition(".")[0] in _REFLECTION:
                uses[use] = frozenset({Definition(module, _ALL)})
            elif use.partition(".")[0] in source.bound.keys() | source.imported.keys():
                uses[use] = self.resolve(f"{module}.{use}")
        return uses

    def statements(self, definition: Definition) -> list[_Statement]:
        source = self.module(definition.module)
        return source.always if definition.name == _ALWAYS else source.bound.get(definition.name, [])

    def _hash(self, paths: frozenset[str]) -> str:
        reached, digest = frozenset().union(*map(self.closure, paths)), hashlib.sha256()
        for definition in sorted(reached):
            digest.update("\0".join((*definition, self.text(definition))).encode())
        folders = {file.parent for module in {module for module, _ in reached} if (file := self.file(module))}
        for file in sorted(file for folder in folders for pattern in _READ for file in folder.glob(pattern)):
            digest.update(f"{file.parent.name}/{file.name}\0".encode() + file.read_bytes())
        return digest.hexdigest()[:16]

    def _kept(self, paths: frozenset[str]) -> str:
        """Return the hash, found in the cache folder if the package alone decides it."""
        # A user's own modules may use others anywhere.
        if all(_top_folder(self._root, path) in (None, self._root) for path in paths):
            return kept(_hashed, sorted(paths), self._root, self.sources())
        return self.hash(paths)

    def _text(self, definition: Definition) -> str:
        """Return what is hashed of a definition: its text, and what the imported names in it stand for."""
        imported = self.module(definition.module).imported
        lines = [statement.text for statement in self.statements(definition)]
        for use, leads in sorted(self.uses(definition).items()):
            if stands_for := imported.get(use.partition(".")[0]):
                lines.append(f"{use} = {' '.join(sorted(map('.'.join, leads)) or sorted(stands_for))}")
        return "\n".join(lines)


def _sources(root: Path) -> str:
    return digest(file for pattern in ("*.py", *_READ) for file in (root / PACKAGE).rglob(pattern))


def _file(root: Path, module: str) -> Path | None:
    """Return the file of a module of the package or of a user; None for all others."""
    if (folder := _top_folder(root, module)) is None:
        return None
    path = folder.joinpath(*module.split("."))
    return next((file for file in (path / "__init__.py", path.parent / f"{path.name}.py") if file.is_file()), None)


def _top_folder(root: Path, path: str) -> Path | None:
    """Return the folder that contains a module's top level; None if that is installed, or nowhere."""
    top = path.partition(".")[0]
    return root if top == PACKAGE else _user_folder(top, tuple(sys.path))


@functools.cache
def _user_folder(top: str, path: tuple[str, ...]) -> Path | None:
    del path  # Where it is looked up.
    spec = None if top == "__main__" else importlib.util.find_spec(top)
    file = Path(spec.origin if spec and spec.origin else "").resolve()
    installed = Path(sysconfig.get_path("stdlib")).resolve() in file.parents
    if file.suffix != ".py" or installed or {"site-packages", "dist-packages"} & set(file.parts):
        return None
    return file.parents[1] if file.name == "__init__.py" else file.parent


@functools.lru_cache(maxsize=1024)
def _parse(file: Path, module: str, changed: int) -> _Module:
    """Parse a file; `changed` is its modification time, so that a changed file is read again."""
    del changed
    text = file.read_text()
    tree = ast.parse(text, str(file))
    is_package, keeps_docstrings = file.name == "__init__.py", "__doc__" in text
    lines = text.splitlines() if keeps_docstrings else _without_comments(text, tree)
    imported, whole = _imports(tree, module if is_package else module.rpartition(".")[0])
    if not is_package:
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        whole = whole.union(*(paths for local, paths in imported.items() if local not in used))
    # Decorators that are not installed may register what they decorate.
    effective = {local for local, paths in imported.items() if any(_top_folder(_ROOT, path) for path in paths)}
    bound: dict[str, list[_Statement]] = {}
    always = []
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom) or (_is_docstring(node) and not keeps_docstrings):
            continue
        decorators = getattr(node, "decorator_list", [])
        first = min(one.lineno for one in (node, *decorators))
        code = "\n".join(stripped for line in lines[first - 1 : node.end_lineno] if (stripped := line.rstrip()))
        statement = _Statement(code, frozenset(_names(node)))
        names, has_effects = _binds(node)
        decorating = {
            use.partition(".")[0]
            for one in decorators
            if imported.get(getattr(getattr(one, "func", one), "id", "")) != _WITHOUT_EFFECT
            for use in _names(one)
        }
        if has_effects or decorating & (effective | bound.keys()):
            always.append(statement)
        for name in names:
            bound.setdefault(name, []).append(statement)
    return _Module(bound, always, imported, frozenset(whole), is_package)


def _imports(tree: ast.Module, package: str) -> tuple[dict[str, set[str]], set[str]]:
    """Return the dotted paths that a file imports by local name, anywhere in it, and the modules to take as a whole."""
    imported: dict[str, set[str]] = {}
    whole = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.partition(".")[0]
                imported.setdefault(local, set()).add(alias.name if alias.asname else local)
                if local != alias.name and not alias.asname:
                    whole.add(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                if alias.name == "*":
                    whole.add(base)
                else:
                    imported.setdefault(alias.asname or alias.name, set()).add(f"{base}.{alias.name}")
    return imported, whole


def _binds(node: ast.stmt) -> tuple[set[str], bool]:
    """Return the names that a top-level statement binds, and whether it does more than that."""
    if isinstance(node, _FUNCTIONS | ast.ClassDef):
        return {node.name}, False
    stored = [one for one in ast.walk(node) if isinstance(getattr(one, "ctx", None), ast.Store)]
    names = {one.id for one in stored if isinstance(one, ast.Name)}
    names |= {one.name for one in ast.walk(node) if isinstance(one, _FUNCTIONS | ast.ClassDef)}
    assigns = isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)
    return names, not assigns or any(isinstance(one, ast.Attribute | ast.Subscript) for one in stored)


def _names(node: Any, local: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the dotted names that some code reads, each at its full length, except arguments and names in `raise`."""
    attributes = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in local:
        yield ".".join([node.id, *reversed(attributes)])
    elif isinstance(node, ast.AST) and not isinstance(node, ast.Raise):
        arguments = ast.iter_child_nodes(node.args) if isinstance(node, _FUNCTIONS | ast.Lambda) else ()
        inside = local.union(child.arg for child in arguments if isinstance(child, ast.arg))
        for field, children in ast.iter_fields(node):
            for child in children if isinstance(children, list) else [children]:
                yield from _names(child, inside if field == "body" else local)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _without_comments(text: str, tree: ast.Module) -> list[str]:
    """Return a file's lines, without comments, docstrings and `raise` statements."""
    # By positions, which are the same in all versions of Python; a dump of the tree is not.
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line, start = token.start
            lines[line - 1] = lines[line - 1][:start]
    for node in ast.walk(tree):
        statement = node if isinstance(node, ast.Raise) else None
        if isinstance(node, _FUNCTIONS | ast.ClassDef | ast.Module):
            statement = next(filter(_is_docstring, node.body[:1]), None)
        if statement is not None:
            for line in range(statement.lineno - 1, statement.end_lineno or statement.lineno):
                lines[line] = ""
    return lines
