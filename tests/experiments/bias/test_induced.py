"""Induced norms: verdicts on planted runs, what a trained record gives, and what the figure shows."""

from functools import partial
from typing import Any

import jax
import pytest
from matplotlib.patches import Rectangle
from omegaconf import OmegaConf

from jaxattn import data, descent, initial, svm
from jaxattn.experiments.bias.induced import examples, figure
from jaxattn.experiments.bias.induced.claims import CLAIMS, summarize
from jaxattn.experiments.bias.induced.measure import measure
from jaxattn.experiments.bias.induced.predictions import PREDICTIONS
from jaxattn.experiments.bias.rules import described
from jaxattn.study.claims import Verdict
from jaxattn.study.configuration import composition
from jaxattn.study.making import configurations
from jaxattn.study.settings import schedule
from tests.recorded import recorded

KEY = jax.random.key(0)
BY_NAME = {one.name: one for one in PREDICTIONS}


@pytest.mark.parametrize(
    ("name", "ratios", "changes", "verdict"),
    [
        ("rows-10", {"gamma2": 0.99}, {}, Verdict.HOLDS),
        ("rows-10", {"spectral": 0.99}, {}, Verdict.FAILS),
        ("sign-40", {"sign": 0.95}, {"moving": 0.02}, Verdict.OPEN),
        ("sign-40", {"sign": 0.95}, {}, Verdict.FAILS),
    ],
)
def test_a_prediction_is_judged_by_the_verdict_of_its_run(name, ratios, changes, verdict):
    summaries = summarize({name: examples.run(BY_NAME[name], ratios, **changes)}, KEY)
    (claim,) = (one for one in CLAIMS if one.id == f"atlas-induced:{name}")
    assert claim.judge(summaries).verdict is verdict


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_prediction_has_one_run_of_the_configuration():
    rows = []
    for config in configurations("atlas-induced", []):
        given: Any = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
        setting: Any = composition.setting_of(config)
        assert isinstance(setting.optimizer, descent.ScaleFree)
        words = described(given, "KQ") | {"m": str(given["weights"]["m"])}
        rows.append({name: words[name] for name in PREDICTIONS[0].row})
    assert sorted(map(str, rows)) == sorted(str(dict(one.row)) for one in PREDICTIONS)


@pytest.mark.slow
def test_a_record_is_measured_and_looks_like_the_examples(tmp_path):
    law, kept = partial(data.sphere, n=2, T=3, d=3), schedule.Logarithmically(2)
    rule = descent.steepest("2,inf", descent.falling_step(0.3))
    optimizer = {"_target_": "jaxattn.descent.steepest", "norm": "2,inf", "step": {"step": 0.3, "power": 0.5}}
    config = {
        "optimizer": optimizer,
        "data": {"n": 6, "T": 8, "d": 10},
        "weights": {"_target_": "jaxattn.initial.factored", "m": 4},
        "precision": "float64",
    }
    start = partial(initial.factored, m=4)
    record: Any = recorded(tmp_path, law, start, rule, config, seeds=2, steps=100, snapshots=kept)
    one, made = measure(record), examples.run(BY_NAME["rows-10"], {})
    assert one.attrs["run"] == "KQ, steepest 2,inf, step 0.3 k^-1/2, m = 4"
    assert {name: made[name].dims for name in made.data_vars} == {name: one[name].dims for name in one.data_vars}
    assert one["norm"].values.tolist() == made["norm"].values.tolist()
    assert one["snapshot"].values.tolist() == [10, 32, 100]
    assert float(one["margin_ratio"].max()) <= 1 + 1e-6
    for name in ("weights", "rule", "step"):
        assert one.attrs[name] == made.attrs[name]
    other: Any = svm.ActiveSet()
    with pytest.raises(ValueError, match=r"^svm: expected native"):
        measure(record, solver=other)


def test_the_figure_shows_every_ratio_and_frames_the_induced_norm():
    summaries = summarize(examples.all_runs(), KEY)
    (axes,) = figure.draw(summaries).axes
    count = len(CLAIMS)
    assert axes.get_title() == f"In all {count} runs the induced norm is closest and named by the verdict"
    shown = sorted(text.get_text() for text in axes.texts if text.get_text().startswith("."))
    assert shown == sorted(f"{ratio:.3f}"[1:] for one in summaries.values() for ratio in one["ratio"].values)
    assert len([patch for patch in axes.patches if isinstance(patch, Rectangle)]) == len(PREDICTIONS)
