"""Global convergence: what is measured of a record, shares and verdicts on datasets built by hand, and the figure."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, data, descent, heads, initial, losses, metrics, records, svm, tokens
from jaxattn.experiments.landscape.global_convergence import claims, figure, measure
from jaxattn.experiments.landscape.global_convergence.basins import predicted
from jaxattn.experiments.landscape.global_convergence.examples import first, named, run, spreads
from jaxattn.experiments.landscape.global_convergence.far_examples import far
from jaxattn.experiments.landscape.global_convergence.record import Basins, Far
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import recording, schedule
from tests.instances import drawn_lines
from tests.recorded import recorded

KEY = jax.random.key(0)
SLOPE = jax.jit(jax.grad(losses.risk))


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    law, rule = functools.partial(data.sphere, n=3, T=4, d=5), descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
    path, config = tmp_path_factory.mktemp("runs"), {"optimizer": {}, "data": {}, "steps": 300}
    size = {"seeds": 12, "steps": 300, "snapshots": schedule.Logarithmically(1), "record_every": 100}
    return recorded(path, law, initial.free_zero, rule, config, **size)


@pytest.mark.slow
def test_the_first_step_and_the_tokens_in_the_end_are_judged_seed_by_seed(record):
    one = measure.measure(record)
    assert one.attrs["run"] == "from W = 0, n = 3, d = 5, spread = 1"
    assert one.sizes["seed"] == one.attrs["kept"] == 12
    for seed in range(3):
        own = Problem(**{name: record[name].values[seed] for name in ("X", "Z", "Y", "v")})
        alpha = tokens.optimal(own)
        constraints = svm.token_constraints(own, alpha)
        W_mm, step = svm.solve(constraints).W, -SLOPE(jnp.zeros((5, 5)), own)
        np.testing.assert_allclose(one["correlation"][seed], metrics.correlation(step, W_mm), rtol=1e-9)
        worst = svm.margins(constraints, step / metrics.norm(step)).min() * metrics.norm(W_mm)
        np.testing.assert_allclose(one["margin"][seed], worst, rtol=1e-7)
        right = np.asarray(tokens.selected(jnp.asarray(record["W"].values[seed]), own) == alpha)
        assert bool(one["optimal"][seed]) == right.all()
        assert (float(one["lost"][seed]) == 0) == right.all()
    assert np.all(one["margin"] <= 1)


@pytest.mark.slow
def test_equal_scores_do_not_make_descent_global():
    # Two inputs of two tokens have no other limit than the global one; ten of eight do, and a start close to one stays.
    few = functools.partial(data.spread_scores, n=2, T=2, d=3, spread=0.0)
    many = functools.partial(data.spread_scores, n=10, T=8, d=10, spread=0.0)
    shares = []
    for law, d in ((few, 3), (many, 10)):
        keys = jax.random.split(KEY, 40)
        problems = jax.vmap(law)(keys)
        start = jax.vmap(functools.partial(initial.free, d=d))(keys)
        optimizer = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
        run = descent.train_batch(start, problems, optimizer=optimizer, steps=1000)
        right = jax.vmap(tokens.selected)(run.weights, problems) == jax.vmap(tokens.optimal)(problems)
        shares.append(float(np.mean(np.all(right, axis=1))))
    assert shares[0] == 1
    assert shares[1] < 0.98


def test_the_order_of_service_is_predicted():
    """Two inputs of one query as in the second paper's counter-example, with differences (-2, 1) and (1, 0)."""
    constraints = svm.Constraints(jnp.array([[[[-2.0, 1.0]], [[1.0, 0.0]]]] * 3), jnp.array([[[1.0, 0.0]] * 2] * 3))
    # The second input is served, and its solution (1, 0) leaves the first one 2 behind; the first one is served, and
    # the second is only .4 behind along (-.4, .2); neither is, and the second is nearer.
    starts = np.zeros((3, 2, 2))
    starts[:, :, 0] = [(3.0, 0.0), (-2.0, 0.0), (-1.0, -8.0)]
    elsewhere, certain = predicted(starts, constraints)
    assert elsewhere.tolist() == [True, False, True]
    assert certain.all()


