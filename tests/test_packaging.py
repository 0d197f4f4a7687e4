"""The sdist and the wheel build, and work in environments that hold nothing but them and what they ask for."""

import functools
import os
import re
import shutil
import subprocess
import tarfile
import venv
import zipfile
from pathlib import Path

import hatchling.build
import pytest

import jaxattn

ROOT = Path(jaxattn.__file__).parents[1]
# Variables for the tests' own Python and JAX: others have other modules, and know other options.
OURS = ("PYTHON", "XLA_", "JAX_")
SOLVES = """
import jax
jax.config.update("jax_enable_x64", True)
import jaxattn
from jaxattn import data, svm, tokens
problem = data.sphere(jax.random.key(0), n=2, T=3, d=4)
solution = svm.solve(svm.token_constraints(problem, tokens.optimal(problem)))
print(jaxattn.__file__, int(solution.status) == svm.Status.OPTIMAL, sep=",")
"""
# What the command asks for if the extra is not installed.
ASKED = r'jaxattn: expected the packages of the extra "study", found no .*rich.*`pip install "(.*)"`\n'


def built(build, source, place):
    """The sdist or wheel of a source tree."""
    before = Path.cwd()
    os.chdir(source)  # The build backend builds the project of the working folder.
    try:
        return place / build(str(place))
    finally:
        os.chdir(before)


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    return built(hatchling.build.build_sdist, ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def unpacked(sdist):
    with tarfile.open(sdist) as archive:
        archive.extractall(sdist.parent, filter="data")
    return sdist.parent / sdist.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(unpacked, tmp_path_factory):
    return built(hatchling.build.build_wheel, unpacked, tmp_path_factory.mktemp("wheel"))


def run(python, *arguments, status=0, folder="/", **variables):
    """What a program writes to its output, or to its errors if it is to fail."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OURS)} | variables
    done = subprocess.run(
        [python, *arguments], check=False, capture_output=True, text=True, cwd=folder, env=environment, timeout=600
    )
    assert done.returncode == status, done.stderr
    return done.stderr if status else done.stdout


@pytest.mark.parametrize("file", ["README.md", "LICENSE", "CITATION.cff", "CHANGELOG.md", "conf/config.yaml"])
def test_the_sdist_holds_what_a_user_needs(unpacked, file):
    assert (unpacked / file).read_bytes() == (ROOT / file).read_bytes()


def test_the_wheel_holds_every_file_that_the_package_reads(wheel):
    inside = [file for folder in ("conf", "jaxattn") for file in (ROOT / folder).rglob("*") if file.is_file()]
    inside = [file.relative_to(ROOT) for file in (*inside, ROOT / "figures/claims.json")]
    expected = [file for file in inside if "__pycache__" not in file.parts]
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
    assert held == {
        str(file if file.parts[0] == "jaxattn" else "jaxattn" / file): (ROOT / file).read_bytes() for file in expected
    }


def test_without_its_extra_the_command_says_what_to_install(wheel, tmp_path):
    venv.create(tmp_path, with_pip=False)
    python = tmp_path / "bin/python"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    for arguments in ((), ("--help",), ("which", "seeds=8")):
        assert re.fullmatch(ASKED, run(python, "-m", "jaxattn.study", *arguments, status=2))


@pytest.mark.slow
@pytest.mark.timeout(1800)  # Two thirds of it is pip's.
@pytest.mark.parametrize("minor", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_an_installation_works_in_an_empty_folder(kind, minor, request, tmp_path, tmp_path_factory):
    # pyenv reads the variable; other Pythons ignore it.
    found = functools.partial(subprocess.run, env=os.environ | {"PYENV_VERSION": minor}, check=False)
    environment, empty = tmp_path / "environment", tmp_path / "empty"
    if not shutil.which(f"python{minor}") or found([f"python{minor}", "-m", "venv", environment]).returncode:
        pytest.skip(f"Python {minor} is not here")
    empty.mkdir()
    pinned = re.findall(r"^\S+==\S+", (ROOT / f"requirements/py{minor.replace('.', '')}.txt").read_text(), re.M)
    (tmp_path / "constraints.txt").write_text("\n".join(pinned))
    python = environment / "bin/python"
    installs = [python, "-m", "pip", "install", "--quiet", "--no-compile", "--constraint", tmp_path / "constraints.txt"]
    jaxattns = functools.partial(
        run,
        environment / "bin/jaxattn",
        folder=empty,
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        JAX_COMPILATION_CACHE_DIR=str(tmp_path_factory.getbasetemp() / "programs-of-installations"),
    )
    try:
        run(*installs, request.getfixturevalue(kind))
        file, optimal = run(python, "-c", SOLVES).strip().split(",")
        assert Path(file).is_relative_to(environment)
        assert optimal == "True"
        asked = re.fullmatch(ASKED, jaxattns("which", status=2))
        assert asked is not None
        run(*installs, asked[1])
        variant = ("data.n=2", "data.T=3", "data.d=6", "seeds=8", "steps=2000", "norms=[frobenius,nuclear]")
        ranking = jaxattns("which", *variant)
        assert "\nverdict: frobenius\n" in ranking
        assert "1 made" in jaxattns("figures", "trajectories-3", "size=small")
        assert (empty / "figures/small/trajectories-3.png").stat().st_size > 10_000
        (record,) = empty.glob("runs/training-*/ranking-*.zarr")
        attributes = (record / "zarr.json").read_text()
        assert "not a git checkout" in attributes
        assert re.search(r"^  trajectories-3 +(\d+ s|\d+:\d\d min) ", jaxattns("figures", "--help"), re.MULTILINE)
    finally:
        shutil.rmtree(environment)


def test_the_version_is_that_of_the_citation_and_of_the_changelog():
    assert f"\nversion: {jaxattn.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {jaxattn.__version__} (20" in (ROOT / "CHANGELOG.md").read_text()
