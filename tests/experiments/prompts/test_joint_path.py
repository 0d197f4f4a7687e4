"""Joint regularization paths: the minimizers, the choices of tokens, the verdicts on planted paths, and a record."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, losses, records
from jaxattn.data.prompts import shared_query
from jaxattn.experiments.prompts.joint import PROBLEMS
from jaxattn.experiments.prompts.joint_path import choices, examples, figure, minimizers, record
from jaxattn.experiments.prompts.joint_path.claims import CLAIMS, summarize
from jaxattn.experiments.prompts.joint_path.measure import measure
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import recording
from jaxattn.study.settings.paths import Radii
from jaxattn.study.style import page
from tests.instances import drawn_lines

KEY = jax.random.key(0)
H, C, F, OPEN = Verdict.HOLDS, Verdict.CORRECTED, Verdict.FAILS, Verdict.OPEN
LAW = partial(shared_query, n=3, T=2, d=4)


def verdicts(measured):
    summaries = summarize(measured, KEY)
    return [claim.judge(summaries).verdict for claim in CLAIMS]


@pytest.mark.parametrize(
    ("obeyed", "changes", "expected"),
    [
        (examples.CORRECTED, {}, [H, H, C]),
        (examples.CORRECTED, {"head": 0.05}, [F, H, C]),
        (examples.CORRECTED, {"whole": 0.05}, [H, F, C]),
        ((("relaxed",),) * 3, {}, [H, H, H]),
        ((("unrelaxed",),) * 3, {}, [H, H, F]),
        # A correction has to tell the problems apart.
        ((PROBLEMS,) * 2 + (("unrelaxed",),), {}, [H, H, F]),
        (examples.CORRECTED, {"last": 100.0}, [OPEN] * 3),
    ],
)
def test_each_claim_reads_its_own_distance(obeyed, changes, expected):
    assert verdicts(examples.paths(obeyed, **changes)) == expected


def test_seeds_of_one_kind_many_unsolved_or_a_missing_law_decide_nothing():
    every = examples.paths(examples.CORRECTED)
    whole = {run: one.isel(seed=one["support"].values.all(axis=1)) for run, one in every.items()}
    assert verdicts(whole) == [H, H, OPEN]
    unsolved = {run: one.assign_attrs(unsolved=20, attempted=180) for run, one in every.items()}
    assert verdicts(unsolved) == [OPEN] * 3
    assert verdicts(dict(list(every.items())[:2])) == [OPEN] * 3
    with pytest.raises(ValueError, match="expected a kept seed of each law"):
        summarize({run: one.isel(seed=slice(0)) for run, one in every.items()}, KEY)


@pytest.mark.slow
def test_the_figure_draws_medians_of_both_cases(tmp_path):
    summaries = summarize(examples.paths(examples.CORRECTED), KEY)
    drawn = figure.draw(summaries)
    for axes, one in zip(drawn.axes, summaries.values(), strict=False):
        for line, problem in zip(drawn_lines(axes, least=3), PROBLEMS, strict=True):
            np.testing.assert_array_equal(line[1], one["off_50"].sel(problem=problem))
    for axes, name in ((drawn.axes[3], "whole_50"), (drawn.axes[4], "off_v_50")):
        for line, one in zip(drawn_lines(axes, least=3), summaries.values(), strict=True):
            np.testing.assert_array_equal(line[1], one[name])
    assert page.save(drawn, tmp_path, "joint-path")[0].stat().st_size > 0


@pytest.mark.slow
def test_the_figure_is_drawn_where_all_inputs_of_all_seeds_are_support_vectors(tmp_path):
    every = examples.paths(examples.CORRECTED)
    drawn = figure.draw(summarize({run: one.assign(support=one["support"] | True) for run, one in every.items()}, KEY))
    assert [list(axes.lines) for axes in drawn.axes[:3]] == [[], [], []]
    assert page.save(drawn, tmp_path, "joint-path")[0].stat().st_size > 0


@pytest.mark.parametrize("r", [0.5, 30.0, 3e5])
def test_the_minimizer_over_v_satisfies_the_conditions_on_its_ball(r):
    A = jax.random.normal(KEY, (4, 6))
    v = minimizers.minimizer(A, jnp.asarray(r))
    np.testing.assert_allclose(jnp.linalg.norm(v), r, rtol=1e-12)
    weights = jax.nn.log_sigmoid(-A @ v)
    along = jnp.exp(weights - weights.max()) @ A
    np.testing.assert_allclose(along / jnp.linalg.norm(along), v / r, atol=1e-9)


@pytest.mark.slow
def test_the_derivative_of_the_minimizer_is_that_of_differences():
    A, move, r, h = jax.random.normal(KEY, (3, 4)), jnp.cos(jnp.arange(12.0)).reshape(3, 4), jnp.asarray(2.0), 1e-5
    _, along = jax.jvp(lambda A: minimizers.minimizer(A, r), (A,), (move,))
    difference = (minimizers.minimizer(A + h * move, r) - minimizers.minimizer(A - h * move, r)) / (2 * h)
    np.testing.assert_allclose(along, difference, atol=1e-8)


def test_a_law_of_the_radii_is_checked_and_grows_as_stated():
    assert minimizers.Growth(2.0)(np.asarray(100.0)) == pytest.approx(2000.0)
    with pytest.raises(ValueError, match=r"ball.exponent: expected a positive finite number, found -1"):
        minimizers.Growth(-1.0)


@pytest.mark.slow
def test_choices_of_tokens_are_the_best_of_their_neighbourhoods():
    problems = jax.vmap(LAW)(jax.random.split(KEY, 3))
    found = choices.best(problems, 2)
    assert (found.margin[:, 0] >= found.margin[:, 1]).all()
    for seed in range(3):
        one = jax.tree.map(lambda leaf, seed=seed: leaf[seed : seed + 1], problems)
        # No single exchange gives a label margin above that of the first.
        assert choices.best(one, 1).alpha[0, 0].tolist() == found.alpha[seed, 0].tolist()
    many = jax.vmap(partial(shared_query, n=13, T=2, d=14))(KEY[None])
    with pytest.raises(ValueError, match=r"expected at most 4,096 choices of tokens to try, found 2\^13"):
        choices.best(many, 1)


def setting(**changes):
    given = {"law": LAW, "ball": minimizers.Growth(1.0), "seeds": 4, "key": 5, "radii": Radii(10.0, 100.0, 5)}
    return record.JointPaths(**(given | changes))


def test_a_setting_refuses_what_does_not_fit():
    with pytest.raises(TypeError, match="ball: expected a Growth"):
        setting(ball=None)
    one = setting(law=partial(data.sphere, n=3, T=2, d=4))
    with pytest.raises(ValueError, match="data: expected inputs that share a query"):
        one.block(np.arange(4), np.asarray(jax.random.key_data(KEY)))


@pytest.mark.slow
def test_a_record_is_stationary_and_measures_like_the_examples(tmp_path):
    one = setting()
    attributes = {"config": json.dumps({"ball": {"exponent": 1.0}})}
    recording.run(one, tmp_path / "record.zarr", attributes)
    made = records.load(tmp_path / "record.zarr")
    assert (made["residual"] <= record.SOLVED).all()
    np.testing.assert_allclose(
        np.linalg.norm(made["p"], axis=-1), np.broadcast_to(made["radius"], (4, 2, 5)), rtol=1e-9
    )
    # Neither p nor v can be turned for a lower risk.
    lane = {name: made[name].values[0, 0, 0] for name in ("p", "head")}
    X, Y = made["X"].values[0], made["Y"].values[0]

    def risk(p, v):
        return jnp.mean(losses.logistic(Y * jnp.einsum("nt,ntd,d->n", jax.nn.softmax(X @ p, axis=1), X, v)))

    for place, name in enumerate(lane):
        falls = -np.asarray(jax.grad(risk, argnums=place)(lane["p"], lane["head"]))
        along = lane[name] / np.linalg.norm(lane[name])
        np.testing.assert_allclose(falls / np.linalg.norm(falls), along, atol=1e-6)
    found, example = measure(made), examples.path(1.0)
    assert {name: example[name].dims for name in example.data_vars} == {
        name: found[name].dims for name in found.data_vars
    }
    assert set(example.attrs) <= set(found.attrs)
    counts = {name: found.attrs[name] for name in ("kept", "ambiguous", "infeasible", "unsolved")}
    assert sum(counts.values()) == found.attrs["attempted"] == 4
