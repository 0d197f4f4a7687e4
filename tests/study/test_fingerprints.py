"""A result is made again if the code that it depends on changes. Comments and docstrings do not count."""

import functools
import inspect
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType

import jax
import numpy as np
import pytest

import jaxattn
from jaxattn.study import fingerprints, making, runs
from jaxattn.study.configuration import composition
from jaxattn.study.settings import recording

ROOT = Path(jaxattn.__file__).parents[1]
TRAINING = ["seeds=2", "steps=20"]
# Some results, each by what it is made by: records of several kinds, what is measured of them, and what is judged.
RESULTS = {
    "training": lambda: runs.code(composition.compose(TRAINING)),
    "texts": lambda: runs.code(composition.compose(["experiment=lm-cosine"])),
    "drawing": lambda: runs.code(composition.compose(["experiment=svm-rank"])),
    "directions": lambda: runs.code(composition.compose(["experiment=local-directions"])),
    "rate measured": lambda: ["jaxattn.experiments.local.rate.measure.measure"],
    "rate judged": lambda: ["jaxattn.experiments.local.rate.claims", "jaxattn.experiments.local.rate.figure"],
}
# Modules, each with the results that depend on it.
CHANGED = {
    "descent/engines.py": {"training", "texts", "directions"},
    "descent/smoothness.py": set(),
    "language/slopes.py": {"texts"},
    "language/law.py": {"texts"},
    "losses.py": {"training", "texts", "directions"},
    "svm/solvers/active_set.py": {"directions", "rate measured"},
    "svm/posing.py": {"directions", "rate measured"},
    "study/settings/texts.py": {"texts"},
    "study/settings/recording.py": {"training", "texts", "drawing", "directions"},
    "statistics.py": {"rate judged"},
    "study/style/jaxattn.mplstyle": {"rate judged"},
    "experiments/local/rate/figure.py": {"rate judged"},
    "experiments/local/limits.py": {"rate measured"},
    "experiments/local/kq_penalty/claims.py": set(),
    "study/report.py": set(),
    "svm/__init__.py": set(),
}


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    place = tmp_path_factory.mktemp("copied")
    shutil.copytree(ROOT / "jaxattn", place / "jaxattn", ignore=shutil.ignore_patterns("__pycache__"))
    return place


@functools.cache
def code(result: str) -> list[str]:
    return list(RESULTS[result]())


def prints(place: Path) -> dict[str, str]:
    return {result: fingerprints.of(code(result), place) for result in RESULTS}


@pytest.mark.slow
@pytest.mark.parametrize("module", CHANGED)
def test_changed_code_makes_again_what_depends_on_it_and_nothing_else(copied, module):
    before, file = prints(copied), copied / "jaxattn" / module
    written = file.read_bytes()
    file.write_bytes(written + (b"ANOTHER = 0\n" if file.suffix == ".py" else b"font.size: 11\n"))
    try:
        after = prints(copied)
    finally:
        file.write_bytes(written)
    assert {result for result in RESULTS if before[result] != after[result]} == CHANGED[module]


def test_reworded_comments_and_docstrings_leave_every_result_current(copied):
    changed = "study/settings/recording.py"
    before, file = prints(copied), copied / "jaxattn" / changed
    written = file.read_text()
    _, _, code_below = written.partition('"""')[2].partition('"""')
    reworded = f'# A comment.\n"""Other words.\n\n    In several lines."""{code_below}\n\n# The last one.\n'
    try:
        file.write_text(reworded)
        assert prints(copied) == before
        file.write_text(f'{reworded}STATED = """A string that is no docstring."""\n')
        after = prints(copied)
    finally:
        file.write_text(written)
    assert {result for result in RESULTS if before[result] != after[result]} == CHANGED[changed]


def hashes_of(place: Path, *texts: str) -> int:
    """Return how many different hashes a module has with these texts."""
    found = set()
    for k, text in enumerate(texts):
        (place / str(k) / "jaxattn").mkdir(parents=True)
        (place / str(k) / "jaxattn/__init__.py").touch()
        (place / str(k) / "jaxattn/told.py").write_text(text)
        found.add(fingerprints.of(["jaxattn.told"], place / str(k)))
    return len(found)


def test_a_file_that_reads_docstrings_is_hashed_with_them(tmp_path):
    assert hashes_of(tmp_path, *(f'"""{words}"""\nprint(__doc__)\n' for words in ("One.", "Two."))) == 2


def test_the_message_of_an_error_does_not_count_but_when_it_is_raised_does(tmp_path):
    checked = (
        "def f(x):\n    if x < {}:\n        raise ValueError(\n            f'{}: {{x}}'\n        )\n    return x\n"
    )
    assert hashes_of(tmp_path / "message", checked.format(0, "x"), checked.format(0, "expected x >= 0")) == 1
    assert hashes_of(tmp_path / "condition", checked.format(0, "x"), checked.format(1, "x")) == 2


