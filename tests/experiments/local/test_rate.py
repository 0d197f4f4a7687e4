"""The rate of long runs: verdicts on the claims, and what the figure draws."""

import jax
import numpy as np
import pytest

from jaxattn.experiments.local.made import STEPS
from jaxattn.experiments.local.rate import claims as rate
from jaxattn.experiments.local.rate import examples, figure
from jaxattn.study.claims import Verdict

KEY = jax.random.key(0)
HOLDS, CORRECTED, FAILS, OPEN = Verdict.HOLDS, Verdict.CORRECTED, Verdict.FAILS, Verdict.OPEN
FAST, STANDS, GOES_ON = 1e3 * STEPS**-2.0, 1e-2, 0.1 * STEPS**-0.5


def judged(datasets):
    summaries = rate.summarize(datasets, KEY)
    return summaries, [claim.judge(summaries) for claim in rate.CLAIMS]


@pytest.mark.parametrize(
    ("exact_W", "falling", "published", "verdicts"),
    [
        (FAST, GOES_ON, 5e-3, (CORRECTED, CORRECTED)),
        (1e1 * STEPS**-1.0, STANDS, 5e-3, (FAILS, FAILS)),
        (1e6 * STEPS**-2.0, GOES_ON, GOES_ON, (FAILS, HOLDS)),
        # What is published is fast, too: there is nothing to correct.
        (FAST, FAST, FAST, (HOLDS, HOLDS)),
        # On either side of the exponents that count as -2, and at one of them.
        (1e2 * STEPS**-1.75, GOES_ON, 5e-3, (FAILS, CORRECTED)),
        (1e4 * STEPS**-2.25, GOES_ON, 5e-3, (FAILS, CORRECTED)),
        (1e2 * STEPS**-1.85, GOES_ON, 5e-3, (CORRECTED, CORRECTED)),
        (FAST, FAST, 1e2 * STEPS**-1.8, (OPEN, HOLDS)),
        # As fast, and at the last step just not near enough.
        (1.4e-6 * (STEPS / STEPS[-1]) ** -2.0, GOES_ON, 5e-3, (FAILS, CORRECTED)),
        # On either side of the exponent that counts as going on, and at it.
        (FAST, 0.1 * STEPS**-0.3, 5e-3, (CORRECTED, CORRECTED)),
        (FAST, 0.1 * STEPS**-0.02, 5e-3, (CORRECTED, FAILS)),
        (FAST, GOES_ON, 0.1 * STEPS**-0.12, (CORRECTED, OPEN)),
    ],
)
def test_the_verdicts_on_the_rates_follow_the_runs(exact_W, falling, published, verdicts):
    summaries, found = judged(examples.runs(published, exact_W, published, STANDS, falling))
    assert tuple(one.verdict for one in found) == verdicts, [*map(str, (*found[0].stated, *found[1].stated))]
    assert len(figure.draw(summaries).axes) == 2


def test_the_key_says_what_falls_what_rises_and_what_the_bands_are():
    summaries = rate.summarize(examples.runs(1e-8 * STEPS, FAST, STANDS, STANDS, GOES_ON), KEY)
    legends = [axes.get_legend() for axes in figure.draw(summaries).axes]
    keys = [[text.get_text() for text in legend.get_texts()] for legend in legends if legend is not None]
    of_W, of_KQ = ([line.partition(": ")[2] for line in key if ": " in line] for key in keys)
    assert of_W == ["rises like $k^{1.00}$", "falls like $k^{-2.00}$"]
    assert of_KQ == ["level", "level", "falls like $k^{-0.50}$"]
    assert [key[-1] for key in keys] == ["10 % to 90 % of the seeds"] * 2


def test_the_correction_says_how_far_each_form_comes():
    drifts = 2e-3 * np.maximum(STEPS / 2054, 2054 / STEPS)
    _, (of_W, of_KQ) = judged(examples.runs(drifts, FAST, 5e-3, 6e-3))
    assert "where 100% of the seeds are below 1e-6" in of_W.note
    assert (
        "is nearest at step 2054, with 1 - cos = 0.002" in of_W.note
        or "is nearest at step 2131, with 1 - cos = 0.002" in of_W.note
    )
    assert "W drifts away, to 0.19" in of_W.note
    # What is expected of the published run is of its last published step.
    label = next(label for label in of_W.expected if "as published" in label)
    assert of_W.measured[label] == pytest.approx(0.002, rel=0.1)
    assert "1 - cos goes like k^-0.50, and is 0.00022 at step 200000" in of_KQ.note
    assert "ends at 0.005, where its penalty stops it" in of_KQ.note
    assert "with the published constant step at 0.006" in of_KQ.note


def test_a_short_run_decides_no_rate():
    short = {run: one.isel(snapshot=slice(10)) for run, one in examples.runs(*[1e-3] * 4).items()}
    summaries, found = judged(short)
    assert {one.verdict for one in found} == {OPEN}
    assert all("too short for a rate" in one.note for one in found)
    assert len(figure.draw(summaries).axes) == 2


def test_few_seeds_or_a_missing_run_decide_no_rate():
    runs = examples.of_W()[HOLDS]
    few = {run: one.isel(seed=slice(19)).assign_attrs(kept=19) for run, one in runs.items()}
    assert [one.note for one in judged(few)[1]] == ["19 kept seeds are too few to decide; at least 20 are needed."] * 2
    found = judged({run: one for run, one in runs.items() if one.attrs["weights"] == "W"})[1]
    assert [one.verdict for one in found] == [HOLDS, OPEN]
    assert "is missing" in found[1].note


def test_a_run_without_a_kept_seed_is_named():
    runs = dict(examples.runs(*[1e-3] * 4))
    name = next(iter(runs))
    runs[name] = runs[name].isel(seed=slice(0))
    with pytest.raises(ValueError, match="expected a kept seed in each run"):
        rate.summarize(runs, KEY)
