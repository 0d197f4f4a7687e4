"""What is counted while programs are compiled: each second once, each program once."""

import time
import warnings

import jax
import jax.numpy as jnp
import pytest

from jaxattn.study import costs
from jaxattn.study.costs import Costs
from jaxattn.study.events import Compiling, unheard

TRACE = "/jax/core/compile/jaxpr_trace_duration"
COMPILE = "/jax/core/compile/backend_compile_duration"


def test_a_program_is_counted_with_its_seconds_once():
    heard = []
    with costs.counted(heard.append) as counter:
        # No other test compiles this one.
        run = jax.jit(lambda x: jnp.cos(x * 0.123454321) @ x.T)
        run(jnp.ones((3, 4))).block_until_ready()
        first = counter.costs()
        run(jnp.ones((3, 4))).block_until_ready()
    assert first.programs >= 1
    assert first.tracing > 0
    assert first.compiling > 0
    assert first.tracing + first.compiling <= first.seconds
    assert first.computing() + first.tracing + first.compiling == pytest.approx(first.seconds)
    assert counter.costs().programs == first.programs
    assert heard == [Compiling(True), Compiling(False)] * first.programs


def test_a_program_that_is_kept_is_found():
    def compiled():
        with costs.counted(unheard) as counter:
            jax.jit(lambda x: jnp.sin(x * 0.543212345) @ x.T)(jnp.ones((3, 4))).block_until_ready()
        return counter.costs()

    compiled()
    jax.clear_caches()
    again = compiled()
    assert 1 <= again.found <= again.programs


def test_what_is_traced_within_a_trace_is_counted_once(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    counter = costs.Counter(unheard)
    # From 100 to 110 one is traced; within it another, 3 s, and a program is compiled, 2 s.
    now[0] = 105.0
    counter.duration(TRACE, 3.0)
    now[0] = 109.0
    counter.duration(COMPILE, 2.0)
    now[0] = 110.0
    counter.duration(TRACE, 10.0)
    counter.duration("/jax/other", 10.0)
    found = counter.costs()
    assert (found.tracing, found.compiling, found.programs, found.seconds) == (8.0, 2.0, 1, 10.0)


def test_programs_that_cannot_be_loaded_are_counted_and_other_warnings_are_shown():
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with costs.counted(unheard) as counter:
            for _ in range(2):
                warnings.warn("Error reading persistent compilation cache entry for 'jit_f': XYZ", stacklevel=1)
            warnings.warn("something else", stacklevel=1)
    assert counter.costs().unreadable == 2
    assert [str(one.message) for one in shown] == ["something else"]


def test_a_damaged_program_is_compiled_again_and_counted(tmp_path):
    from jax.experimental.compilation_cache import compilation_cache

    before = jax.config.values["jax_compilation_cache_dir"]
    compilation_cache.reset_cache()
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    try:

        def compiled():
            jax.clear_caches()
            with costs.counted(unheard) as counter:
                jax.jit(lambda x: jnp.tan(x * 0.135797531) @ x.T)(jnp.ones((3, 4))).block_until_ready()
            return counter.costs()

        assert compiled().unreadable == 0
        kept = list(tmp_path.glob("*-cache"))
        for path in kept:
            path.write_bytes(path.read_bytes()[:20])
        assert compiled().unreadable == len(kept) > 0
    finally:
        compilation_cache.reset_cache()
        jax.config.update("jax_compilation_cache_dir", before)


def test_costs_add_up():
    both = Costs(60.0, 10.0, 15.0, 5.0, 200, 190) + Costs(70.0, 10.0, 15.0, 5.0, 200, 190, 1)
    assert both == Costs(130.0, 20.0, 30.0, 10.0, 400, 380, 1)