@pytest.mark.slow
def test_starts_far_along_a_wrong_selection_are_recorded_and_measured(tmp_path):
    law = functools.partial(data.spread_scores, n=2, T=3, d=4, spread=0.0)
    rule = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
    setting = Basins(law, Far(3.0), rule, losses.logistic, heads.linear, seeds=6, key=1, steps=2000)
    config = {"weights": {"margin": 3.0}, "data": {"spread": 0.0}, "steps": 2000, "optimizer": {}}
    recording.run(setting, tmp_path / "record", {"config": json.dumps(config)})
    record = records.load(tmp_path / "record")
    one = measure.measure(record)
    assert one.attrs["run"] == "from R W_alpha, n = 2, d = 4, R = 3"
    assert one.attrs["kept"] == one.sizes["seed"] > 0
    for k, seed in enumerate(one["seed"].values):
        own = Problem(**{name: record[name].values[seed] for name in ("X", "Z", "Y", "v")})
        alpha, W = record["alpha"].values[seed], jnp.asarray(record["W"].values[seed])
        margins = svm.margins(svm.token_constraints(own, alpha), jnp.asarray(record["W_initial"].values[seed]))
        np.testing.assert_allclose(margins.min(), 3.0, rtol=1e-6)
        right = np.asarray(tokens.selected(W, own) == tokens.optimal(own))
        assert not np.array_equal(alpha, tokens.optimal(own))
        assert int(one["unserved"][k]) == np.sum(~right)
        assert bool(one["optimal"][k]) == right.all()
        assert (float(one["behind"][k]) == 0) == right.all()
        assert 0 <= float(one["off_served"][k]) < 0.05


def judged(runs):
    summaries = claims.summarize(runs, KEY)
    return summaries, {claim.id.partition(":")[2]: claim.judge(summaries) for claim in claims.CLAIMS}


def verdict(runs, name):
    return judged(runs)[1][name].verdict


@pytest.mark.parametrize(
    ("runs", "name", "expected"),
    [
        (first(), "first-gradient", Verdict.HOLDS),
        (first(zero={"separated": 0.5}), "first-gradient", Verdict.CORRECTED),
        (first(zero={"separated": 0.95}), "first-gradient", Verdict.CORRECTED),  # One of twenty.
        (first(long={"share": 0.7, "separated": 0.5}), "first-gradient", Verdict.FAILS),
        (first(long={"separated": 0.95}), "first-gradient", Verdict.FAILS),
        # Twenty separating first steps in each run decide, nineteen in one of them do not.
        (first(long={"seeds": 95}), "first-gradient", Verdict.OPEN),
        (first(zero={"separated": 0.5}, long={"seeds": 60}), "first-gradient", Verdict.OPEN),
        (first(), "alignment", Verdict.HOLDS),
        (first(zero={"share": 1.0}), "alignment", Verdict.FAILS),
        (first(zero={"worse": True}), "alignment", Verdict.FAILS),
        (first(zero={"share": 0.99}), "alignment", Verdict.OPEN),
        (first(zero={"seeds": 15}), "alignment", Verdict.OPEN),
        ({**spreads(), **named(far(0))}, "equal-scores", Verdict.HOLDS),
        (spreads(), "score-gap", Verdict.HOLDS),
        ({**spreads(0.9, lost=1e-12), **named(far(0))}, "equal-scores", Verdict.CORRECTED),
        ({**spreads(0.99, lost=0.9e-6), **named(far(0))}, "equal-scores", Verdict.CORRECTED),
        ({**spreads(), **named(far(1))}, "equal-scores", Verdict.CORRECTED),
        # The rule has to hold for all, and W to be near the solution that it names.
        ({**spreads(), **named(far(20, off=0.04))}, "equal-scores", Verdict.FAILS),
        ({**spreads(), **named(far(20, moving=20))}, "equal-scores", Verdict.FAILS),
        # Not there yet is not a refutation.
        ({**spreads(0.9, lost=0.1), **named(far(0))}, "equal-scores", Verdict.OPEN),
        ({**spreads(0.99, lost=1.1e-6), **named(far(0))}, "equal-scores", Verdict.OPEN),
        ({**spreads(), **named(far(0, moving=1))}, "equal-scores", Verdict.OPEN),
        # A prediction is judged where both outcomes are, at the farthest starts alone.
        (named(far()), "basins", Verdict.HOLDS),
        (named(far(), far(told=0.4, R=3.0)), "basins", Verdict.HOLDS),
        (named(far(told=0.4), far(R=3.0)), "basins", Verdict.FAILS),
        (named(far(7)), "basins", Verdict.OPEN),
        # What cannot be judged does not keep the others from it.
        (named(far(), far(7, n=8)), "basins", Verdict.HOLDS),
        (spreads(0.6), "score-gap", Verdict.FAILS),
        (spreads(0.5, 0.8, 1.0), "score-gap", Verdict.FAILS),
        # The first share is the smaller one, but by less than the intervals.
        (spreads(0.7), "score-gap", Verdict.OPEN),
        (spreads(1.0, 0.52, 0.5), "score-gap", Verdict.OPEN),
        (spreads(steps=200), "equal-scores", Verdict.OPEN),
        (spreads(steps=200), "score-gap", Verdict.OPEN),
    ],
)
def test_verdicts_follow_from_the_shares(runs, name, expected):
    assert verdict(runs, name) is expected


def without(runs, start):
    return {name: one for name, one in runs.items() if one.attrs["start"] != start}


