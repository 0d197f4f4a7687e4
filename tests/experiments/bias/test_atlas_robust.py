"""The atlas with changes: what counts as a verdict that changes, and what the figure shows."""

from typing import Any

import jax
import pytest
from omegaconf import OmegaConf

from jaxattn.experiments.bias.atlas_robust import examples, figure
from jaxattn.experiments.bias.atlas_robust.claims import CLAIMS, VARIANTS, pairs, summarize
from jaxattn.experiments.bias.rules import RULES, STEPS, described
from jaxattn.study.claims import Verdict
from jaxattn.study.configuration import composition
from jaxattn.study.making import configurations

KEY = jax.random.key(0)
EVERY = tuple(variant for variants in VARIANTS.values() for variant in variants)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, Verdict.HOLDS),
        ({"changed": 0.98}, Verdict.HOLDS),
        ({"changed": 0.9}, Verdict.FAILS),
        ({"changed": 0.9, "moving": 0.05}, Verdict.OPEN),
    ],
)
def test_a_decided_verdict_must_not_change(changes, verdict):
    summaries = summarize(examples.runs(VARIANTS["sizes"], **changes), KEY)
    found = {claim.id: claim.judge(summaries) for claim in CLAIMS}
    assert found["atlas-robust:sizes"].verdict is verdict
    assert found["atlas-robust:starts"].note == "These runs are not made at this size."
    if verdict is Verdict.FAILS:
        note = "Changed: W, sign descent, constant, (4, 4, 6): none of these."
        assert found["atlas-robust:sizes"].note == note


def test_runs_are_compared_with_the_same_rule_without_the_change():
    found = pairs(summarize(examples.runs(EVERY), KEY), EVERY)
    assert len(found) == 2 * len(EVERY)
    for pair in found:
        assert pair.usual.attrs["variant"] == ""
        assert all(pair.usual.attrs[name] == pair.changed.attrs[name] for name in ("weights", "rule", "step"))


def test_the_figure_says_that_no_verdict_changes_or_is_open():
    (axes,) = figure.draw(summarize(examples.runs(EVERY), KEY)).axes
    assert axes.get_title() == f"All {2 * len(EVERY)} verdicts stay the same whatever the size, start or precision"
    (axes,) = figure.draw(summarize(examples.runs(EVERY, changed=0.9, moving=0.05), KEY)).axes
    assert axes.get_title().startswith(f"None of {2 * len(EVERY)} verdicts change")
    assert axes.get_title().endswith("not decided")


def test_the_figure_says_how_many_verdicts_change():
    drawn = figure.draw(summarize(examples.runs(EVERY, changed=0.9), KEY))
    (axes,) = drawn.axes
    assert axes.get_title() == f"1 of {2 * len(EVERY)} verdicts changes with size, start or precision"
    texts = [text.get_text() for text in axes.texts]
    assert sum(text == ".900\nmax, none" for text in texts) == 1
    assert sum(text == ".990\nspec." for text in texts) == 1 + len(EVERY)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_change_of_the_configuration_is_known():
    made = []
    for config in configurations("atlas-robust", []):
        given: Any = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
        made.append(described(given, "KQ" if "factored" in config.weights._target_ else "W"))
        composition.setting_of(config)
    assert {one["variant"] for one in made} == {"", *EVERY}
    assert {one["rule"] for one in made} <= set(RULES)
    assert {one["step"] for one in made} <= set(STEPS)
    rows = {(one["weights"], one["rule"], one["step"]) for one in made}
    assert rows == {(one["weights"], one["rule"], one["step"]) for one in made if one["variant"] == ""}
