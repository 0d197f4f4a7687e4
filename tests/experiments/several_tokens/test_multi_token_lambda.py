"""Several tokens against lambda: what runs at the best attention select, and the verdicts on the figure."""

import numpy as np
import pytest
import xarray

from jaxattn.experiments.several_tokens.evidence import RANKED
from jaxattn.experiments.several_tokens.multi_token_lambda import examples, figure
from jaxattn.experiments.several_tokens.multi_token_lambda.claims import CLAIMS, summarize
from jaxattn.experiments.several_tokens.multi_token_lambda.measure import measure
from jaxattn.study.claims import Verdict
from tests.experiments.several_tokens.runs import KEY, resting
from tests.instances import drawn_lines


def judged(summaries):
    """What is judged of the number of tokens, and of the order of the descriptions."""
    return [claim.judge(summaries) for claim in CLAIMS[:2]]


@pytest.fixture(scope="module")
def over_lambda() -> dict[str, xarray.Dataset]:
    runs = (measure(resting(penalty=penalty)) for penalty in (0.4, 0.0, 0.1))
    return {one.attrs["run"]: one for one in runs}


def test_at_the_best_attention_the_selected_tokens_are_those_that_are_mixed(over_lambda):
    for one in over_lambda.values():
        # But for a token that the best attention gives less than 1e-3 of the next one.
        rare = np.asarray(one["tokens"] != one["best"])
        assert (np.asarray(one["tokens"])[rare] < np.asarray(one["best"])[rare]).all()
        assert rare.mean() < 0.1
    assert (over_lambda["lambda = 0"]["tokens"] == 1).all()


def test_more_tokens_and_the_order_of_the_descriptions(over_lambda):
    summaries = summarize(over_lambda, KEY)
    tokens, order = judged(summaries)
    assert list(summaries) == ["lambda = 0", "lambda = 0.1", "lambda = 0.4"]
    assert (tokens.verdict, order.verdict) == (Verdict.HOLDS, Verdict.HOLDS)
    assert tokens.measured == pytest.approx(tokens.expected, rel=0.03)
    for run in summaries:
        best, second, worst = (order.measured[f"{run}, {name}"] for name in RANKED)
        assert best <= second + 1e-9
        assert second <= worst + 1e-9
    drawn = figure.draw(summaries)
    # Lambda = 0 stands apart: no line crosses the break of the axis.
    points = drawn_lines(drawn.axes[0], least=1)
    assert all((x > 0).all() for x, _ in points if len(x) > 1 and list(x) != [0.45, 0.55])
    for values in (tokens.measured.values(), tokens.expected.values()):
        zero, *others = values
        assert [zero] in [y.tolist() for x, y in points if x[0] == 0]
        assert others in [y.tolist() for x, y in points if x[0] > 0]
    assert drawn.axes[0].get_title().startswith("(a) more tokens for every larger")
    assert not any(axes.get_legend() for axes in drawn.axes)


def test_no_rise_and_another_order_fail(over_lambda):
    changed = {run: one.copy(deep=True) for run, one in over_lambda.items()}
    changed["lambda = 0.4"]["tokens"].values[:] = changed["lambda = 0.1"]["tokens"].values
    changed["lambda = 0.1"]["foretold"].values[:] = 0.9
    assert [one.verdict for one in judged(summarize(changed, KEY))] == [Verdict.FAILS, Verdict.FAILS]


@pytest.mark.parametrize(
    ("changes", "verdicts"),
    [
        ({}, (Verdict.HOLDS, Verdict.HOLDS)),
        # With the finite part of the run W_SVMeq is nearer than W_mm: the predicted one has to be.
        ({"predicted": 6.0}, (Verdict.HOLDS, Verdict.FAILS)),
        ({"end": (0.05, 0.05, 0.3), "predicted": 1.0}, (Verdict.HOLDS, Verdict.HOLDS)),
        ({"determined": 7}, (Verdict.HOLDS, Verdict.OPEN)),
        ({"tokens": (1.0, 1.0, 2.0)}, (Verdict.FAILS, Verdict.HOLDS)),
        ({"tokens": (1.0, 1.8, 1.8)}, (Verdict.OPEN, Verdict.HOLDS)),
        ({"tokens": (2.0, 1.5, 1.0)}, (Verdict.FAILS, Verdict.HOLDS)),
        ({"seeds": 7, "determined": 7}, (Verdict.OPEN, Verdict.OPEN)),
        ({"last": 900}, (Verdict.OPEN, Verdict.OPEN)),
    ],
)
def test_the_verdicts_are_those_of_the_rises_and_of_the_differences(changes, verdicts):
    assert tuple(one.verdict for one in judged(summarize(examples.runs(**changes), KEY))) == verdicts


def test_an_order_that_seeds_disagree_on_is_not_decided():
    runs = examples.runs()
    runs["lambda = 0.1"]["foretold"].values[:] = 0.05 + np.resize([0.02, -0.02], 16)
    order = judged(summarize(runs, KEY))[1]
    assert order.verdict is Verdict.OPEN
    assert {c.outcome for c in order.stated if c.quantity.startswith("lambda = 0.1:")} == {"unclear"}


def test_single_tokens_say_nothing_of_several():
    summaries = summarize(examples.runs(), KEY)
    for claim in CLAIMS[1:]:
        asked = {c.quantity.partition(":")[0] for c in claim.judge(summaries).stated if c.quantity.startswith("lambda")}
        assert asked == {"lambda = 0.1", "lambda = 0.4"}
        single = {run: one for run, one in summaries.items() if run == "lambda = 0"}
        assert claim.judge(single).verdict is Verdict.OPEN


def test_one_lambda_decides_no_trend_and_one_snapshot_no_limit():
    alone = {run: one for run, one in examples.runs().items() if run == "lambda = 0.4"}
    tokens, order = judged(summarize(alone, KEY))
    assert (tokens.verdict, order.verdict) == (Verdict.OPEN, Verdict.HOLDS)
    assert "two values of lambda" in tokens.note
    at_the_end = {run: one.isel(snapshot=[-1]) for run, one in examples.runs().items()}
    found = [claim.judge(summarize(at_the_end, KEY)).verdict for claim in CLAIMS]
    assert found == [Verdict.HOLDS, Verdict.HOLDS, Verdict.OPEN, Verdict.OPEN]


def test_few_steps_decide_nothing(over_lambda):
    short = {run: one.assign_coords(snapshot=one["snapshot"] // 10) for run, one in over_lambda.items()}
    assert {one.verdict for one in judged(summarize(short, KEY))} == {Verdict.OPEN}


def test_runs_that_do_not_belong_together_are_refused():
    runs = dict(examples.runs())
    runs["lambda = 0.1"] = runs["lambda = 0.1"].isel(attempt=slice(5))
    with pytest.raises(ValueError, match=r"^multi-token-lambda: expected the same seeds .*'lambda = 0.1': 5"):
        summarize(runs, KEY)
    with pytest.raises(ValueError, match=r"^multi-token-lambda: expected at least one run"):
        summarize({}, KEY)


def test_another_head_is_named():
    with pytest.raises(ValueError, match=r"^head: expected Quadratic, found jaxattn.heads.mlp"):
        measure(resting("mlp"))
