"""Seeds whose optimal selection has settled take no more steps, and end with the selection of the whole training."""

from dataclasses import fields, replace
from functools import cache
from typing import Any

import jax
import numpy as np
import optax
import pytest

from jaxattn import descent, heads, tokens
from jaxattn.parallel import batch
from jaxattn.problem import of_arrays
from jaxattn.study import making
from jaxattn.study.configuration import composition
from jaxattn.study.settings.parameters import weights_of
from jaxattn.study.settings.recording import shapes
from jaxattn.study.settings.settling import Settling
from jaxattn.study.settings.training import Training


@cache
def settings() -> dict[str, Any]:
    """The settings of global-probability by the names of its runs."""
    configs = making.configurations("global-probability", [])
    return {config.study.name: composition.setting_of(config) for config in configs}


def compared(setting: Settling) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which seeds end early, and whether each selects optimal tokens then, and after all steps."""
    whole = Training(**{field.name: getattr(setting, field.name) for field in fields(Training)})
    seeds, root = np.arange(setting.seeds), np.asarray(jax.random.key_data(jax.random.key(setting.key)))
    both = [one.block(seeds, root) for one in (setting, whole)]
    np.testing.assert_array_equal(both[0]["X"], both[1]["X"])
    early, late = (batch.over_seeds(optimal, weights_of(arrays), of_arrays(arrays)) for arrays in both)
    assert set(both[0]) == set(shapes(setting))
    return both[0]["steps"] < setting.steps, early, late


def optimal(weights, problem):
    """Return whether the selected tokens are optimal, each with a probability of at least `tokens.SATURATED`."""
    globally = tokens.is_globally_optimal(tokens.scores(problem), tokens.selected(weights, problem))
    return globally & (tokens.saturation(weights, problem) >= tokens.SATURATED)


def test_seeds_that_end_early_select_what_they_would_select_after_all_steps():
    setting = replace(settings()["KQ n=5 T=5 d=10"], seeds=48, steps=400)
    ends_early, early, late = compared(setting)
    np.testing.assert_array_equal(early, late)
    assert early[ends_early].all()
    assert 24 < ends_early.sum() < 48
    taken = setting.block(np.arange(8), np.asarray(jax.random.key_data(jax.random.key(setting.key))))["steps"]
    assert set(taken % 100) == {0}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_none_of_the_published_problems_changes_its_selection_later():
    """51,600 trainings, of W and of (K, Q) on 25,800 problems: half an hour."""
    ends = {name: compared(setting) for name, setting in settings().items()}
    assert sum(early.size for early, _, _ in ends.values()) == 51_600
    for name, (ends_early, early, late) in ends.items():
        assert late[ends_early].all(), name
        np.testing.assert_allclose(early.mean(), late.mean(), atol=0.002, err_msg=name)
    assert np.mean(np.concatenate([ends_early for ends_early, _, _ in ends.values()])) > 0.7


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"noise": descent.dropout(0.1)}, "noise, head: expected full_batch and linear"),
        ({"head": heads.mlp}, "noise, head: expected full_batch and linear"),
        ({"optimizer": optax.adam(0.1)}, "optimizer: expected gd or normalized_gd, which keep no state"),
    ],
)
def test_what_may_change_a_selection_or_needs_a_state_is_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        replace(settings()["W n=5 T=5 d=4"], **changed)
