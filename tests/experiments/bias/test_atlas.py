"""The atlas: verdicts on planted runs, what a trained record gives, and what the figure shows."""

import functools
from typing import Any

import jax
import pytest
from matplotlib.patches import Rectangle
from omegaconf import OmegaConf

from jaxattn import data, descent, initial, svm
from jaxattn.experiments.bias.atlas import examples, figure
from jaxattn.experiments.bias.atlas.claims import CLAIMS, summarize
from jaxattn.experiments.bias.atlas.measure import measure
from jaxattn.experiments.bias.atlas.predictions import PREDICTIONS
from jaxattn.experiments.bias.ratios import run_of
from jaxattn.experiments.bias.rules import NORMS, RULES, described
from jaxattn.study.claims import Verdict
from jaxattn.study.configuration import composition
from jaxattn.study.making import configurations
from jaxattn.study.settings import schedule
from tests.recorded import recorded

KEY = jax.random.key(0)
BY_NAME = {one.name: one for one in PREDICTIONS}


def judged(name, *given, **changes):
    prediction = BY_NAME[name]
    summaries = summarize({name: examples.run(prediction, *given, **changes)}, KEY)
    (claim,) = (one for one in CLAIMS if one.id == f"atlas:{name}")
    return claim.judge(summaries)


@pytest.mark.parametrize(
    ("name", "ratios", "changes", "verdict"),
    [
        ("w-sign-constant", {"max": 0.99}, {}, Verdict.HOLDS),
        # Named together with another that is as close.
        ("w-sign-constant", {"max": 0.99, "spectral": 0.99}, {}, Verdict.HOLDS),
        ("w-sign-constant", {"max": 0.99, "spectral": 0.999}, {}, Verdict.FAILS),
        ("w-sign-constant", {"max": 0.9}, {}, Verdict.FAILS),
        ("w-sign-constant", {"max": 0.9}, {"moving": 0.05}, Verdict.OPEN),
        ("w-sign-constant", {"max": 0.99}, {"moving": -0.05}, Verdict.OPEN),
        ("w-sign-constant", {"max": 0.99}, {"moving": 0.05}, Verdict.HOLDS),
        ("w-sign-constant", {"max": 0.99}, {"probability": 0.9}, Verdict.OPEN),
        ("kq-sign-falling", {}, {}, Verdict.HOLDS),
        ("kq-sign-falling", {"nuclear": 0.99}, {}, Verdict.FAILS),
        ("kq-sign-falling", {"nuclear": 0.9}, {"moving": 0.05}, Verdict.OPEN),
    ],
)
def test_a_prediction_is_judged_by_the_verdict_of_its_run(name, ratios, changes, verdict):
    assert judged(name, ratios, **changes).verdict is verdict


def test_an_open_verdict_says_why():
    assert judged("w-gd-constant", {}, moving=0.05).note.startswith("Still moving: frobenius, ")


def test_a_run_that_is_not_made_decides_nothing():
    summaries = summarize({"w-gd-constant": examples.run(BY_NAME["w-gd-constant"], {})}, KEY)
    found = {claim.id: claim.judge(summaries) for claim in CLAIMS}
    assert found["atlas:w-sign-constant"].verdict is Verdict.OPEN
    assert found["atlas:w-sign-constant"].note == "This run is not made at this size."


def test_every_prediction_is_about_a_row_of_the_atlas():
    names = [claim.id for claim in CLAIMS]
    assert len(set(names)) == len(names) == len(PREDICTIONS)
    assert {one.norm for one in PREDICTIONS} <= {"", *NORMS}
    assert {one.rule for one in PREDICTIONS} <= set(RULES)
    summaries = summarize(examples.atlas(), KEY)
    runs: list[Any] = [run_of(summaries, **one.row) for one in PREDICTIONS]
    assert [run.attrs["run"] for run in runs] == [one.name for one in PREDICTIONS]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_prediction_has_one_run_of_the_configuration():
    made = []
    for config in configurations("atlas", []):
        given: Any = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
        made.append(described(given, "KQ" if "factored" in config.weights._target_ else "W"))
        # What stalls says nothing about limits.
        setting: Any = composition.setting_of(config)
        assert isinstance(setting.optimizer, descent.ScaleFree)
    rows = [(one["weights"], one["rule"], one["step"]) for one in made]
    assert len(set(rows)) == len(rows)
    assert {(one.weights, one.rule, one.step) for one in PREDICTIONS} <= set(rows)
    assert {one["rule"] for one in made} == set(RULES)


def test_a_run_without_seeds_is_named():
    none = examples.run(BY_NAME["w-gd-constant"], {}).isel(seed=slice(0))
    with pytest.raises(
        ValueError, match=r"^atlas: expected a kept seed in each run, found none in \['w-gd-constant'\]"
    ):
        summarize({"w-gd-constant": none}, KEY)


def test_the_figure_shows_every_ratio_and_frames_what_is_predicted():
    summaries = summarize(examples.atlas(), KEY)
    drawn = figure.draw(summaries)
    assert drawn.get_suptitle() == f"All {len(CLAIMS)} predicted limits are confirmed"
    for axes, weights in zip(drawn.axes, ("W", "KQ"), strict=True):
        own = [one for one in summaries.values() if one.attrs["weights"] == weights]
        texts = [text for text in axes.texts if text.get_text().startswith(".")]
        shown = sorted(text.get_text()[:4] for text in texts)
        assert shown == sorted(f"{ratio:.3f}"[1:] for one in own for ratio in one["ratio"].values)
        assert sum(text.get_fontweight() == "bold" for text in texts) == sum(int(one["named"].sum()) for one in own)
        framed = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
        # A whole row is framed where none of the norms is predicted.
        widths = sorted(patch.get_width() for patch in framed)
        assert widths == sorted(0.9 if one.norm else len(NORMS) - 0.1 for one in PREDICTIONS if one.weights == weights)


@pytest.mark.slow
def test_a_record_is_measured_and_looks_like_the_examples(tmp_path):
    law, kept = functools.partial(data.sphere, n=3, T=4, d=5), schedule.Logarithmically(4)
    rule = descent.steepest("spectral", descent.falling_step(0.3))
    optimizer = {"_target_": "jaxattn.descent.steepest", "norm": "spectral", "step": {"step": 0.3, "power": 0.5}}
    config = {
        "optimizer": optimizer,
        "data": {"n": 6, "T": 8, "d": 10},
        "weights": {"_target_": "jaxattn.initial.factored"},
        "precision": "float64",
    }
    record = recorded(tmp_path, law, initial.factored, rule, config, seeds=8, steps=200, snapshots=kept)
    one, made = measure(record), examples.run(BY_NAME["kq-polar-falling"], {})
    assert one.attrs["run"] == "KQ, steepest spectral, step 0.3 k^-1/2"
    assert {name: made[name].dims for name in made.data_vars} == {name: one[name].dims for name in one.data_vars}
    assert set(made.attrs) == set(one.attrs)
    for name in ("weights", "rule", "step", "variant"):
        assert one.attrs[name] == made.attrs[name]
    with pytest.raises(ValueError, match=r"^svm: expected native"):
        measure(record, solver=svm.PathFollowing())
