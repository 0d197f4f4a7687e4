"""A result is made again if a definition that it depends on changes. Comments and docstrings do not count."""

import ast
import dis
import functools
import importlib
import inspect
import itertools
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, ModuleType

import pytest

import jaxattn
from jaxattn.study import fingerprints, making, runs
from jaxattn.study.configuration import composition
from jaxattn.study.mistakes import UsageError

ROOT = Path(jaxattn.__file__).parents[1]
TRAINING = ["seeds=2", "steps=20"]
# Some results, each by what it is made by: records of several kinds.
RESULTS = {
    "training": TRAINING,
    "texts": ["experiment=lm-cosine"],
    "drawing": ["experiment=svm-rank"],
    "directions": ["experiment=local-directions"],
}


@functools.cache
def code(result: str) -> list[str]:
    return runs.code(composition.compose(RESULTS[result]))


def prints(root: Path = ROOT) -> dict[str, str]:
    return {result: fingerprints.of(code(result), root) for result in RESULTS}


# A package with an experiment in one file.
FILES = {
    "__init__.py": "",
    "rate.py": """
        '''The rate.'''
        import dataclasses
        import numpy as np
        from jaxattn import drawing, helpers
        from jaxattn.helpers import scaled
        from jaxattn.registry import registered
        from jaxattn.study.claims import claim
        LEAST = 8
        THRESHOLD: float = 0.5
        helpers.TABLE["rate"] = LEAST
        def measure(record, drawing=None):
            '''Return what is measured.'''
            if record.seeds < 0:
                raise ValueError(f"{record}: expected seeds, found {drawing.words}")
            return helpers.mean(record) + scaled(record) + drawing.width + np.sum(_offset(record))  # A comment.
        def _offset(record):
            from jaxattn.deeper import OFFSET
            return OFFSET
        @claim("rate:W", THRESHOLD)
        def _rule(record):
            return measure(record) < THRESHOLD
        def figure(record):
            return drawing.axes(record), LIMITS
        @dataclasses.dataclass
        class Panel:
            left: float = THRESHOLD
        LIMITS = (0, 1)
        @registered
        def solver(x):
            return x
        """,
    "helpers.py": """
        from jaxattn.tables import *
        TABLE = {}
        FACTOR = 2
        def mean(x):
            return x * FACTOR
        def scaled(x):
            return x * UNIT
        def unused(x):
            return x
        """,
    "tables.py": "UNIT = 1\nOTHER = 2\n",
    "deeper.py": "OFFSET = 1\nANOTHER = 2\n",
    "drawing.py": "def axes(x):\n    return x\n",
    "registry.py": "def registered(f):\n    return f\n",
    "study/__init__.py": "",
    "study/claims.py": "def claim(id, needs):\n    return lambda rule: (id, rule)\n",
}
# A replacement in a file, and whether it changes the result of `measure`.
EDITS = {
    "its own code": ("rate.py", "helpers.mean(record) +", "helpers.mean(record) -", True),
    "a private function": ("rate.py", "return OFFSET", "return -OFFSET", True),
    "the condition of an error": ("rate.py", "record.seeds < 0", "record.seeds < 1", True),
    "the message of an error": ("rate.py", "expected seeds, found", "expected a record, found", False),
    "a comment": ("rate.py", "# A comment.", "# Another one.", False),
    "a docstring": ("rate.py", "Return what is measured.", "Measure.", False),
    "the module's docstring": ("rate.py", "The rate.", "Rates.", False),
    "a blank line": ("rate.py", "def figure", "\n\ndef figure", False),
    "a docstring that is read": ("rate.py", "LEAST = 8", "LEAST = __doc__", True),
    "the threshold of a claim": ("rate.py", "THRESHOLD: float = 0.5", "THRESHOLD: float = 0.6", False),
    "a claim": ("rate.py", "measure(record) <", "measure(record) <=", False),
    "the id of a claim": ("rate.py", '"rate:W"', '"rate:KQ"', False),
    "a figure": ("rate.py", "return drawing.axes(record), LIMITS", "return LIMITS", False),
    "a class of the figure": ("rate.py", "class Panel:", "class Panel(list):", False),
    "an import of the figure": ("rate.py", "import drawing, helpers", "import helpers", False),
    "what the figure imports": ("drawing.py", "return x", "return -x", False),
    "another package by the same name": ("rate.py", "import numpy as np", "import jax.numpy as np", True),
    "another function by the same name": ("rate.py", "import scaled", "import unused as scaled", True),
    "a side effect": ("rate.py", 'TABLE["rate"]', 'TABLE["slope"]', True),
    "what a side effect uses": ("rate.py", "LEAST = 8", "LEAST = 9", True),
    "a condition of the module": ("rate.py", "LIMITS = (0, 1)", "if LEAST:\n    LIMITS = 1", True),
    "what is registered": ("rate.py", "def solver(x):\n    return x", "def solver(x):\n    return 2", True),
    "the registry": ("registry.py", "return f", "return None", True),
    "an imported function": ("helpers.py", "x * FACTOR", "x / FACTOR", True),
    "what it uses": ("helpers.py", "FACTOR = 2", "FACTOR = 3", True),
    "a second value of a name": ("helpers.py", "FACTOR = 2", "FACTOR = 2\nFACTOR += 1", True),
    "an unused function beside it": ("helpers.py", "unused(x):\n    return x", "unused(x):\n    return 2", False),
    "reflection": ("helpers.py", "return x * FACTOR", "return globals()['unused'](x)", True),
    "a name of import *": ("tables.py", "UNIT = 1", "UNIT = 2", True),
    "any name of import *": ("tables.py", "OTHER = 2", "OTHER = 3", True),
    "an import inside a function": ("deeper.py", "OFFSET = 1", "OFFSET = 2", True),
    "a name beside it": ("deeper.py", "ANOTHER = 2", "ANOTHER = 3", False),
    "an import for its effects": ("deeper.py", "ANOTHER = 2", "import jaxattn.drawing", True),
    "an unused import": ("deeper.py", "ANOTHER = 2", "from jaxattn import drawing", True),
}


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    root = tmp_path_factory.mktemp("experiment")
    for name, text in FILES.items():
        file = root / "jaxattn" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    return root


