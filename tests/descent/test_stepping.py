"""The loop over steps: what is carried, what is kept at the snapshots, what is noted."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn.descent import stepping

STEPS = 7


def counted(k, now):
    """One step of a sum that says in which order its steps came."""
    total, number = now
    return 2 * total + k, number + 1


def slowly(steps):
    now = (1.0, 0)
    for k in range(steps):
        now = (2 * now[0] + k, now[1] + 1)
    return now


@pytest.mark.parametrize("snapshots", [(), (0,), (STEPS,), (0, 1, 5), tuple(range(STEPS + 1))])
def test_snapshot_k_is_read_after_k_steps(snapshots):
    kept = stepping.checked(STEPS, 1, snapshots)
    end, read = stepping.through(counted, (jnp.asarray(1.0), jnp.asarray(0)), kept, STEPS, lambda now: {"sum": now[0]})
    assert (float(end[0]), int(end[1])) == slowly(STEPS)
    np.testing.assert_array_equal(read["sum"], [slowly(k)[0] for k in snapshots])
    assert read["sum"].shape == (len(snapshots),)


def test_other_snapshots_of_one_number_compile_nothing_again():
    traced = []

    @jax.jit
    def run(snapshots):
        traced.append(snapshots)
        return stepping.through(counted, (jnp.asarray(1.0), jnp.asarray(0)), snapshots, STEPS, lambda now: now[0])[1]

    for snapshots in ((1, 2), (0, 7)):
        found = run(stepping.checked(STEPS, 1, snapshots))
        np.testing.assert_array_equal(found, [slowly(k)[0] for k in snapshots])
    assert len(traced) == 1


@pytest.mark.parametrize("every", [1, 2, 3, 10])
def test_every_so_many_steps_are_noted(every):
    def one_step(k, series):
        return stepping.noted(k, every, series, lambda: {"square": k**2 + 0.5, "pair": jnp.stack([k, -k])})

    entries = -(-STEPS // every)
    begin = {"square": jnp.full(entries, jnp.nan), "pair": jnp.zeros((entries, 2), int)}
    series, _ = stepping.through(one_step, begin, stepping.checked(STEPS, every, ()), STEPS, lambda series: 0)
    noted = np.arange(0, STEPS, every)
    np.testing.assert_array_equal(series["square"], noted**2 + 0.5)
    np.testing.assert_array_equal(series["pair"], np.stack([noted, -noted], axis=1))


def test_checked_snapshots_are_whole_numbers():
    kept = stepping.checked(5, 2, (0, 3, 5))
    np.testing.assert_array_equal(kept, [0, 3, 5])
    assert jnp.issubdtype(stepping.checked(5, 2, ()).dtype, jnp.integer)


@pytest.mark.parametrize(
    ("steps", "every", "snapshots", "message"),
    [
        (0, 1, (), r"^steps: expected at least 1, found 0"),
        (5, 0, (), r"^record_every: expected at least 1, found 0"),
        (5, 1, (6,), r"^snapshots: expected increasing steps within 0\.\.5, found \(6,\)"),
        (5, 1, (-1, 2), r"^snapshots: expected increasing steps within 0\.\.5, found \(-1, 2\)"),
        (5, 1, (2, 2), r"^snapshots: expected increasing steps within 0\.\.5, found \(2, 2\)"),
    ],
)
def test_steps_out_of_range_are_refused(steps, every, snapshots, message):
    with pytest.raises(ValueError, match=message):
        stepping.checked(steps, every, snapshots)


@pytest.mark.parametrize("snapshots", [(1.5,), (1, np.nan)])
def test_snapshots_that_are_no_whole_numbers_are_refused(snapshots):
    # Without the run-time checks of annotations, which users do not have.
    with pytest.raises(ValueError, match=r"^snapshots: expected whole numbers, found \("):
        inspect.unwrap(stepping.checked)(5, 1, snapshots)
