"""Batching: chunks that do not show in the result, one compilation, bounded memory."""

import os
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import ShapeDtypeStruct

from jaxattn.parallel import batch

traced = []


def pair(x, y):
    """Of one lane: a pytree of two results."""
    traced.append(x.shape)
    return {"sum": x + y, "squares": jnp.sum(x**2)}


X = np.arange(7 * 3, dtype=float).reshape(7, 3)
Y = np.linspace(0, 1, 21).reshape(7, 3)


@pytest.mark.parametrize("chunk", [None, 1, 2, 3, 6, 7, 100])
def test_the_chunk_does_not_show_in_the_result(chunk):
    result = batch.over_seeds(pair, X, jnp.asarray(Y), chunk=chunk)
    np.testing.assert_array_equal(result["sum"], X + Y)
    np.testing.assert_allclose(result["squares"], (X**2).sum(axis=1))
    assert all(type(leaf) is np.ndarray for leaf in jax.tree.leaves(result))


@pytest.mark.parametrize(("width", "lengths"), [(3, [3, 3, 1]), (7, [7]), (50, [7]), (1, [1] * 7), (None, [7])])
def test_programs_cover_every_lane_once_and_filled_up_lanes_are_cut(width, lengths):
    parts = list(batch.chunks(pair, X, Y, width=width))
    assert [part.stop - part.start for part, _ in parts] == lengths
    np.testing.assert_array_equal(np.concatenate([np.arange(7)[part] for part, _ in parts]), np.arange(7))
    for part, result in parts:
        np.testing.assert_array_equal(result["sum"], (X + Y)[part])


def test_the_last_shorter_program_compiles_nothing_again():
    batch.over_seeds(pair, X, Y, width=4)
    before = len(traced)
    batch.over_seeds(pair, X[:6], Y[:6], width=4)
    batch.over_seeds(pair, X[:5], Y[:5], width=4)
    batch.over_seeds(pair, X[:2], Y[:2], width=4)
    assert len(traced) == before


def test_a_program_is_traced_once():
    def summed(x):
        lengths.append(len(x))
        return x.sum()

    lengths = []
    np.testing.assert_array_equal(batch.over_seeds(summed, X), X.sum(axis=1))
    assert lengths == [3]


def test_results_that_do_not_fit_into_memory_together_are_computed_a_few_at_a_time(monkeypatch):
    monkeypatch.setattr(batch, "lanes", partial(batch.lanes, memory=200))
    parts = [part for part, _ in batch.chunks(jnp.diag, X)]
    assert [part.stop - part.start for part in parts] == [2, 2, 2, 1]


def test_a_part_of_a_study_runs_the_program_of_the_whole():
    whole = batch.over_seeds(pair, X, Y, of=200)
    before = len(traced)
    parts = [batch.over_seeds(pair, X[part], Y[part], of=200) for part in (slice(0, 5), slice(5, 7))]
    assert len(traced) == before
    for name in whole:
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), whole[name])


def test_lanes_that_fill_up_the_last_program_are_lanes_of_the_batch():
    # A filler of zeros would be divided by: the checks of NaN below, on every lane, would see it.
    seen = []

    def watched(x):
        jax.debug.callback(lambda rows: seen.append(np.asarray(rows)), x)
        return 1 / x

    batch.over_seeds(watched, np.array([1.0, 2.0, 4.0]), width=2)
    jax.effects_barrier()
    assert set(np.concatenate([np.ravel(rows) for rows in seen])) == {1.0, 2.0, 4.0}


def test_shared_arguments_have_no_batch_axis():
    result = batch.over_seeds(pair, X, shared=(np.array([1.0, 2.0, 3.0]),), width=2)
    np.testing.assert_array_equal(result["sum"], X + np.array([[1.0, 2.0, 3.0]]))


def test_lanes_are_those_that_fit_into_memory():
    one = ShapeDtypeStruct((10,), np.dtype(np.float64))
    result = {"a": ShapeDtypeStruct((), np.dtype(np.float32)), "b": ShapeDtypeStruct((4,), np.dtype(np.int32))}
    # 80 bytes of arguments and 4 + 16 of results.
    assert batch.lanes(one, result, memory=1000) == 10
    assert batch.lanes(one, result, memory=999) == 9
    assert batch.lanes(one, result, memory=100) == 1
    assert batch.lanes(one, result, memory=2**30, most=64) == 64
    assert batch.lanes((), (), memory=10, most=5) == 5


def test_one_lane_that_does_not_fit_into_memory_is_refused():
    one = ShapeDtypeStruct((1000,), np.dtype(np.float64))
    with pytest.raises(MemoryError, match=r"^one seed needs 8,000 bytes, more than the 7,999 given to a chunk"):
        batch.lanes(one, (), memory=7999)


def test_a_lane_larger_than_all_memory_is_refused_before_it_is_made():
    def large(x):
        return jnp.zeros((2**20, 2**10)) + x

    with pytest.raises(MemoryError, match=r"^one seed needs"):
        batch.over_seeds(large, np.zeros(3))


NO_AXIS = "batch: expected one leading axis of one length, found"