@pytest.mark.parametrize("edit", EDITS)
def test_a_result_depends_on_the_definitions_that_it_reaches_by_name(experiment, edit):
    name, old, new, changes = EDITS[edit]
    before, file = fingerprints.of(["jaxattn.rate.measure"], experiment), experiment / "jaxattn" / name
    text = file.read_text()
    assert text.count(old) == 1, edit
    try:
        file.write_text(text.replace(old, new))
        fingerprints._parse.cache_clear()  # Within the resolution of modification times.
        assert (fingerprints.of(["jaxattn.rate.measure"], experiment) != before) is changes
    finally:
        file.write_text(text)
        fingerprints._parse.cache_clear()
    assert fingerprints.of(["jaxattn.rate.measure"], experiment) == before


def test_a_module_depends_on_all_that_it_contains(experiment):
    whole = fingerprints.definitions(["jaxattn.rate"], experiment)
    assert whole > fingerprints.definitions(["jaxattn.rate.measure"], experiment)
    assert {("jaxattn.rate", "figure"), ("jaxattn.drawing", "axes")} <= whole


def test_a_package_leads_to_what_its_name_is_defined_in(tmp_path):
    init = tmp_path / "jaxattn" / "losses" / "__init__.py"
    init.parent.mkdir(parents=True)
    (tmp_path / "jaxattn/__init__.py").touch()
    for module in ("one", "f"):
        (init.parent / f"{module}.py").write_text("def f():\n    pass\n")
    (init.parent / "user.py").write_text("from jaxattn import losses\ndef g():\n    return losses.f()\n")

    def modules(path: str) -> set[str]:
        return {module for module, _ in fingerprints.definitions([path], tmp_path)}

    init.write_text("from jaxattn.losses.one import f\n\nG = 3\n")
    # The function hides the module of the same name.
    assert modules("jaxattn.losses.f") == {"jaxattn.losses.one"}
    assert modules("jaxattn.losses.user.g") == {"jaxattn.losses.one", "jaxattn.losses.user"}
    assert modules("jaxattn.losses.G") == {"jaxattn.losses"}
    assert modules("jaxattn.losses") == {"jaxattn.losses", "jaxattn.losses.one"}
    init.write_text("from .f import f\nfrom . import user\n")
    assert modules("jaxattn.losses.f") == {"jaxattn.losses.f"}
    assert modules("jaxattn.losses.user.g") == {"jaxattn.losses.f", "jaxattn.losses.user"}


