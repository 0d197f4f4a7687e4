"""Settings of every test: float64, no silent rank promotion, and run-time checks of all annotations."""

import gc
import os
import re
import zlib
from pathlib import Path

import jax
import pytest
from jaxtyping import install_import_hook

# Lists and truth values are numbers to these: they check by themselves what they are given.
import jaxattn.statistics  # noqa: F401

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")

# Of the 65530 memory maps that Linux gives a process unless told otherwise; a module adds at most some thousand.
MAPS = 20_000

# Before anything imports the package: from here on every annotated shape is checked at every call.
with install_import_hook("jaxattn", "beartype.beartype"):
    from jaxattn import *  # noqa: F403
    from jaxattn.study import kept


def pytest_addoption(parser):
    parser.addoption("--part", help="K/N runs the K-th of N parts of the files of tests, told apart by their names")


def pytest_collection_modifyitems(config, items):
    if (part := config.getoption("part")) is None:
        return
    if not (told := re.fullmatch(r"(\d+)/(\d+)", part)) or not 1 <= int(told[1]) <= int(told[2]):
        raise pytest.UsageError(f"--part: expected K/N with 1 <= K <= N, such as 1/3, found {part}")
    mine = [zlib.crc32(item.nodeid.partition("::")[0].encode()) % int(told[2]) == int(told[1]) - 1 for item in items]
    config.hook.pytest_deselected(items=[item for item, is_mine in zip(items, mine, strict=True) if not is_mine])
    items[:] = [item for item, is_mine in zip(items, mine, strict=True) if is_mine]


def pytest_configure(config):
    # By default the collection of garbage among JAX's many objects takes a tenth of the tests' time.
    gc.set_threshold(50_000, 20, 100)
    # Another worker may be writing it: then this one compiles.
    config.addinivalue_line("filterwarnings", "ignore:Error (reading|writing) persistent compilation cache:UserWarning")


def pytest_collection_finish():
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _programs_of_all_modules(tmp_path_factory):
    """Compile a program once for all modules and workers: most of the tests' time goes into compiling."""
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent  # Of all workers of this session, and of no other.
    kept.cache_folder = lambda: place / "kept"
    # JAX reads the variable, by which several sessions can share their programs.
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
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
