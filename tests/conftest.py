"""Settings of every test: float64, no silent rank promotion, and run-time checks of all annotations."""

import jax
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")

# Before anything imports the package: from here on every annotated shape is checked at every call.
with install_import_hook("jaxattn", "beartype.beartype"):
    import jaxattn  # noqa: F401


@pytest.fixture(scope="session", autouse=True)
def _programs_of_all_modules(tmp_path_factory):
    """Compile a program once for all modules: half of the tests' time goes into compiling."""
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("programs")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@pytest.fixture(scope="module", autouse=True)
def _programs_of_one_module():
    """Let go of compiled programs after each module: all of them together use up the memory maps of a process."""
    yield
    jax.clear_caches()