def test_the_hash_is_that_of_the_code_wherever_it_stands_and_a_figure_depends_on_its_style(tmp_path):
    shutil.copytree(ROOT / "jaxattn", tmp_path / "jaxattn", ignore=shutil.ignore_patterns("__pycache__"))
    before = prints()
    assert prints(tmp_path) == before
    assert len(set(before.values())) == len(RESULTS)
    with (tmp_path / "jaxattn/study/settings/recording.py").open("a") as file:
        file.write("print()\n")
    assert not set(prints(tmp_path).values()) & set(before.values())
    before = fingerprints.of(["jaxattn.study.style.page"], tmp_path)
    style = next((tmp_path / "jaxattn/study/style").glob("*.mplstyle"))
    style.write_text(style.read_text() + "font.size: 11\n")
    assert fingerprints.of(["jaxattn.study.style.page"], tmp_path) != before


def codes(value: object) -> Iterator[CodeType]:
    """The compiled code of a function, or of the methods of a class, with that of the functions inside."""
    waiting = [value, *vars(value).values()] if inspect.isclass(value) else [value]
    waiting = [getattr(inspect.unwrap(one), "__code__", None) for one in waiting if callable(one)]
    while waiting:
        if (one := waiting.pop()) is not None:
            yield one
            waiting += [constant for constant in one.co_consts if inspect.iscode(constant)]


def read(code: CodeType, names: dict[str, object]) -> Iterator[object]:
    """The globals that some code reads, and of modules their attributes."""
    for load, following in itertools.pairwise(dis.get_instructions(code)):
        if load.opname == "LOAD_GLOBAL" and load.argval in names:
            value = names[load.argval]
            if isinstance(value, ModuleType) and following.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                value = getattr(value, following.argval, None)
            yield value


