"""API pages, written at the start of a build from what the packages name in `__all__`; nothing is listed by hand.

Each public name has one home: the shortest public module above the one that defines it. A public module that belongs to
no group, and a name that no page describes after the build, are warnings, which `make docs` turns into errors.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

# Experiments and what they share are not a library.
NOT_A_LIBRARY = ("jaxattn.experiments", "jaxattn.study")


@dataclass(frozen=True)
class Group:
    """One page: its file, its title, what the reader finds there, and the modules whose names it describes."""

    page: str
    title: str
    about: str
    modules: tuple[str, ...]


GROUPS = (
    Group(
        "problems",
        "Problems",
        "Make an instance from arrays of your own or draw one from a data law; compute its attention, scores and risk; "
        "measure directions, margins and ranks.",
        tuple(f"jaxattn.{name}" for name in ("problem", "data", "attention", "tokens", "heads", "losses", "metrics")),
    ),
    Group(
        "training",
        "Training",
        "Train W or (K, Q), for one seed or many, with an optimizer of this package, of optax or of your own.",
        ("jaxattn.descent", "jaxattn.initial", "jaxattn.parallel"),
    ),
    Group(
        "which-svm",
        "Which SVM",
        "Compare the margins of trained weights with the certified optimum of each norm, and read the verdict.",
        ("jaxattn.bias",),
    ),
    Group(
        "solvers",
        "Solvers",
        "Pose a max-margin problem, solve it in the norm you choose, and read what the certificate proves.",
        ("jaxattn.svm", "jaxattn.norms"),
    ),
    Group(
        "models",
        "Models",
        "Train and rank several heads, positions, normalized tokens, a value vector, or a model of your own.",
        ("jaxattn.models",),
    ),
    Group("records", "Records", "Read what a run has written, and load or save whole datasets.", ("jaxattn.records",)),
    Group(
        "regularization",
        "Regularization paths",
        "Minimize the risk on balls of growing radius, of W or of (K, Q).",
        ("jaxattn.regularization",),
    ),
    Group(
        "language",
        "Language",
        "Train attention on a text and pose the max-margin problems of its prefixes.",
        ("jaxattn.language",),
    ),
    Group(
        "plotting",
        "Plotting and statistics",
        "Draw runs and rankings, and compute means over seeds with their intervals.",
        ("jaxattn.plots", "jaxattn.statistics"),
    ),
)


def public_modules() -> dict[str, ModuleType]:
    """Return every public module of the library by name: those whose docstring does not begin with `Internal: `."""
    package = importlib.import_module("jaxattn")
    names = [module.name for module in pkgutil.walk_packages(package.__path__, "jaxattn.")]
    names = [name for name in names if not name.startswith(NOT_A_LIBRARY)]
    modules = {name: importlib.import_module(name) for name in names}
    return {name: module for name, module in modules.items() if not (module.__doc__ or "").startswith("Internal: ")}


def homes(modules: dict[str, ModuleType]) -> dict[str, str]:
    """Return where each public name is described, by every name under which it is offered.

    So `jaxattn.descent.train` is the home of `jaxattn.descent.training.train`, and `jaxattn.norms.frobenius` that of
    `jaxattn.svm.frobenius`.
    """
    offers: dict[tuple[str, int], list[str]] = {}
    for name, module in modules.items():
        for own in getattr(module, "__all__", ()):
            if not inspect.ismodule(getattr(module, own)):
                offers.setdefault((own, id(getattr(module, own))), []).append(name)
    known = {}
    for (own, _), names in offers.items():
        defined = str(getattr(getattr(modules[names[0]], own), "__module__", ""))
        above = [name for name in names if f"{defined}.".startswith(f"{name}.")] or names
        home = min(above, key=lambda name: (name.count("."), name))
        known |= {f"{name}.{own}": f"{home}.{own}" for name in names}
    return known | _shortcuts(known)


def _shortcuts(known: dict[str, str]) -> dict[str, str]:
    """Return the names of modules that the package offers elsewhere than where they are: `jaxattn.batch.over_seeds`."""
    package = importlib.import_module("jaxattn")
    modules = {own: getattr(package, own) for own in package.__all__}
    return {
        f"jaxattn.{own}.{name}": known[f"{module.__name__}.{name}"]
        for own, module in modules.items()
        if inspect.ismodule(module) and module.__name__ != f"jaxattn.{own}"
        for name in module.__all__
    }


def entry(full: str, modules: dict[str, ModuleType]) -> str:
    """Return the directive that describes one public name: a function, a class, or a constant or type alias."""
    module, _, own = full.rpartition(".")
    value = getattr(modules[module], own)
    if inspect.isclass(value):
        return f".. autoclass:: {full}\n   :members:\n"
    if callable(value) and hasattr(value, "__name__") and inspect.getdoc(value) and not hasattr(value, "__origin__"):
        return f".. autofunction:: {full}\n"
    above, written = definition(modules[module], own)
    shown = f"   :value: {written}\n" if written else ""
    return f".. py:data:: {own}\n   :module: {module}\n{shown}\n   {escaped([above])[0]}\n"


def definition(module: ModuleType, own: str) -> tuple[str, str]:
    """Return the comment above the assignment of a constant or type alias, and what is assigned if that is one line."""
    root = Path(inspect.getfile(module))
    files = sorted(root.parent.rglob("*.py")) if root.name == "__init__.py" else [root]
    for file in files:
        above: list[str] = []
        for line in file.read_text().splitlines():
            if assigned := re.match(rf"{re.escape(own)}\s*(?::[^=]+)?=\s*(.*)$", line):
                written = assigned[1] if assigned[1].count("(") == assigned[1].count(")") else ""
                return " ".join(above), written
            above = [*above, line[1:].strip()] if line.startswith("#") else []
    return "", ""


def page(group: Group, modules: dict[str, ModuleType], described: list[str]) -> str:
    """Return the text of one page: each module of the group with its names, submodules' own names last."""
    lines = [group.title, "=" * len(group.title), "", group.about, ""]
    for name in [module for root in group.modules for module in modules if f"{module}.".startswith(f"{root}.")]:
        own = sorted(full for full in described if full.rpartition(".")[0] == name)
        if own or name in group.modules:
            title = f"``{name}``"
            lines += [title, "-" * len(title), "", f".. automodule:: {name}", ""]
            lines += [f"{entry(full, modules)}" for full in own]
    return "\n".join(lines)


