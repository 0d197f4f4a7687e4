"""Synthetic measurements of variants of attention: what is compared with which problem, and what records give."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.patches import Rectangle

from jaxattn import bias, data, descent, initial, models, svm
from jaxattn.experiments.bias.variants import EXPERIMENT, measure
from jaxattn.study.settings import schedule
from tests.experiments.bias import synthetic
from tests.recorded import recorded

pytestmark = pytest.mark.usefixtures("drawn_once")
KEY = jax.random.key(0)
EXPERIMENTS = ("atlas-heads", "atlas-positions", "atlas-normalized", "atlas-values", "atlas-noise")
VERDICTS = {"atlas-heads:w-2": "does not hold", "atlas-values:w": "not decided"}
SEEN = ("rotary", "positions", "normalized tokens")
OTHERS = {"heads": "each head's own problem"} | dict.fromkeys(SEEN, "the tokens as given")


def measured():
    """All runs as predicted, but the joint problem of two heads, and trained values, whose ratio is still rising."""
    return {
        **{name: run(name) for experiment in EXPERIMENTS for name in synthetic.run_names(experiment)},
        "W, 2 heads added up, normalized GD, one norm": run("W, 2 heads", own=0.9),
        "W, trained values, normalized GD": run("W, trained values", own=0.9, moving=0.2),
    }


def run(name, own=0.99, moving=0.0):
    """A run that obeys the predicted norm in its own problem and with each head alone, not with the tokens as given."""
    norm = "max" if "sign" in name else "nuclear" if name.startswith("KQ") else "frobenius"
    found = synthetic.run({norm: own}, bias.NORMS, moving)
    other = next((other for word, other in OTHERS.items() if word in name), "")
    if other:
        alone = synthetic.run({norm: 0.99 if "head" in other else 0.5}, bias.NORMS)
        found["other"] = alone["margin_ratio"]
    return found.assign_attrs(other=other)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_the_figure_has_every_ratio_and_frames_what_is_predicted(experiment):
    runs = {name: run(name) for name in synthetic.run_names(experiment)}
    summaries, claims = EXPERIMENT.estimates(runs, KEY), EXPERIMENT.of(experiment)
    assert EXPERIMENT.draw is not None
    (axes,) = EXPERIMENT.draw(summaries, {claim.id: claim.judge(summaries) for claim in claims}).axes
    shown = sorted(text.get_text() for text in axes.texts if text.get_text().startswith("."))
    assert shown == sorted(f"{ratio:.3f}"[1:] for summary in summaries.values() for ratio in summary["ratio"].values)
    frames = {"atlas-heads": 10, "atlas-positions": 6, "atlas-normalized": 4, "atlas-values": 2, "atlas-noise": 8}
    assert len([patch for patch in axes.patches if isinstance(patch, Rectangle)]) == frames[experiment]


ROTARY, ADDED = "W, rotary positions, normalized GD", "KQ, added positions, normalized GD"


@pytest.mark.parametrize(("rotary", "verdict"), [(0.99, "not decided"), (0.9, "does not hold")])
def test_rows_of_one_theorem_are_one_claim_that_each_of_them_can_refute(rotary, verdict):
    runs = {name: run(name) for name in synthetic.run_names("atlas-positions")}
    runs |= {ROTARY: run(ROTARY, own=rotary), ADDED: run(ADDED, own=0.9, moving=0.2)}
    (claim,) = EXPERIMENT.of("atlas-positions")
    found = claim.judge(EXPERIMENT.estimates(runs, KEY))
    assert found.verdict == verdict
    assert len(found.stated) == 12
    assert ADDED in "".join(found.numbers)


def trained(tmp_path, start, model):
    law, rule = partial(data.sphere, n=3, T=4, d=5), descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
    target = {models.Heads: {"_target_": "jaxattn.models.summed", "count": 2}}
    config = {"model": target.get(type(model), {"_target_": "jaxattn.models.rotary"})}
    kept = schedule.Logarithmically(4)
    return recorded(tmp_path, law, start, rule, config, seeds=8, steps=200, snapshots=kept, model=model)


@pytest.mark.slow
def test_heads_are_measured_together_and_each_alone(tmp_path):
    record: Any = trained(tmp_path, initial.several, models.summed(2))
    found, planted = measure(record), run("2 heads")
    assert found.attrs["other"] == planted.attrs["other"]
    assert {name: found[name].dims for name in found} == {name: array.dims for name, array in planted.items()}
    problems = jax.vmap(lambda words: data.sphere(jax.random.wrap_key_data(words), n=3, T=4, d=5))(
        record["data_key"].values
    )
    series: Any = {name: record[name].values for name in ("probability", "loss", "gradient_norm", "stalled")}
    steps = jnp.tile(record["snapshot"].values[1:], (8, 1))
    runs = [
        descent.Run(record[W].values, record[f"{W}_snapshots"].values[:, 1:], **series, snapshot_steps=steps)
        for W in ("W0", "W1")
    ]
    least = np.minimum(*(bias.rank(run, problems).margin_ratio for run in runs))
    np.testing.assert_allclose(found["other"].values[..., -least.shape[2] :], least, rtol=1e-9)


@pytest.mark.slow
def test_positions_are_measured_with_and_without(tmp_path):
    record = trained(tmp_path, initial.free, models.rotary())
    found = measure(record)
    assert found.attrs["other"] == OTHERS["rotary"]
    assert np.abs(found["other"] - found["margin_ratio"]).max() > 0.05
    with pytest.raises(ValueError, match=r"^svm: expected native"):
        measure(record, solver=svm.Cvxpy())
