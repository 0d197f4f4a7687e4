"""Rules of descent beside the published ones: what each of their steps is."""

import jax
import jax.numpy as jnp
import pytest

from jaxattn import descent, losses, metrics
from tests.instances import assert_close, problem


def test_a_long_first_step_is_followed_by_short_ones():
    one, start = problem(), jnp.zeros((5, 5))
    run = descent.train(start, one, optimizer=descent.long_first_gd(0.1, first=7.0), steps=3, snapshots=(1, 2, 3))
    gradient = jax.grad(losses.risk)(start, one)
    assert_close(run.snapshots[0], -7 * gradient / metrics.norm(gradient))
    after = descent.train(
        run.snapshots[0], one, optimizer=descent.normalized_gd(0.1, floor=0.0, penalty=0.0), steps=2, snapshots=(1, 2)
    )
    assert_close(run.snapshots[1:], after.snapshots, rtol=1e-11)
    with pytest.raises(ValueError, match="first: expected a positive finite number, found -1"):
        descent.long_first_gd(0.1, first=-1.0)
