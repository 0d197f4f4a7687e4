"""JAX's cache of compiled programs for a study."""

from __future__ import annotations

import jax

from jaxattn.study.kept import cache_folder


def tune() -> None:
    """Cache compiled programs in the user's cache folder, unless JAX_COMPILATION_CACHE_DIR names another."""
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(cache_folder()))
    # Cache all programs: most compile in less than a second, but hundreds of them take minutes.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
