"""What is counted while programs are compiled: each program once, with its seconds."""

import warnings

import jax
import jax.numpy as jnp

from jaxattn.study import costs
from jaxattn.study.costs import Costs
from jaxattn.study.events import Compiling, unheard


def test_a_program_is_counted_with_its_seconds_once():
    events = []
    with costs.counted(events.append) as counted:
        # No other test compiles this one.
        run = jax.jit(lambda x: jnp.cos(x * 0.123454321) @ x.T)
        run(jnp.ones((3, 4))).block_until_ready()
        programs = counted.programs
        run(jnp.ones((3, 4))).block_until_ready()
    assert counted.programs == programs >= 1
    assert 0 < counted.compiling <= counted.seconds
    assert events == [Compiling(True), Compiling(False)] * programs


def compiled(factor):
    jax.clear_caches()
    with costs.counted(unheard) as counted:
        jax.jit(lambda x: jnp.tan(x * factor) @ x.T)(jnp.ones((3, 4))).block_until_ready()
    return counted


def test_a_cached_program_is_counted_as_such():
    compiled(0.543212345)
    again = compiled(0.543212345)
    assert 1 <= again.cached <= again.programs


def test_programs_that_cannot_be_loaded_are_counted_and_other_warnings_are_shown():
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with costs.counted(unheard) as counted:
            for _ in range(2):
                warnings.warn("Error reading persistent compilation cache entry for 'jit_f': XYZ", stacklevel=1)
            warnings.warn("something else", stacklevel=1)
    assert counted.unreadable == 2
    assert [str(warning.message) for warning in shown] == ["something else"]


def test_a_damaged_program_is_compiled_again_and_counted(tmp_path):
    from jax.experimental.compilation_cache import compilation_cache

    before = jax.config.values["jax_compilation_cache_dir"]
    compilation_cache.reset_cache()
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    try:
        assert compiled(0.135797531).unreadable == 0
        kept = list(tmp_path.glob("*-cache"))
        for path in kept:
            path.write_bytes(path.read_bytes()[:20])
        assert compiled(0.135797531).unreadable == len(kept) > 0
    finally:
        compilation_cache.reset_cache()
        jax.config.update("jax_compilation_cache_dir", before)


def test_costs_add_up():
    assert Costs(60.0, 15.0, 200, 190) + Costs(70.0, 15.0, 200, 190, 1) == Costs(130.0, 30.0, 400, 380, 1)
