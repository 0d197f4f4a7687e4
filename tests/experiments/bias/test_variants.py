"""Variants of attention: verdicts on planted runs, what trained records give, and what the figure shows."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.patches import Rectangle
from omegaconf import OmegaConf

from jaxattn import bias, data, descent, initial, models, svm
from jaxattn.experiments.bias.variants import examples, figure
from jaxattn.experiments.bias.variants.claims import CLAIMS, summarize
from jaxattn.experiments.bias.variants.measure import measure
from jaxattn.experiments.bias.variants.predictions import PREDICTIONS
from jaxattn.experiments.bias.variants.runs import OWN, described, said_of
from jaxattn.study.claims import Verdict
from jaxattn.study.configuration import composition
from jaxattn.study.making import configurations
from jaxattn.study.settings import schedule
from tests.recorded import recorded

KEY = jax.random.key(0)
BY_ID = {f"{name}:{one.name}": one for name, predictions in PREDICTIONS.items() for one in predictions}
RULE = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)


def judged(name, *given, **changes):
    summaries = summarize({"run": examples.run(BY_ID[name], *given, **changes)}, KEY)
    (claim,) = (one for one in CLAIMS if one.id == name)
    return claim.judge(summaries)


@pytest.mark.parametrize(
    ("name", "ratios", "changes", "verdict"),
    [
        ("atlas-positions:w-rotary", {"frobenius": 0.99}, {}, Verdict.HOLDS),
        ("atlas-positions:w-rotary", {"nuclear": 0.99}, {}, Verdict.FAILS),
        ("atlas-positions:kq-rotary", {"nuclear": 0.99}, {}, Verdict.HOLDS),
        ("atlas-values:w", {"frobenius": 0.7}, {"moving": 0.05}, Verdict.OPEN),
        ("atlas-heads:w-2-each", {"frobenius": 0.99}, {}, Verdict.HOLDS),
        ("atlas-heads:w-2-each", {"frobenius": 0.9}, {}, Verdict.FAILS),
        ("atlas-heads:w-2-joint", {"frobenius": 0.99}, {"probability": 0.9}, Verdict.OPEN),
    ],
)
def test_a_prediction_is_judged_by_the_verdict_of_its_run(name, ratios, changes, verdict):
    assert judged(name, ratios, **changes).verdict is verdict


def test_a_claim_about_each_head_reads_no_joint_ratio():
    """In the planted run the joint ratios are half of those of the heads."""
    name = "atlas-heads:w-2-each"
    summaries = summarize({"run": examples.run(BY_ID[name], {"frobenius": 0.99})}, KEY)
    assert {one.attrs["about"] for one in summaries.values()} == {OWN, said_of("heads")}
    assert judged(name, {"frobenius": 0.99}).measured["margin ratio, frobenius"] == pytest.approx(0.99, abs=1e-3)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PREDICTIONS)
def test_every_prediction_has_one_run_of_the_configuration(name):
    made = []
    for config in configurations(name, []):
        given: Any = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
        made.append(described(given))
        setting: Any = composition.setting_of(config)
        # What stalls says nothing about limits.
        assert isinstance(setting.optimizer, descent.ScaleFree)
    assert len({one["run"] for one in made}) == len(made)
    for prediction in PREDICTIONS[name]:
        row = dict(prediction.row)
        about = row.pop("about")
        (run,) = (one for one in made if all(one[key] == value for key, value in row.items()))
        assert about in (OWN, run["other"])


def config_of(**changed):
    given = {
        "model": {"_target_": "jaxattn.models.TransformedInputs"},
        "weights": {"_target_": "jaxattn.initial.free"},
        "optimizer": {"_target_": "jaxattn.descent.normalized_gd"},
        "noise": {"_target_": "jaxattn.descent.full_batch"},
        "data": {"_target_": "jaxattn.data.sphere"},
    }
    return given | changed


def trained(tmp_path, law, config, **given):
    laws, kept = partial(data.sphere, n=3, T=4, d=5), schedule.Logarithmically(4)
    return recorded(tmp_path, laws, law, RULE, config, seeds=8, steps=200, snapshots=kept, **given)


@pytest.mark.slow
def test_heads_are_measured_together_and_each_alone(tmp_path):
    config = config_of(model={"_target_": "jaxattn.models.summed", "count": 2})
    record: Any = trained(tmp_path, initial.several, config, model=models.summed(2))
    one, made = measure(record), examples.run(BY_ID["atlas-heads:w-2-alone-each"], {})
    for name in ("model", "weights", "rule", "noise", "other"):
        assert one.attrs[name] == made.attrs[name]
    assert {name: made[name].dims for name in made.data_vars} == {name: one[name].dims for name in one.data_vars}
    runs = [
        bias.rank(
            descent.Run(
                record[f"W{h}"].values,
                record[f"W{h}_snapshots"].values[:, 1:],
                **{name: record[name].values for name in ("probability", "loss", "gradient_norm", "stalled")},
                snapshot_steps=jnp.tile(record["snapshot"].values[1:], (8, 1)),
            ),
            jax.vmap(lambda words: data.sphere(jax.random.wrap_key_data(words), n=3, T=4, d=5))(
                record["data_key"].values
            ),
        )
        for h in range(2)
    ]
    least = np.minimum(runs[0].margin_ratio, runs[1].margin_ratio)
    np.testing.assert_allclose(one["other"].values[..., -least.shape[2] :], least, rtol=1e-9)


def test_positions_are_measured_with_and_without(tmp_path):
    config = config_of(model={"_target_": "jaxattn.models.rotary"})
    one = measure(trained(tmp_path, initial.free, config, model=models.rotary()))
    assert one.attrs["run"] == "W, rotary positions, normalized GD"
    assert one.attrs["other"] == said_of("tokens")
    assert np.abs(one["other"] - one["margin_ratio"]).max() > 0.05
    other: Any = svm.ActiveSet()
    with pytest.raises(ValueError, match=r"^svm: expected native"):
        measure(trained(tmp_path, initial.free, config, model=models.rotary()), solver=other)


@pytest.mark.parametrize("name", PREDICTIONS)
def test_the_figure_shows_every_ratio_and_frames_what_is_predicted(name):
    summaries = summarize(examples.runs(PREDICTIONS[name]), KEY)
    (axes,) = figure.draw(summaries).axes
    count = len(PREDICTIONS[name])
    assert axes.get_title() == f"All {count} predicted limits are confirmed"
    shown = sorted(text.get_text() for text in axes.texts if text.get_text().startswith("."))
    assert shown == sorted(f"{ratio:.3f}"[1:] for one in summaries.values() for ratio in one["ratio"].values)
    assert len([patch for patch in axes.patches if isinstance(patch, Rectangle)]) == count
