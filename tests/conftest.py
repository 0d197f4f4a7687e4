"""Settings of every test: float64, no silent rank promotion, and run-time checks of all annotations."""

import jax
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")

# Before anything imports the package: from here on every annotated shape is checked at every call.
with install_import_hook("jaxattn", "beartype.beartype"):
    import jaxattn  # noqa: F401
