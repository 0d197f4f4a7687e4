"""Batching: chunks that do not show in the result, one compilation, bounded memory."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import ShapeDtypeStruct

from jaxattn import batch

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


@pytest.mark.parametrize(("chunk", "lengths"), [(3, [3, 3, 1]), (7, [7]), (50, [7]), (1, [1] * 7)])
def test_chunks_cover_every_lane_once_and_filled_up_lanes_are_cut(chunk, lengths):
    parts = list(batch.chunks(pair, X, Y, chunk=chunk))
    assert [part.stop - part.start for part, _ in parts] == lengths
    np.testing.assert_array_equal(np.concatenate([np.arange(7)[part] for part, _ in parts]), np.arange(7))
    for part, result in parts:
        np.testing.assert_array_equal(result["sum"], (X + Y)[part])


def test_the_last_shorter_chunk_compiles_nothing_anew():
    batch.over_seeds(pair, X, Y, chunk=4)
    before = len(traced)
    batch.over_seeds(pair, X[:6], Y[:6], chunk=4)
    batch.over_seeds(pair, X[:5], Y[:5], chunk=4)
    batch.over_seeds(pair, X[:2], Y[:2], chunk=4)
    assert len(traced) == before


def test_lanes_that_fill_up_the_last_chunk_are_lanes_of_the_batch():
    # A filler of zeros would be divided by: the checks of NaN below, on every lane, would see it.
    seen = []

    def watched(x):
        jax.debug.callback(lambda rows: seen.append(np.asarray(rows)), x)
        return 1 / x

    batch.over_seeds(watched, np.array([1.0, 2.0, 4.0]), chunk=2)
    jax.effects_barrier()
    assert set(np.concatenate([np.ravel(rows) for rows in seen])) == {1.0, 2.0, 4.0}


def test_shared_arguments_have_no_batch_axis():
    result = batch.over_seeds(pair, X, shared=(np.array([1.0, 2.0, 3.0]),), chunk=2)
    np.testing.assert_array_equal(result["sum"], X + np.array([[1.0, 2.0, 3.0]]))


def test_the_result_may_be_written_to():
    result = batch.over_seeds(pair, X, Y)
    result["sum"][0] = 0.0
    np.testing.assert_array_equal(result["sum"][0], 0)


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


@pytest.mark.parametrize("chunk", [0, -2])
def test_a_chunk_of_less_than_one_lane_is_refused(chunk):
    with pytest.raises(ValueError, match=rf"^chunk: expected at least 1, found {chunk}"):
        batch.over_seeds(pair, X, Y, chunk=chunk)


@pytest.mark.parametrize("arguments", [(X, Y[:3]), (X, np.float64(1.0)), ()])
def test_arguments_without_one_common_leading_axis_are_refused(arguments):
    with pytest.raises(ValueError, match=r"^batch: expected one leading axis of one length, found"):
        batch.over_seeds(pair, *arguments)


def test_no_lane_at_all_is_refused():
    with pytest.raises(ValueError, match=r"^batch: expected at least one lane, found none"):
        batch.over_seeds(pair, X[:0], Y[:0])


def test_random_keys_are_refused_with_the_way_to_pass_them():
    with pytest.raises(ValueError, match=r"found 3 random keys; pass jax.random.key_data"):
        batch.over_seeds(jax.random.normal, jax.random.split(jax.random.key(0), 3))


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_chunks_computed_at_once_come_in_order_and_do_not_show(workers):
    parts = list(batch.chunks(pair, X, Y, chunk=2, workers=workers))
    assert [part.start for part, _ in parts] == [0, 2, 4, 6]
    for part, result in parts:
        np.testing.assert_array_equal(result["sum"], (X + Y)[part])


def test_the_precision_around_a_call_holds_in_every_worker():
    with jax.enable_x64(False):
        parts = list(batch.chunks(pair, X, Y, shared=(), chunk=2, workers=2))
    assert {result["sum"].dtype for _, result in parts} == {np.dtype(np.float32)}


def test_programs_that_call_lapack_run_one_after_the_other():
    def lowered(function):
        return jax.jit(jax.vmap(function)).trace(np.ones((4, 3, 3))).lower()

    assert batch.side_by_side(lowered(jnp.linalg.svd)) == 1
    assert batch.side_by_side(lowered(jnp.linalg.norm)) >= 1
    many = np.random.default_rng(0).normal(size=(64, 3, 3))
    np.testing.assert_allclose(batch.over_seeds(jnp.linalg.det, many, chunk=4), np.linalg.det(many), rtol=1e-12)


def test_results_that_are_no_longer_asked_for_are_not_computed():
    computed = []

    def counted(x):
        jax.debug.callback(lambda _: computed.append(1), x)
        return x

    parts = batch.chunks(counted, np.arange(100.0), chunk=1, workers=2)
    next(parts)
    parts.close()
    jax.effects_barrier()
    assert 1 <= len(computed) <= 5


@pytest.mark.parametrize("workers", [0, -1])
def test_fewer_than_one_worker_is_refused(workers):
    with pytest.raises(ValueError, match=rf"^workers: expected at least 1, found {workers}"):
        batch.over_seeds(pair, X, Y, workers=workers)


@pytest.mark.parametrize("total", [1, 2, 7, 100])
def test_the_parts_of_all_cores_cover_all_lanes(total):
    part = batch.per_core(total)
    assert 1 <= part <= total
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    assert part * cores >= total