@pytest.mark.parametrize(
    ("arguments", "given", "message"),
    [
        *(((X, Y), {"chunk": k}, f"chunk: expected at least 1, found {k}") for k in (0, -2)),
        *(((X, Y), {"width": k}, f"width: expected at least 1, found {k}") for k in (0, -2)),
        ((X, Y), {"of": 6}, "of: expected at least the 7 lanes given, found 6"),
        *((arguments, {}, NO_AXIS) for arguments in ((X, Y[:3]), (X, np.float64(1.0)), ())),
        ((X[:0], Y[:0]), {}, "batch: expected at least one lane, found none"),
    ],
)
def test_what_is_no_batch_is_refused(arguments, given, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        batch.over_seeds(pair, *arguments, **given)


def test_random_keys_are_refused_with_the_way_to_pass_them():
    with pytest.raises(ValueError, match=r"found 3 random keys; pass jax.random.key_data"):
        batch.over_seeds(jax.random.normal, jax.random.split(jax.random.key(0), 3))


def test_the_precision_around_a_call_holds_in_every_worker():
    with jax.enable_x64(False):
        parts = list(batch.chunks(pair, X, Y, shared=(), width=2))
    assert {result["sum"].dtype for _, result in parts} == {np.dtype(np.float32)}


def test_programs_that_call_lapack_run_one_after_the_other(monkeypatch):
    most = []

    def in_order(run, calls, workers):
        most.append(workers)
        return (run(*call) for call in calls)

    monkeypatch.setattr(batch, "_in_order", in_order)
    many = np.random.default_rng(0).normal(size=(64, 4, 4))
    np.testing.assert_allclose(batch.over_seeds(jnp.linalg.det, many, width=4), np.linalg.det(many), rtol=1e-12)
    assert most == []
    assert batch.side_by_side(calls_out=True) == 1
    batch.over_seeds(jnp.sum, many, width=4)
    assert most == ([batch.side_by_side(calls_out=False)] if batch.side_by_side(calls_out=False) > 1 else [])


def test_results_that_are_no_longer_asked_for_are_not_computed():
    computed = []

    def counted(x):
        jax.debug.callback(lambda _: computed.append(1), x)
        return x

    parts = batch.chunks(counted, np.arange(100.0), width=1)
    next(parts)
    parts.close()
    jax.effects_barrier()
    assert 1 <= len(computed) <= 5


def test_the_lanes_of_a_program_follow_from_the_shapes_alone(monkeypatch):
    def of(entries, total=10**6, result=1):
        given, returned = (ShapeDtypeStruct((size,), np.dtype(np.float64)) for size in (entries, result))
        return batch.program_lanes(given, returned, total)

    assert of(100) == of(100, total=batch.LANES) == batch.LANES
    assert [of(100, total) for total in (0, 5, 65, 256, 257)] == [1, 5, 33, 64, 64]
    assert of(batch.CACHE // 8 // 20) == 20  # as many as the cache holds,
    assert of(batch.CACHE) == batch.LEAST_LANES
    assert of(1, result=batch.MEMORY // 8 // 3) == 2  # and no more than the memory does.
    before = of(100)
    monkeypatch.setattr(batch, "_cores", lambda: 100)
    assert of(100) == before


# In a process of its own: what is computed on 8 devices is to the last bit what is computed on one.
DRAWN = """
import sys, zlib
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np
from functools import partial
from jaxattn import batch, data, descent, initial, svm, tokens

law, start = partial(data.sphere, n=6, T=8, d=10), partial(initial.factored, d=10)
keys = jax.random.split(jax.random.key(0), 150)
problems, weights = (jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(keys)) for one in (law, start))
assert len(jax.local_devices()) == int(sys.argv[1])
"""
DESCENT = "results = [descent.train_batch(weights, problems, steps=2000, chunk=chunk) for chunk in (None, 7)]"
SOLUTIONS = """
alpha = batch.over_seeds(tokens.optimal, problems)
constraints = batch.over_seeds(svm.token_constraints, problems, alpha)
results = [svm.solve_batch(constraints, "nuclear") for _ in range(2)]
"""
SUMS = """
for result in results:
    print(zlib.crc32(b"".join(np.ascontiguousarray(leaf).tobytes() for leaf in jax.tree.leaves(result))))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("computed", "devices"), [(DESCENT, 3), (DESCENT, 8), (SOLUTIONS, 8)], ids=["descent-3", "descent-8", "solutions-8"]
)
def test_neither_the_number_of_devices_nor_the_chunk_shows_in_any_bit(computed, devices):
    found = set()
    for count in (1, devices):
        flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={count}"}
        done = subprocess.run(
            [sys.executable, "-c", DRAWN + computed + SUMS, str(count)],
            env=os.environ | flags,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        found |= set(done.stdout.split())
    assert len(found) == 1


def test_a_function_that_lifts_itself_is_not_traced_for_one_lane():
    traced = []

    def one(x):
        traced.append("one")
        return 2 * x

    def lifted(x):
        traced.append("lifted")
        return 2 * x

    doubled = batch.Lifting(one, lifted)
    np.testing.assert_array_equal(batch.over_seeds(doubled, np.arange(5.0), width=3), 2 * np.arange(5.0))
    assert traced == ["lifted"]
    assert doubled(1.0) == 2.0