def index() -> str:
    """Return the text of the page that lists the groups."""
    lines = ["API", "===", "", "Every public name, grouped by what it is for; each function has an example.", ""]
    lines += [".. toctree::", "   :maxdepth: 1", "", *(f"   {group.page}" for group in GROUPS), ""]
    for group in GROUPS:
        lines += [f":doc:`{group.page}`", f"   {group.about}", ""]
    return "\n".join(lines)


def pages() -> tuple[dict[str, str], list[str]]:
    """Return the text of every page by its file name, and the public modules that belong to no group."""
    modules = public_modules()
    described = sorted(set(homes(modules).values()))
    roots = tuple(root for group in GROUPS for root in group.modules)
    lost = [name for name in modules if not any(f"{name}.".startswith(f"{root}.") for root in roots)]
    texts = {f"{group.page}.rst": page(group, modules, described) for group in GROUPS}
    return texts | {"index.rst": index()}, lost


def resolve(text: str, known: dict[str, str], module: str = "") -> str | None:
    """Return the full name that a text such as `svm.solve` or `solve()` in the docstring of a module means, or None."""
    name = text.removesuffix("()")
    if not re.fullmatch(r"[A-Za-z_][\w.]*", name):
        return None
    above = [module.rsplit(".", k)[0] for k in range(module.count(".") + 1)] if module else []
    tries = [name, f"jaxattn.{name}", *(f"{parent}.{name}" for parent in above), f"jaxattn.problem.{name}"]
    return next((known[full] for full in tries if full in known), None)


