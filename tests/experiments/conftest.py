"""Estimates from synthetic measurements in less time."""

import functools

import jax
import pytest

from jaxattn import statistics


@pytest.fixture(scope="module")
def drawn_once():
    """Draw the resamples of a number of seeds once: they take most of the time of estimates."""
    resampled = functools.cache(functools.partial(statistics._resampled, key=jax.random.key(0)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "_resampled", lambda seeds, key, samples: resampled(seeds=seeds, samples=samples))
        yield
