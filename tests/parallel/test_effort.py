"""How long XLA may compile: less for what runs for milliseconds, the same results, and XLA_FLAGS have the last word."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn.parallel import batch, effort


def half(x):
    return jnp.linalg.norm(x) / 2


@pytest.mark.parametrize("one", [effort.FULL, effort.SOLVING, effort.BRIEF])
def test_results_are_the_same_whatever_the_effort(one):
    rows = np.arange(24.0).reshape(6, 4)
    np.testing.assert_allclose(
        batch.over_seeds(half, rows, effort=one), np.linalg.norm(rows, axis=1) / 2, rtol=1e-14, atol=0
    )


def test_options_that_the_user_gives_are_left_out(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=true --xla_cpu_prefer_vector_width=512")
    assert effort.BRIEF.options() == {"xla_backend_optimization_level": 0, "xla_cpu_parallel_codegen_split_count": 1}
    monkeypatch.delenv("XLA_FLAGS")
    given = effort.BRIEF.options()
    assert given["xla_backend_optimization_level"] == 0
    assert effort.BRIEF.flags().split() == [f"--{name}={str(value).lower()}" for name, value in given.items()]


def test_options_that_another_version_of_xla_does_not_have_are_left_out():
    """Unknown options are errors, and unknown flags end the process: jaxlib 0.11 lost `xla_cpu_use_fusion_emitters`."""
    level = {"xla_backend_optimization_level": 0}
    assert effort.understood({"xla_no_such_option": True} | level) == level


class Unknown(effort.Effort):
    """One of another version of XLA."""

    def options(self):
        """Return an option that XLA does not know."""
        return {"xla_no_such_option": 1}


def test_the_options_reach_the_compiler():
    with pytest.raises(Exception, match="xla_no_such_option"):
        batch.over_seeds(half, np.ones((2, 4)), effort=Unknown())


def test_a_solver_of_few_problems_is_compiled_briefly():
    assert effort.solving(10, 112) == effort.BRIEF
    assert effort.solving(100, 112) == effort.solving(10, 112, steps=10) == effort.SOLVING