def escaped(lines: list[str]) -> list[str]:
    """Return a docstring's lines with what reStructuredText would read as markup made plain: `|`, `*`, a final `_`.

    What stands between backticks, in an example or in an indented block after `::` is left as it is.
    """
    out, block = [], -1
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if block >= 0 and line.strip() and indent <= block:
            block = -1
        if block < 0 and not line.lstrip().startswith((">>>", "...")):
            parts = re.split(r"(``.*?``|`[^`]*`)", line)
            parts[::2] = [re.sub(r"(\||\*|(?<=\w)_(?!\w))", r"\\\1", part) for part in parts[::2]]
            out.append("".join(parts))
        else:
            out.append(line)
        if block < 0 and line.rstrip().endswith("::"):
            block = indent
    return out


def shortened(text: str) -> str:
    """Return the text of a type as one writes it: without the modules of arrays and shapes."""
    text = re.sub(r"~(?=\w)", "", text)
    return re.sub(r"\b(jaxtyping|jaxlib\._jax|jax|numpy|typing|collections\.abc)\.(?=[A-Za-z])", "", text)


def write(folder: Path, texts: dict[str, str]) -> None:
    """Write pages; one that has not changed keeps its time, and need not be read again."""
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        if not (folder / name).exists() or (folder / name).read_text() != text:
            (folder / name).write_text(text)


def _write(app: Any) -> None:
    from sphinx.util import logging

    texts, lost = pages()
    write(Path(app.srcdir) / "api", texts)
    if lost:
        said = "public modules that belong to no group of docs/_ext/api_pages.py: %s"
        logging.getLogger(__name__).warning(said, lost)
    app.api_homes = homes(public_modules())


def _check(app: Any, env: Any) -> None:
    from sphinx.util import logging

    if missing := sorted(set(app.api_homes.values()) - set(env.get_domain("py").objects)):
        logging.getLogger(__name__).warning("public names without a page: %s", ", ".join(missing))


def _process(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    lines[:] = escaped(lines)


def _types(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    # A shape such as "*batch n" is no markup.
    lines[:] = [re.sub(r"^(:vartype [^:]+: )(.*)$", lambda m: f"{m[1]}``{shortened(m[2])}``", line) for line in lines]


def _signature(app: Any, what: str, name: str, value: Any, options: Any, given: str, returned: str) -> tuple[Any, Any]:
    return given and shortened(given), returned and shortened(returned)


def _skip(app: Any, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    # The fields of a NamedTuple are told under its Attributes.
    return True if (getattr(value, "__doc__", "") or "").startswith("Alias for field number") else None


def _internal(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """Show a type that is not public, and so has no page, as plain text."""
    return contnode if node.get("reftype") == "class" and node["reftarget"] not in app.api_homes else None


def _role(strict: bool) -> Any:
    from docutils import nodes
    from sphinx.addnodes import pending_xref
    from sphinx.util.docutils import SphinxRole

    class Api(SphinxRole):
        """Code that links to the public name it is, if it is one; a strict role warns where it is none."""

        def run(self) -> tuple[list[Any], list[Any]]:
            text = self.text
            full = resolve(text, self.env.app.api_homes, self.env.ref_context.get("py:module") or "")
            literal = nodes.literal(text, text, classes=["py"])
            if full is None:
                if strict:
                    return [literal], [self.inliner.reporter.warning(f"{text}: no public name", line=self.lineno)]
                return [literal], []
            given = {"refdomain": "py", "reftype": "obj", "reftarget": full, "refexplicit": True, "refwarn": True}
            return [pending_xref("", literal, refdoc=self.env.docname, **given)], []

    return Api()


def setup(app: Any) -> dict[str, bool]:
    """Write the pages when the build starts, and check at its end that every public name is described."""
    from sphinx.domains.python import PyObject

    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"
    app.connect("builder-inited", _write)
    app.connect("env-updated", _check)
    # Before napoleon reads the sections.
    app.connect("autodoc-process-docstring", _process, priority=100)
    app.connect("autodoc-process-docstring", _types, priority=900)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-skip-member", _skip)
    app.connect("missing-reference", _internal)
    app.add_role("api", _role(strict=True))
    app.add_role("code-or-name", _role(strict=False))
    return {"parallel_read_safe": True}