@pytest.mark.parametrize(
    ("runs", "names", "note"),
    [
        (without(first(), "long"), ("first-gradient", "alignment"), "There is no run from a long first step."),
        (spreads(), ("first-gradient", "alignment"), "There is no run from W = 0 and none from a long first step."),
        (first(), ("equal-scores", "score-gap"), "There is no run from random weights."),
        (
            dict([*spreads().items()][1:]),
            ("equal-scores",),
            "There must be runs with equal scores of all non-optimal tokens",
        ),
        (dict([*spreads().items()][:1]), ("score-gap",), "Only one spread of the scores was run"),
    ],
)
def test_a_run_that_is_missing_decides_nothing(runs, names, note):
    judgements = judged(runs)[1]
    for name in names:
        assert judgements[name].verdict is Verdict.OPEN
        assert judgements[name].note.startswith(note)


def test_a_correction_and_a_refutation_say_how_many():
    corrected = judged(first(zero={"separated": 0.5}))[1]["first-gradient"]
    assert "Correction: this needs a long first step" in corrected.note
    assert "10 of 20 such seeds end at other tokens" in corrected.note
    refuted = judged({**spreads(0.9, lost=1e-12), **named(far())})[1]["equal-scores"]
    assert "This happens for 20 of 100 starts far along a wrong selection" in refuted.note
    assert "10 starts end at other tokens. For 10 of them" in refuted.note
    assert "With one input" not in refuted.note
    alone = run("random", 1.0, 0.0, n=1, d=10)
    refuted = judged({**spreads(0.9, lost=1e-12), **named(alone, far())})[1]["equal-scores"]
    assert refuted.note.endswith("With one input every start converges globally.")


def test_numbers_that_cannot_be_measured_are_refused():
    with pytest.raises(ValueError, match=r"lost: expected shares of the gradient, 0\.\.1, found -0\.2\.\.0"):
        judged(spreads(0.9, lost=-0.2))
    with pytest.raises(ValueError, match="expected a kept seed in each run"):
        judged({name: one.isel(seed=slice(0)) for name, one in first().items()})


def test_a_claim_counts_the_seeds_of_its_own_runs():
    judgements = judged({**first(), **spreads(), **named(far())})[1]
    assert set(judgements["alignment"].counts) == set(first())
    assert set(judgements["score-gap"].counts) == set(spreads())
    assert set(judgements["equal-scores"].counts) == {*spreads(), *named(far())}
    assert all(counts["attempted"] == 100 for one in judgements.values() for counts in one.counts.values())


def test_seeds_are_binned_by_their_first_step():
    summary = judged(first())[0]["zero"]
    assert summary["by_margin_seeds"].values.tolist() == [0, 0, 80, 0, 0, 20, 0]
    assert summary["by_correlation_seeds"].values.tolist()[0] == [23, 25, 25, 27]
    assert float(summary["by_margin"][5]) == 1
    assert (float(summary["by_margin_low"][0]), float(summary["by_margin_high"][0])) == (0, 1)
    assert float(summary["optimal"][0]) == 0.7
    assert float(summary["separated"][0]) == 1


def test_the_figure_draws_every_share_that_has_seeds():
    summaries = judged({**first(), **spreads(), **named(far(), far(10, R=1.0))})[0]
    drawn = figure.draw(summaries)
    assert len(drawn.axes) == 4
    ((x, y),) = [points for points in drawn_lines(drawn.axes[3]) if points.shape[1] == 2]
    np.testing.assert_allclose((x, y), [[1, 10], [0.9, 0.8]])
    assert "random weights: 300 seeds, all kept." in drawn.get_supxlabel()
    (points,) = [points for points in drawn_lines(drawn.axes[2]) if points.shape[1] == 3]
    np.testing.assert_allclose(points, [[0, 0.5, 1], [1, 0.8, 0.5]])


def test_the_figure_names_the_points_that_refute_and_no_others():
    still = named(run("random", 0.9, 0.0, n=8, d=10))  # Wrong seeds that still move refute nothing.
    held, refuted = (
        figure.draw(judged({**first(), **spreads(), **still, **more, **named(far(wrong))})[0]).axes
        for more, wrong in ((named(), 0), (named(run("random", 0.88, 0.0, n=10, d=10, lost=1e-12)), 20))
    )
    assert [axes.get_title().partition(": ")[2] for axes in held[2:]] == [
        "not refuted by 200 seeds",
        "not refuted by 100 starts",
    ]
    assert not held[2].texts
    assert [axes.get_title().partition(": ")[2] for axes in refuted[2:]] == [
        "refuted by 12 of 300 seeds",
        "refuted by 20 of 100 starts",
    ]
    assert [one.get_text() for one in refuted[2].texts] == ["refutes: $n = 10$, 0.88"]
