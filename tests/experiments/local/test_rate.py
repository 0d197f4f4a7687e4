"""The rate of long runs: verdicts on the claims, and what the figure draws."""

import jax
import pytest

from jaxattn.experiments.local.made import STEPS
from jaxattn.experiments.local.rate import claims as rate
from jaxattn.experiments.local.rate import examples, figure
from jaxattn.study.claims import Verdict

KEY = jax.random.key(0)
HOLDS, CORRECTED, FAILS, OPEN = Verdict.HOLDS, Verdict.CORRECTED, Verdict.FAILS, Verdict.OPEN
FAST, STANDS = 1e3 * STEPS**-2.0, 1e-2


def judged(datasets):
    summaries = rate.summarize(datasets, KEY)
    return summaries, [claim.judge(summaries) for claim in rate.CLAIMS]


@pytest.mark.parametrize(
    ("exact_W", "exact_KQ", "published", "verdicts"),
    [
        (FAST, STANDS, 5e-3, (CORRECTED, FAILS)),
        (1e1 * STEPS**-1.0, STANDS, 5e-3, (FAILS, FAILS)),
        (1e6 * STEPS**-2.0, STANDS, 5e-3, (FAILS, FAILS)),
        # What is published is fast, too: there is nothing to correct.
        (FAST, FAST, FAST, (HOLDS, HOLDS)),
        # On either side of the exponents that count as -2, and at one of them.
        (1e2 * STEPS**-1.75, 1e2 * STEPS**-1.65, 5e-3, (FAILS, FAILS)),
        (1e4 * STEPS**-2.25, 1e4 * STEPS**-2.35, 5e-3, (FAILS, FAILS)),
        (1e2 * STEPS**-1.85, 1e2 * STEPS**-1.95, 5e-3, (CORRECTED, HOLDS)),
        (1e2 * STEPS**-1.8, 1e2 * STEPS**-1.8, 5e-3, (OPEN, OPEN)),
        # As fast, and at the last step just not near enough, or near enough or not.
        (1.4e-6 * (STEPS / STEPS[-1]) ** -2.0, FAST, 5e-3, (FAILS, HOLDS)),
        (1e-6 * (STEPS / STEPS[-1]) ** -2.0, FAST, 5e-3, (OPEN, HOLDS)),
    ],
)
def test_the_verdicts_on_the_rates_follow_the_runs(exact_W, exact_KQ, published, verdicts):
    summaries, found = judged(examples.runs(published, exact_W, published, exact_KQ))
    assert tuple(one.verdict for one in found) == verdicts
    assert len(figure.draw(summaries).axes) == 2


def test_the_correction_says_how_far_both_forms_come():
    _, (of_W, of_KQ) = judged(examples.of_W()[CORRECTED])
    assert "where 100% of the seeds are below 1e-6" in of_W.note
    assert "ends at 0.005" in of_W.note
    assert "The published run ends at 0.005" in of_KQ.note
    assert not of_KQ.corrected


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
