"""The sdist and the wheel build, and the wheel works in an environment that holds it and its dependencies alone."""

import os
import subprocess
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import flit_core.buildapi
import pytest

import jaxattn

ROOT = Path(jaxattn.__file__).parents[1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The unpacked sdist."""
    place = tmp_path_factory.mktemp("sdist")
    before = Path.cwd()
    os.chdir(ROOT)  # flit builds the project of the working folder.
    try:
        name = flit_core.buildapi.build_sdist(str(place))
    finally:
        os.chdir(before)
    with tarfile.open(place / name) as archive:
        archive.extractall(place, filter="data")
    return place / name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def installed(sdist, tmp_path_factory):
    """The interpreter of a new environment with the wheel of the sdist, beside the installed dependencies."""
    place = tmp_path_factory.mktemp("installed")
    before = Path.cwd()
    os.chdir(sdist)
    try:
        wheel = flit_core.buildapi.build_wheel(str(place))
    finally:
        os.chdir(before)
    venv.create(place / "env", with_pip=False)
    python = place / "env/bin/python"
    site = Path(run(python, "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    with zipfile.ZipFile(place / wheel) as archive:
        archive.extractall(site)
    # Below a path of a .pth file no other .pth file is read, and so no editable installation of this checkout.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python


def run(python, code):
    return subprocess.run([python, "-I", "-c", code], check=True, capture_output=True, text=True, cwd="/").stdout


@pytest.mark.parametrize("file", ["README.md", "LICENSE", "CITATION.cff", "CHANGELOG.md", "conf/config.yaml"])
def test_the_sdist_holds_what_a_user_needs(sdist, file):
    assert (sdist / file).read_bytes() == (ROOT / file).read_bytes()


@pytest.mark.slow
def test_the_wheel_imports_and_solves(installed):
    code = """
import jax
jax.config.update("jax_enable_x64", True)
import jaxattn
from jaxattn import data, svm, tokens
problem = data.sphere(jax.random.key(0), n=2, T=3, d=4)
solution = svm.solve(svm.token_constraints(problem, tokens.optimal(problem)))
print(jaxattn.__file__, int(solution.status) == svm.Status.OPTIMAL, sep=",")
"""
    file, optimal = run(installed, code).strip().split(",")
    assert Path(file).is_relative_to(installed.parents[1])
    assert optimal == "True"


def test_the_wheel_holds_every_file_that_the_package_reads(installed):
    there = Path(run(installed, "import jaxattn; print(jaxattn.__file__)").strip()).parent
    package = ROOT / "jaxattn"
    files = [file.relative_to(package) for file in package.rglob("*") if file.is_file()]
    assert [file for file in files if "__pycache__" not in file.parts and not (there / file).is_file()] == []


def test_the_version_is_that_of_the_citation_and_of_the_changelog():
    assert f"\nversion: {jaxattn.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {jaxattn.__version__} (20" in (ROOT / "CHANGELOG.md").read_text()
