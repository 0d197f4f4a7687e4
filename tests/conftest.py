"""Settings of every test: float64, no silent rank promotion, and run-time checks of all annotations."""

import os
from pathlib import Path

import jax
import pytest
from jaxtyping import install_import_hook

# Lists and truth values are numbers to these: they check by themselves what they are given.
import jaxattn.study.statistics  # noqa: F401

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")

# Of the 65530 memory maps that Linux gives a process unless told otherwise; a module adds at most some thousand.
MAPS = 20_000

# Before anything imports the package: from here on every annotated shape is checked at every call.
with install_import_hook("jaxattn", "beartype.beartype"):
    from jaxattn import *  # noqa: F403


def pytest_configure(config):
    # Another worker may be writing it: then this one compiles.
    config.addinivalue_line("filterwarnings", "ignore:Error (reading|writing) persistent compilation cache:UserWarning")


@pytest.fixture(scope="session", autouse=True)
def _programs_of_all_modules(tmp_path_factory):
    """Compile a program once for all modules and workers: most of the tests' time goes into compiling."""
    # JAX reads the variable, by which several sessions can share their programs.
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        place = tmp_path_factory.getbasetemp()
        if "PYTEST_XDIST_WORKER" in os.environ:
            place = place.parent  # Of all workers of this session, and of no other.
        jax.config.update("jax_compilation_cache_dir", str(place / "programs"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.fixture(scope="module", autouse=True)
def _programs_of_one_module():
    """Let go of compiled programs before all of them together use up the memory maps of a process."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or len(maps.read_bytes().splitlines()) > MAPS:
        jax.clear_caches()
