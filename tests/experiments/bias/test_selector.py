"""The selector: the verdicts, what a trained record gives, and how runs are compared seed by seed."""

import jax
import numpy as np
import pytest

from jaxattn import data, descent, initial, models, svm, tokens
from jaxattn.experiments.bias.selector import examples, figure
from jaxattn.experiments.bias.selector.claims import CLAIMS, summarize
from jaxattn.experiments.bias.selector.measure import GUMBEL, HEADS, ONE_HOT, PLAIN, RANDOM, ROTARY, entropy, measure
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import schedule
from tests.instances import drawn_lines
from tests.recorded import problem_of, recorded

KEY = jax.random.key(0)


def verdicts(datasets):
    summaries = summarize(datasets, KEY)
    return {claim.id.partition(":")[2]: claim.judge(summaries).verdict for claim in CLAIMS}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "changed"),
    [
        ({}, {}),
        # The Frobenius problem is no longer alone: which norm it is cannot be told.
        ({GUMBEL: {"rival": 0.99}}, {"gumbel-norm": Verdict.OPEN}),
        ({entropy(0.1): {"ratio": 0.8, "rival": 0.99}}, {"entropy-norm": Verdict.FAILS}),
        # What one weight refutes, an open one does not change.
        ({entropy(0.1): {"ratio": 0.7}, entropy(1.0): {"ratio": 0.97}}, {"entropy-norm": Verdict.FAILS}),
        ({entropy(1.0): {"same": 0.9}}, {"entropy-tokens": Verdict.CORRECTED}),
    ],
)
def test_each_run_decides_its_own_claims(changes, changed):
    expected = dict.fromkeys(("entropy-tokens", "gumbel-tokens", "entropy-norm", "gumbel-norm"), Verdict.HOLDS)
    found = verdicts(examples.runs(**changes))
    assert {name: found[name] for name in expected} == expected | changed


@pytest.mark.slow
def test_an_attention_that_is_spread_selects_nothing():
    datasets = dict(examples.runs())
    one = datasets[GUMBEL]
    datasets[GUMBEL] = one.assign(probability=one["probability"] - 0.5)
    assert verdicts(datasets)["gumbel-tokens"] is Verdict.FAILS
    assert verdicts(datasets)["gumbel-norm"] is Verdict.OPEN


@pytest.mark.slow
def test_seeds_are_paired():
    """Of seeds that one run lacks, none is compared; the difference is that of each seed."""
    datasets = dict(examples.runs())
    heads, base = examples.run(HEADS, ratio=0.991), datasets[RANDOM]
    # One seed that selects late does not outweigh the others.
    heads["margin_ratio"][60] = -1.0
    datasets[HEADS] = heads.isel(seed=slice(50, 150))
    one = summarize(datasets, KEY)[HEADS]
    off = [np.log10(1 - each["margin_ratio"].sel(norm="frobenius").values[50:150]) for each in (base, heads)]
    assert float(one["gain"]) == pytest.approx((off[0] - off[1]).mean(), rel=1e-12)
    assert float(one["gain"]) > 0
    datasets[HEADS] = heads.assign_coords(seed=heads["seed"] + 1000)
    with pytest.raises(ValueError, match="selector: expected a seed that two heads and random start both kept"):
        summarize(datasets, KEY)


def test_a_claim_without_its_runs_is_withheld():
    found = {claim.id: claim.judge(summarize({PLAIN: examples.run(PLAIN)}, KEY)) for claim in CLAIMS}
    assert {one.verdict for one in found.values()} == {Verdict.OPEN}
    assert "found the runs ['plain']" in found["selector:heads"].note


@pytest.mark.slow
def test_the_figure_draws_the_mean_distances():
    summaries = summarize(examples.runs(), KEY)
    panels = figure.draw(summaries).axes
    for axes, runs in zip(
        panels[1:],
        ((PLAIN, *map(entropy, examples.WEIGHTS), GUMBEL), (PLAIN, ROTARY, ONE_HOT, RANDOM, HEADS)),
        strict=True,
    ):
        for line, run in zip(drawn_lines(axes, least=3), runs, strict=True):
            np.testing.assert_allclose(np.log10(line[1]), summaries[run]["off"])


RULE = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
CONFIGS = {
    PLAIN: {},
    entropy(0.5): {"penalty": {"_target_": "jaxattn.descent.entropy", "weight": 0.5}},
    GUMBEL: {"noise": {"_target_": "jaxattn.descent.gumbel", "tau": 1.0}},
    RANDOM: {"weights": {"_target_": "jaxattn.initial.free", "_partial_": True}},
    HEADS: {"model": {"_target_": "jaxattn.models.summed", "count": 2}},
    ROTARY: {"model": {"_target_": "jaxattn.models.rotary", "query": 0}},
    ONE_HOT: {"model": {"_target_": "jaxattn.models.key_only", "P": {"_target_": "numpy.eye", "N": 3, "M": 2}}},
}


def record_of(path, run):
    def two(key, d):
        return initial.several(key, d)

    given = {
        entropy(0.5): {"penalty": descent.entropy(0.5)},
        GUMBEL: {"noise": descent.gumbel(1.0)},
        HEADS: {"model": models.summed(2)},
        ROTARY: {"model": models.rotary()},
        ONE_HOT: {"model": models.key_only(np.eye(3, 2))},
    }
    starts = {RANDOM: initial.free, HEADS: two}
    setting = {"optimizer": RULE, "seeds": 4, "steps": 40, "snapshots": schedule.Evenly(10), "config": CONFIGS[run]}
    return recorded(path, data.three_tokens, starts.get(run, initial.free_zero), **setting, **given.get(run, {}))


@pytest.mark.slow
@pytest.mark.parametrize("run", CONFIGS)
def test_a_record_is_measured_and_looks_like_the_examples(tmp_path, run):
    record = record_of(tmp_path, run)
    one, made = measure(record), examples.run(run)
    assert one.attrs["run"] == run
    assert {name: made[name].dims for name in made.data_vars} == {name: one[name].dims for name in one.data_vars}
    assert set(made.attrs) <= set(one.attrs)
    assert one["norm"].values.tolist() == made["norm"].values.tolist()
    if run in (PLAIN, GUMBEL):
        for k, seed in enumerate(one["seed"].values):
            expected = tokens.selected(record["W"].values[seed], problem_of(record, seed))
            np.testing.assert_array_equal(one["selected"].values[k], expected)
    if run == HEADS:
        assert one.sizes["input"] == 2 * record.sizes["input"]


def test_a_solver_is_refused(tmp_path):
    with pytest.raises(ValueError, match="svm: expected native"):
        measure(examples.run(PLAIN), solver=svm.Cvxpy())
