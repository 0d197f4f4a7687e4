"""What importing the package does, and which module may import which."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "jaxattn"

# Importing the package must not bring these in: a bare accelerator machine has none of them.
HEAVY = ["clarabel", "cvxpy", "hydra", "matplotlib", "omegaconf", "scipy.optimize", "tqdm", "xarray", "zarr"]

# A module (and all below it) may not import these (nor anything below them).
FORBIDDEN = {
    "jaxattn": {"hydra", "omegaconf", "scripts", "tests"},
    "jaxattn.problem": {"jaxattn"},
    "jaxattn.heads": {"jaxattn"},
    "jaxattn.lanes": {"jaxattn"},
    "jaxattn.stepping": {"jaxattn"},
    "jaxattn.attention": {"jaxattn.losses", "jaxattn.descent", "jaxattn.batch", "jaxattn.svm", "jaxattn.data"},
    "jaxattn.data": {"jaxattn.attention", "jaxattn.losses", "jaxattn.descent", "jaxattn.batch", "jaxattn.svm"},
    "jaxattn.tokens": {"jaxattn.losses", "jaxattn.descent", "jaxattn.batch", "jaxattn.svm", "jaxattn.data"},
    "jaxattn.losses": {"jaxattn.descent", "jaxattn.batch", "jaxattn.svm", "jaxattn.data"},
    "jaxattn.gradients": {"jaxattn.descent", "jaxattn.engines", "jaxattn.batch", "jaxattn.svm", "jaxattn.data"},
    "jaxattn.optimizers": {"jaxattn.gradients", "jaxattn.engines", "jaxattn.descent", "jaxattn.batch", "jaxattn.svm"},
    # An engine knows no loss and no head: it is given the gradient in the logits.
    "jaxattn.engines": {"jaxattn.gradients", "jaxattn.losses", "jaxattn.heads", "jaxattn.descent", "jaxattn.batch"},
    "jaxattn.batch": {"jaxattn.descent", "jaxattn.svm", "jaxattn.losses", "jaxattn.attention", "jaxattn.problem"},
    "jaxattn.descent": {"jaxattn.svm", "jaxattn.records", "jaxattn.experiments", "jaxattn.plots"},
    # Data draws by a language's law; what is made of a text knows no law of problems.
    "jaxattn.language": {
        "jaxattn.data",
        "jaxattn.regularization",
        "jaxattn.records",
        "jaxattn.experiments",
        "jaxattn.plots",
    },
    "jaxattn.language.law": {"jaxattn"},
    "jaxattn.language.choices": {
        "jaxattn.attention",
        "jaxattn.losses",
        "jaxattn.descent",
        "jaxattn.batch",
        "jaxattn.svm",
        "jaxattn.language.model",
        "jaxattn.language.training",
        "jaxattn.language.separation",
    },
    "jaxattn.language.model": {"jaxattn.descent", "jaxattn.batch", "jaxattn.svm", "jaxattn.language.training"},
    # Descent knows no max-margin problem, and that no descent.
    "jaxattn.language.training": {"jaxattn.svm", "jaxattn.language.separation"},
    "jaxattn.language.separation": {"jaxattn.descent", "jaxattn.losses", "jaxattn.language.training"},
    # Paths are of risks, whatever descends on them; of the solvers they know the rows and the factors of matrices.
    "jaxattn.regularization": {
        "jaxattn.descent",
        "jaxattn.batch",
        "jaxattn.data",
        "jaxattn.svm.solve",
        "jaxattn.svm.solution",
        "jaxattn.records",
        "jaxattn.experiments",
        "jaxattn.plots",
    },
    "jaxattn.svm": {
        "jaxattn.regularization",
        "jaxattn.descent",
        "jaxattn.losses",
        "jaxattn.attention",
        "jaxattn.data",
        "jaxattn.records",
        "jaxattn.experiments",
        "jaxattn.plots",
    },
    "jaxattn.svm.norms": {"jaxattn.svm"},
    "jaxattn.svm.pivoting": {"jaxattn.svm"},
    "jaxattn.svm.constraints": {
        "jaxattn.svm.certificate",
        "jaxattn.svm.stationarity",
        "jaxattn.svm.solution",
        "jaxattn.svm.least_squares",
        "jaxattn.svm.factors",
        "jaxattn.svm.active_set",
        "jaxattn.svm.central_path",
        "jaxattn.svm.interior_point",
        "jaxattn.svm.norm_path",
        "jaxattn.svm.entries",
        "jaxattn.svm.singular",
        "jaxattn.svm.path_following",
        "jaxattn.svm.low_rank",
        "jaxattn.svm.oracle",
        "jaxattn.svm.posing",
        "jaxattn.svm.solve",
    },
    # The certificate knows no solver.
    "jaxattn.svm.certificate": {
        "jaxattn.svm.active_set",
        "jaxattn.svm.interior_point",
        "jaxattn.svm.path_following",
        "jaxattn.svm.low_rank",
        "jaxattn.svm.oracle",
        "jaxattn.svm.solve",
    },
    # The path knows no norm.
    "jaxattn.svm.norm_path": {"jaxattn.svm.norms", "jaxattn.svm.entries", "jaxattn.svm.singular"},
    "jaxattn.layout": {"jaxattn"},
    "jaxattn.processes": {"jaxattn"},
    "jaxattn.locks": {"jaxattn.descent", "jaxattn.batch", "jaxattn.svm", "jaxattn.plots", "jaxattn.experiments"},
    "jaxattn.records": {"jaxattn.descent", "jaxattn.svm", "jaxattn.plots", "jaxattn.experiments", "matplotlib"},
    "jaxattn.experiments": {"jaxattn.plots", "matplotlib"},
    # Figures read records only: they neither train nor solve.
    "jaxattn.plots": {"jaxattn.descent", "jaxattn.batch", "jaxattn.svm", "jaxattn.experiments.training", "hydra"},
}
# Third-party packages and the only modules that may name them.
ONLY_IN = {
    "cvxpy": {"jaxattn.svm.oracle"},
    "zarr": {"jaxattn.records", "jaxattn.layout"},
    "matplotlib": {"jaxattn.plots"},
}


def below(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix + ".")


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(source: str, module: str, is_package: bool) -> set[str]:
    """Every module that a source names in an import, anywhere in it; `from a import b` names a and a.b."""
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
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
IMPORTS = {name: imports(path.read_text(), name, path.name == "__init__.py") for name, path in MODULES.items()}


def violations(imported: dict[str, set[str]]) -> list[str]:
    """Imports that break a rule. `from jaxattn import x` names the package too, but is about x."""
    return [
        f"{module} imports {name}, which {rule} may not"
        for rule, forbidden in FORBIDDEN.items()
        for module, names in imported.items()
        if below(module, rule)
        for name in sorted(names - {"jaxattn"})
        for prefix in forbidden
        if below(name, prefix)
    ]


def test_the_import_rules_hold():
    assert violations(IMPORTS) == []


def test_data_imports_the_law_the_choices_and_the_scores_of_a_text_alone():
    named = {name for name in IMPORTS["jaxattn.data"] if below(name, "jaxattn.language")}
    allowed = {f"jaxattn.language.{name}" for name in ("law", "choices", "scores")}
    assert {".".join(name.split(".")[:3]) for name in named} == allowed


def test_no_module_imports_the_package_as_a_whole():
    assert [module for module, names in IMPORTS.items() if "jaxattn.*" in names] == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("jaxattn.svm.solve", "from jaxattn import batch, descent"),
        ("jaxattn.svm.solve", "def f():\n    import jaxattn.descent"),
        ("jaxattn.svm.new", "from ..descent import train"),
        ("jaxattn.problem", "from jaxattn import metrics"),
        ("jaxattn.plots.curves", "from jaxattn.svm import solve"),
        ("jaxattn.plots", "import hydra"),
        ("jaxattn.experiments.new", "from hydra.utils import instantiate"),
        ("jaxattn.records", "from jaxattn import plots"),
        ("jaxattn.stepping", "from jaxattn import batch"),
        ("jaxattn.language.training", "from jaxattn import svm"),
        ("jaxattn.language.choices", "from jaxattn.language.model import risk"),
        ("jaxattn.svm.certificate", "from jaxattn.svm.oracle import Cvxpy"),
    ],
)
def test_a_broken_rule_would_be_seen(module, source):
    assert len(violations({module: imports(source, module, False)})) >= 1


def test_heavy_packages_are_named_in_one_place_each():
    for package, allowed in ONLY_IN.items():
        users = {module for module, names in IMPORTS.items() if any(below(name, package) for name in names)}
        assert all(any(below(user, place) for place in allowed) for user in users), (package, users)


def test_every_rule_is_about_a_module_of_the_package():
    planned = {"jaxattn.plots", "jaxattn.records", "jaxattn.experiments"}
    assert set(FORBIDDEN) - planned <= set(MODULES)


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
        "import jaxattn\n"
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