@functools.cache
def raised(module: str) -> set[str]:
    """The names that a module reads in `raise`, which do not count."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    errors = (node for node in ast.walk(tree) if isinstance(node, ast.Raise))
    return {name.id for error in errors for name in ast.walk(error) if isinstance(name, ast.Name)}


@pytest.mark.parametrize("result", RESULTS)
def test_a_result_depends_on_every_function_and_class_that_its_compiled_code_reads(result):
    """By compiled code and loaded objects, where the fingerprint reads the text."""
    found, checked = fingerprints.definitions(code(result)), 0
    for module, name in found:
        names = vars(importlib.import_module(module))
        for one in codes(names.get(name)):
            for value in read(one, names):
                where = str(getattr(value, "__module__", None)), getattr(value, "__qualname__", "").partition(".")[0]
                if where[0].startswith("jaxattn.") and where[1] and where[1] not in raised(module):
                    assert where in found, (module, name)
                    checked += 1
    assert checked > 20


@pytest.fixture
def of_user(tmp_path, monkeypatch):
    (tmp_path / "my_heads.py").write_text(
        "def mine(x, v):\n    from my_helper import scaled\n    return scaled(v @ x)\n"
    )
    (tmp_path / "my_helper.py").write_text("import my_deeper\n\ndef scaled(y):\n    return y * my_deeper.FACTOR\n")
    (tmp_path / "my_deeper.py").write_text("FACTOR = 2.0\n")
    (tmp_path / "unrelated.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("my_heads", "my_helper", "my_deeper"):
        sys.modules.pop(name, None)


def with_path(folder):
    """A run whose head names a file."""
    (folder / "my_heads.py").write_text("def mine(x, v, path):\n    return v @ x\n")
    (folder / "f.npz").write_text("1")
    return composition.compose([*TRAINING, "head._target_=my_heads.mine", f"head.path={folder / 'f.npz'}"])


def test_what_a_head_of_ones_own_imports_counts_too(of_user):
    config = composition.compose([*TRAINING, "head._target_=my_heads.mine"])
    before = runs.folder(config)
    for name, changes in (("my_heads", True), ("my_helper", True), ("my_deeper", True), ("unrelated", False)):
        file = of_user / f"{name}.py"
        written = file.read_text()
        file.write_text(written + "print()\n")
        assert (runs.folder(config) != before) is changes, name
        file.write_text(written)
    fingerprints._parse.cache_clear()
    assert runs.folder(config) == before


def test_a_package_may_import_from_itself_what_no_file_of_its_own_defines(of_user):
    package = of_user / "my_package"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from my_package import compiled\nfrom my_package.other import turned\n\n"
        "def mine(x):\n    return compiled.f(turned(x))\n"
    )
    (package / "other.py").write_text("from my_package import turned\n")
    before = fingerprints.of(["my_package.mine"])
    (package / "other.py").write_text("from my_package import turned\nprint()\n")
    fingerprints._parse.cache_clear()
    assert fingerprints.of(["my_package.mine"]) != before


def test_what_a_named_file_or_folder_contains_counts_too(of_user, monkeypatch):
    monkeypatch.chdir(of_user)
    (of_user / "store").mkdir()
    for name in ("f.npz", "store/c0", "beside.npz"):
        (of_user / name).write_text("1")
    config = {"data": {"_target_": "my_heads.mine", "paths": ["f.npz", str(of_user / "store")], "n": 3}}
    before = fingerprints.contents(config)
    for name, changes in (("f.npz", True), ("store/c0", True), ("beside.npz", False)):
        (of_user / name).write_text("2")
        assert (fingerprints.contents(config) != before) is changes, name
        (of_user / name).write_text("1")
    assert fingerprints.contents(config) == before
    assert fingerprints.contents({"data": "g.npz", "_target_": "f.npz"}) == ""


def test_a_run_depends_on_the_files_that_it_names(of_user):
    config = with_path(of_user)
    before = runs.folder(config)
    (of_user / "f.npz").write_text("2")
    assert runs.folder(config) != before


def test_the_files_of_a_run_are_read_once(of_user, monkeypatch):
    config = with_path(of_user)
    config.runs = str(of_user / "runs")
    digests, written = [], []
    digest = fingerprints.digest
    monkeypatch.setattr(fingerprints, "digest", lambda files: digests.append(files) or digest(files))
    monkeypatch.setattr(runs, "setting_of", lambda config: None)
    monkeypatch.setattr(runs.recording, "run", lambda setting, path, attributes, **more: written.append(attributes))
    record = runs.run(config)
    assert len(digests) == 1
    assert record == runs.record_path(config)
    assert written[0]["fingerprint"] == runs.fingerprint(config)


def test_a_named_file_that_cannot_be_read_is_said(tmp_path, monkeypatch):
    (tmp_path / "f.npz").write_text("1")

    def refused(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(UsageError, match=r"f\.npz: expected a file that can be read, found: Permission denied"):
        fingerprints.contents({"path": str(tmp_path / "f.npz")})


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere.head", r"nowhere\.head: expected a module nowhere on the PYTHONPATH, found none"),
        ("jaxattn.nowhere.head", r"jaxattn\.nowhere: expected a name of the package jaxattn, found none"),
    ],
)
def test_a_target_that_is_nowhere_is_named(path, message):
    with pytest.raises(ValueError, match=message):
        fingerprints.of([path])


def test_an_installed_target_is_known_by_its_version_alone():
    assert fingerprints.definitions(["optax.adam", "json.dumps"]) == set()
    assert list(fingerprints.targets({"a": [{"_target_": "x.y", "b": {"_target_": "z"}}]})) == ["x.y", "z"]


def test_experiments_are_made_from_different_code():
    sources = [making.source(making.configurations(name, ["size=small"])) for name in ("rate", "svm-rank")]
    assert all(re.fullmatch(r"[0-9a-f]{12}", source) for source in sources)
    assert len(set(sources)) == 2


def test_while_files_stand_still_each_hash_is_found_once(tmp_path):
    package = tmp_path / "jaxattn"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("ONE = 1\n")
    find: Callable[[], str] = functools.partial(fingerprints.of, ["jaxattn.one"], tmp_path)
    first = find()
    with fingerprints.still():
        assert find() == first
        (package / "one.py").write_text("ONE = 22\n")
        fingerprints._parse.cache_clear()
        with fingerprints.still():
            assert find() == first
    assert find() != first
