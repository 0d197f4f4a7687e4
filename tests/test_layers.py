"""The contracts on imports in pyproject.toml, and what importing the package does."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Importing the package must not bring these in: a bare accelerator machine has none of them.
HEAVY = ["clarabel", "cvxpy", "hydra", "matplotlib", "omegaconf", "rich", "scipy.optimize", "xarray", "zarr"]
# An import that breaks each contract, by the beginning of its name.
BREAKING = {
    "Layers": ("svm/constraints.py", "from jaxattn import descent"),
    "The certificate": ("svm/certificate.py", "def f():\n    from jaxattn.svm import solvers"),
    "A regularization path": ("regularization/path.py", "import jaxattn.svm.solve"),
    "Each heavy package": ("problem.py", "import zarr"),
}


def lint(folder: Path) -> str:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo", ROOT / "pyproject.toml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120).stdout


def test_the_contracts_hold():
    said = lint(ROOT)
    assert f"Contracts: {len(BREAKING)} kept, 0 broken." in said, said


@pytest.mark.slow
def test_a_broken_contract_is_seen(tmp_path):
    shutil.copytree(ROOT / "jaxattn", tmp_path / "jaxattn", ignore=shutil.ignore_patterns("__pycache__"))
    for name, line in BREAKING.values():
        with (tmp_path / "jaxattn" / name).open("a") as file:
            file.write(f"{line}\n")
    said = lint(tmp_path)
    for contract in BREAKING:
        assert any(line.startswith(contract) and "BROKEN" in line for line in said.splitlines()), said


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
    assert not [name for name in imported["modules"] if f"{name}.".startswith(f"{package}.")]
