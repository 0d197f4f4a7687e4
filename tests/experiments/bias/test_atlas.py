"""Synthetic measurements of the atlas: verdicts, the rows of the figure, and what a trained record gives."""

import jax
import pytest
from matplotlib.patches import Rectangle

from jaxattn.experiments.bias.atlas import EXPERIMENT, PREDICTIONS, view
from jaxattn.experiments.bias.ratios import NORMS, estimate
from jaxattn.study.claims import Verdict
from tests.experiments.bias import synthetic

pytestmark = pytest.mark.usefixtures("drawn_once")
KEY = jax.random.key(0)
REFUTED, OPEN = "w-momentum-constant", "w-sign-constant"
VERDICTS = {f"atlas:{REFUTED}": "does not hold", f"atlas:{OPEN}": "not decided"}


def measured():
    """All runs as predicted, but one that obeys no norm and one whose ratio may still fall."""
    norms = {each.run: each.norm for each in PREDICTIONS}
    runs = {name: synthetic.run({norms.get(name, "nuclear"): 0.99}) for name in synthetic.run_names("atlas")}
    changes = {REFUTED: synthetic.run({}), OPEN: synthetic.run({"max": 0.99}, moving=-0.1)}
    turning = synthetic.run({"max": 0.7}, moving=0.1)
    turning["margin_ratio"].loc[{"norm": "max"}] = 1.4 - turning["margin_ratio"].sel(norm="max")
    runs["W, Adam, eps = 1e-8, constant"] = turning
    return runs | {each.run: changes[each.name] for each in PREDICTIONS if each.name in changes}


@pytest.mark.parametrize(
    ("ratios", "moving", "verdict", "note"),
    [
        # Named together with another that is as close.
        ({"max": 0.99, "spectral": 0.99}, 0.0, Verdict.HOLDS, ""),
        ({"max": 0.99, "spectral": 0.999}, 0.0, Verdict.FAILS, ""),
        ({"max": 0.99}, 0.05, Verdict.HOLDS, ""),
        ({"max": 0.9}, 0.2, Verdict.OPEN, "Of 20 seeds, 0 obey max and 0 do not"),
    ],
)
def test_a_prediction_is_judged_by_the_verdict_of_its_run(ratios, moving, verdict, note):
    runs = {"run": estimate(synthetic.run(ratios, moving=moving), KEY)}
    judgement = PREDICTIONS[0]._replace(norm="max", run="run").judge(runs)
    assert judgement.verdict is verdict
    assert judgement.note.startswith(note)


def test_the_figure_has_every_run_and_frames_what_is_predicted():
    runs = measured()
    summaries = EXPERIMENT.estimates(runs, KEY)
    assert EXPERIMENT.draw is not None
    figure = EXPERIMENT.draw(summaries, {claim.id: claim.judge(summaries) for claim in EXPERIMENT.claims})
    for axes, weights in zip(figure.axes, ("W", "KQ"), strict=True):
        drawn = [summary for name, summary in summaries.items() if name.startswith(f"{weights},")]
        texts = [text.get_text()[:4] for text in axes.texts if text.get_text().startswith(".")]
        assert sorted(texts) == sorted(f"{ratio:.3f}"[1:] for run in drawn for ratio in run["ratio"].values)
        frames = sorted(patch.get_xy() for patch in axes.patches if isinstance(patch, Rectangle))
        predicted = [(NORMS.index(each.norm), each.run) for each in PREDICTIONS if each.run.startswith(f"{weights},")]
        assert [round(x + 0.45) for x, _ in frames] == sorted(norm for norm, _ in predicted)
    assert len(view(runs)["rows"]) == len(runs)
