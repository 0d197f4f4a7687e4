"""What importing the package does, and the layers of the package from bottom to top."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "jaxattn"

# Importing the package must not bring these in: a bare accelerator machine has none of them.
HEAVY = [
    "clarabel",
    "cvxpy",
    "hydra",
    "matplotlib",
    "omegaconf",
    "rich",
    "scipy.optimize",
    "xarray",
    "zarr",
]

# From bottom to top. A module belongs to the entry that is the longest beginning of its name. It may import what stands
# in rows below its own and what belongs to its own entry; entries of one row know nothing of each other.
LAYERS = [
    ["checks"],
    ["problem", "heads", "parallel", "data.draws", "language.law", "descent.stepping", "records.layout"],
    ["attention", "lengths", "factorization", "signs", "language.choices", "records"],
    ["models"],
    ["norms", "losses", "tokens", "initial", "language.scores"],
    ["metrics", "data"],
    ["svm.pivoting", "descent.smoothness", "descent.curvature", "descent.optimizers"],
    ["descent.step_schedules", "descent.moment_rescaling"],
    ["svm.constraints", "descent.gram_engine"],
    ["descent.factored_engine"],
    # An engine is given the gradient, which knows no engine.
    [
        "svm.least_squares",
        "svm.constraint_builders",
        "svm.rounding",
        "svm.solution",
        "svm.faces",
        "descent.gradients",
        "descent.engines",
    ],
    ["svm.packing"],
    ["svm.stationarity", "svm.uniqueness", "descent"],
    # The certificate knows no solver.
    ["svm.certificate"],
    ["svm.solvers"],
    ["svm"],
    ["regularization", "language.model", "language.slopes", "language.smoothness", "language.tensor"],
    ["language.training", "language.separation"],
    ["language"],
    ["statistics"],
    # The rule of a verdict knows no run; what draws a ranking is given one.
    ["bias.verdict"],
    ["study.tuning", "study.fingerprints", "study.settings.schedule"],
    ["study.settings.recording", "study.claims"],
    ["study.settings", "study.style"],
    ["study.measuring", "plots"],
    ["bias"],
    ["study.measuring.ranked"],
    [""],
    ["experiments"],
    ["study"],
]

# Beside the layers: what a module may not know although it stands below.
UNKNOWN = {
    # Descent knows no max-margin problem, and that no descent.
    "descent": ["svm"],
    "svm": ["descent"],
    # An engine is given the gradient in the logits.
    "descent.engines": ["losses", "heads"],
    # Paths are of risks, whatever descends on them, and whatever solves the max-margin problem.
    "regularization": ["svm.solve", "svm.solution", "svm.certificate", "svm.solvers", "descent.training"],
    # The path knows no norm.
    "svm.solvers.norm_path": [
        "norms",
        "svm.solvers.cones",
        "svm.solvers.entries",
        "svm.solvers.powers",
        "svm.solvers.semidefinite",
    ],
    # What a language's law draws knows no law of problems.
    "language": ["data", "regularization"],
}

# The rooms of an experiment, in the order in which data passes them; a room may use those before it.
ROOMS = ["measure", "examples", "claims", "figure", "table", "view"]
# Figures, tables and views read what was measured: they neither train nor solve.
NOT_IN_FIGURES = ["descent", "parallel", "svm", "regularization", "language", "records", "study.settings"]

# Third-party packages, and the only modules that may name them.
ONLY_IN = {
    "cvxpy": ["svm.solvers.oracle"],
    "zarr": ["records"],
    "filelock": ["records.locks"],
    "hydra": ["study"],
    "omegaconf": ["study"],
}
MATPLOTLIB = ["study.style", "plots"]


def below(module: str, prefix: str) -> bool:
    """Whether a module is this one, or stands below it; everything stands below the empty name."""
    return not prefix or module == prefix or module.startswith(prefix + ".")


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(source: str, module: str, is_package: bool) -> set[str]:
    """Every module that a source imports, anywhere in it; `from a import b` is about a.b where that is a module."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            # `import jaxattn` gives access to all of it.
            found |= {"jaxattn.*" if alias.name == "jaxattn" else alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")[: len(module.split(".")) - node.level + is_package]
                base = ".".join([*parents, base]).rstrip(".")
            names = {f"{base}.{alias.name}" for alias in node.names}
            inside = {name for name in names if name in MODULES} if below(base, "jaxattn") else names
            found |= inside | ({base} if len(inside) < len(names) or not below(base, "jaxattn") else set())
    return found


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
IMPORTS = {name: imports(path.read_text(), name, path.name == "__init__.py") for name, path in MODULES.items()}


def row(module: str) -> tuple[int, str]:
    """The row of a module, and the entry that it belongs to."""
    entries = [(len(entry), place, entry) for place, row in enumerate(LAYERS) for entry in row if below(module, entry)]
    _, place, entry = max(entries)
    return place, entry


def rooms(module: str) -> tuple[str, str, str] | None:
    """Topic, experiment and room of a module of `experiments`."""
    parts = module.split(".")
    return (parts[1], parts[2], parts[3]) if parts[0] == "experiments" and len(parts) == 4 else None


def wrong(module: str, name: str) -> str:
    """Why a module may not import another of the package, or nothing if it may."""
    (own, entry), (other, beginning) = row(module), row(name)
    if other > own or (other == own and beginning != entry):
        return f"{name} stands in row {other}, {module} in row {own}"
    if any(below(module, one) and below(name, prefix) for one, unknown in UNKNOWN.items() for prefix in unknown):
        return f"{module} is not to know {name}"
    room, of = rooms(module), rooms(name)
    if room and room[2] in ("figure", "table", "view") and any(below(name, prefix) for prefix in NOT_IN_FIGURES):
        return f"{module} is a {room[2]}"
    if room and of and room[:2] != of[:2]:
        return f"{name} is a room of another experiment"
    if room and of and {room[2], of[2]} <= set(ROOMS) and ROOMS.index(of[2]) > ROOMS.index(room[2]):
        return f"{of[2]} comes after {room[2]}"
    return ""


def violations(imported: dict[str, set[str]]) -> list[str]:
    """Imports within the package that break a rule."""
    return [
        reason
        for module, names in imported.items()
        for name in sorted(names - {"jaxattn.*"})
        if below(name, "jaxattn") and (reason := wrong(short(module), short(name)))
    ]


def short(module: str) -> str:
    """The name of a module within the package; empty for the package itself."""
    return module.removeprefix("jaxattn").removeprefix(".")


def test_the_layers_hold():
    assert violations(IMPORTS) == []


def test_every_entry_of_a_layer_is_of_the_package():
    layered = [entry for row in LAYERS for entry in row if entry]
    unknown = [entry for one, others in UNKNOWN.items() for entry in (one, *others)]
    for entry in layered + unknown:
        assert any(below(module, f"jaxattn.{entry}") for module in MODULES), entry


def test_no_module_imports_the_package_as_a_whole():
    assert [module for module, names in IMPORTS.items() if "jaxattn.*" in names] == ["jaxattn.study.runs"]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("jaxattn.svm.solve", "from jaxattn import descent"),
        ("jaxattn.svm.solve", "def f():\n    import jaxattn.descent"),
        ("jaxattn.descent.training", "from jaxattn import svm"),
        ("jaxattn.descent.engines", "from jaxattn import losses"),
        ("jaxattn.svm.constraint_builders", "from ..descent import train"),
        ("jaxattn.problem", "from jaxattn import metrics"),
        ("jaxattn.norms", "from jaxattn.svm import Status"),
        ("jaxattn.records.store", "from jaxattn.study.style import page"),
        ("jaxattn.descent.stepping", "from jaxattn.parallel import batch"),
        ("jaxattn.language.training", "from jaxattn import svm; from jaxattn.language.separation import soft"),
        ("jaxattn.language.choices", "from jaxattn.language.model import risk"),
        ("jaxattn.svm.certificate", "from jaxattn.svm.solvers.oracle import Cvxpy"),
        ("jaxattn.experiments.local.rate.figure", "from jaxattn.svm import solve"),
        ("jaxattn.experiments.smoothness.tensor_trick.table", "from jaxattn.language import tensor"),
        ("jaxattn.experiments.local.trajectories.view", "from jaxattn.descent import train"),
        ("jaxattn.experiments.local.rate.figure", "from jaxattn.study.settings.training import Training"),
        ("jaxattn.experiments.local.rate.claims", "from jaxattn.experiments.local.rate import figure"),
        ("jaxattn.experiments.local.rate.claims", "from jaxattn.experiments.local.kq_penalty import claims"),
        ("jaxattn.study.measuring.comparison", "from jaxattn.experiments.local import limits"),
        ("jaxattn.experiments.local.limits", "from jaxattn.study import composition"),
    ],
)
def test_a_broken_rule_would_be_seen(module, source):
    assert len(violations({module: imports(source, module, False)})) >= 1