def test_the_hash_is_that_of_the_code_wherever_it_stands(copied):
    assert prints(copied) == prints(ROOT)


def modules_of(value: object, name: str, source: str) -> set[str]:
    """The modules of the package that a global of a module leads to."""
    if isinstance(value, ModuleType):
        if not hasattr(value, "__path__"):
            return {value.__name__}
        used = set(re.findall(rf"\b{name}\.(\w+)", source))
        return set().union(*(modules_of(getattr(value, one, None), one, source) for one in used), set())
    return {str(getattr(value, "__module__", ""))}


@pytest.mark.parametrize("result", RESULTS)
def test_the_hashed_files_contain_what_every_name_in_them_leads_to(result):
    """By the objects themselves, where the fingerprint reads the text of imports."""
    files = fingerprints.sources(code(result))
    for module in files:
        loaded = sys.modules.get(module) or __import__(module, fromlist=["_"])
        source = inspect.getsource(loaded)
        for name, value in vars(loaded).items():
            needed = {one for one in modules_of(value, name, source) if one.startswith("jaxattn.")}
            packages = {one for one in needed if hasattr(sys.modules.get(one), "__path__")}
            assert needed - packages <= set(files), (module, name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [TRAINING, [*TRAINING, "weights=factored", "optimizer=exact_gd"], ["experiment=svm-rank", "seeds=2", "data.d=[3]"]],
)
def test_the_hashed_files_contain_every_file_that_runs(overrides, tmp_path):
    config = composition.compose(overrides)
    ran = set()

    def note(frame, event, argument):
        ran.add(frame.f_code.co_filename)

    jax.clear_caches()
    setting = composition.setting_of(config)
    sys.setprofile(note)
    try:
        recording.run(setting, tmp_path / "record.zarr", {})
    finally:
        sys.setprofile(None)
    files = {str(path) for path in fingerprints.sources(runs.code(config)).values()}
    own = {name for name in ran if name.startswith(str(ROOT / "jaxattn"))}
    assert len(own) > 5
    assert own <= files


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


def test_what_a_head_of_ones_own_imports_counts_too(of_user):
    config = composition.compose([*TRAINING, "head._target_=my_heads.mine"])
    before = runs.folder(config)
    for name, changes in (("my_heads", True), ("my_helper", True), ("my_deeper", True), ("unrelated", False)):
        file = of_user / f"{name}.py"
        written = file.read_text()
        file.write_text(written + "CHANGED = True\n")
        assert (runs.folder(config) != before) is changes, name
        file.write_text(written)
    assert runs.folder(config) == before


def test_a_target_that_is_nowhere_is_named():
    with pytest.raises(ValueError, match=r"nowhere\.head: expected a module nowhere on the PYTHONPATH, found none"):
        fingerprints.of(["nowhere.head"])
    with pytest.raises(ValueError, match=r"jaxattn\.nowhere: expected a name of the package jaxattn, found none"):
        fingerprints.of(["jaxattn.nowhere.head"])


def test_an_installed_target_is_known_by_its_version_alone():
    assert fingerprints.sources(["optax.adam"]) == {}
    assert list(fingerprints.targets({"a": [{"_target_": "x.y", "b": {"_target_": "z"}}]})) == ["x.y", "z"]


def test_a_package_leads_to_what_its_name_is_defined_in(copied):
    init = copied / "jaxattn" / "losses_like" / "__init__.py"
    init.parent.mkdir()
    (init.parent / "one.py").write_text("def f():\n    pass\n")
    (init.parent / "two.py").write_text("def f():\n    pass\n")
    init.write_text("from jaxattn.losses_like.one import f\n")
    assert set(fingerprints.sources(["jaxattn.losses_like.f"], copied)) == {"jaxattn.losses_like.one"}
    init.write_text("from jaxattn.losses_like.two import f\n\nG = 3\n")
    assert set(fingerprints.sources(["jaxattn.losses_like.f"], copied)) == {"jaxattn.losses_like.two"}
    assert set(fingerprints.sources(["jaxattn.losses_like.G"], copied)) >= {"jaxattn.losses_like"}


def test_every_experiment_is_made_from_its_own_rooms():
    for name in ("rate", "svm-rank"):
        configs = making.configurations(name, ["size=small"])
        assert re.fullmatch(r"[0-9a-f]{12}", making.source(configs))
    assert np.unique([making.source(making.configurations(n, [])) for n in ("rate", "svm-rank")]).size == 2


def test_while_files_stand_still_each_hash_is_found_once(tmp_path):
    package = tmp_path / "jaxattn"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("ONE = 1\n")
    first = fingerprints.of(["jaxattn.one"], tmp_path)
    with fingerprints.still():
        assert fingerprints.of(["jaxattn.one"], tmp_path) == first
        (package / "one.py").write_text("ONE = 2\n")
        with fingerprints.still():
            assert fingerprints.of(["jaxattn.one"], tmp_path) == first
    assert fingerprints.of(["jaxattn.one"], tmp_path) != first