def of_third(package: str) -> set[str]:
    return {module for module, names in IMPORTS.items() if any(below(name, package) for name in names)}


@pytest.mark.parametrize("package", ONLY_IN)
def test_a_heavy_package_is_named_in_its_own_place_alone(package):
    users = of_third(package)
    assert users
    assert [one for one in users if not any(below(one, f"jaxattn.{place}") for place in ONLY_IN[package])] == []


def test_matplotlib_is_named_in_figures_and_their_style_alone():
    users = of_third("matplotlib")
    figures = {one for one in users if one.startswith("jaxattn.experiments.") and one.endswith(".figure")}
    assert len(figures) > 20
    assert [one for one in users - figures if not any(below(one, f"jaxattn.{place}") for place in MATPLOTLIB)] == []


def in_a_new_interpreter(code: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def imported():
    """What one import of the package changed in a new interpreter."""
    return in_a_new_interpreter(
        "import json, sys, jax\n"
        "before = {name: repr(value) for name, value in jax.config.values.items()}\n"
        "from jaxattn import *\n"
        "after = {name: repr(value) for name, value in jax.config.values.items()}\n"
        "changed = [name for name in after if after[name] != before.get(name)]\n"
        "from jax._src import xla_bridge\n"
        "print(json.dumps({'changed': changed, 'settings': len(before), 'modules': sorted(sys.modules),\n"
        "                  'devices': xla_bridge.backends_are_initialized()}))"
    )


def test_importing_the_package_changes_no_setting_of_jax(imported):
    assert imported["settings"] > 50
    assert imported["changed"] == []


def test_importing_the_package_starts_no_device(imported):
    assert imported["devices"] is False


@pytest.mark.parametrize("package", HEAVY)
def test_importing_the_package_imports_no_heavy_package(imported, package):
    assert not [name for name in imported["modules"] if below(name, package)]
