"""Synthetic joint regularization paths; the minimizers, the choices of tokens, and a record."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, losses
from jaxattn.data.prompts import shared_query
from jaxattn.experiments.prompts.joint import PROBLEMS
from jaxattn.experiments.prompts.joint_path import EXPERIMENT, choices, measure, minimizers, record
from jaxattn.study.settings.paths import Radii
from tests.experiments.synthetic import synthetic
from tests.recorded import written

KEY = jax.random.key(0)
LAW = partial(shared_query, n=3, T=2, d=4)
SEEDS = 160
VERDICTS = {"joint-path:support": "does not hold", "joint-path:relaxed": "holds with a correction"}


def measured():
    """Where some inputs are no support vectors, the problem depends on the law; elsewhere p stays far for r ~ R^2."""
    return {
        "r ~ R^0.5": path(("unrelaxed",)),
        "r ~ R^1": path(("offset",)),
        "r ~ R^2": path(("relaxed", "offset"), whole=0.05),
    }


def path(obeyed, whole=1e-5, last=1000.0):
    """The paths of one law, half of whose seeds have an input that is no support vector.

    These tend to the problems that are obeyed, the others to 1 - cos of `whole` from all problems, which are one.
    """
    spread = 1 + 0.1 * np.resize([-1.0, 1.0], SEEDS)[:, None]
    mixed = np.arange(SEEDS) % 4 < 2
    of_mixed = np.array([1e-5 if problem in obeyed else 0.05 for problem in PROBLEMS])
    ends = np.where(mixed[:, None], of_mixed, whole) * spread
    radii = np.geomspace(10.0, last, 5)
    falling = np.minimum(radii[-1] / radii, 20.0)
    flat = np.ones((SEEDS, radii.size))
    return synthetic(
        SEEDS,
        {"ambiguous": 0},
        {"attempt": np.arange(SEEDS), "problem": np.array(PROBLEMS, object), "radius": radii},
        off=(("seed", "problem", "radius"), ends[:, :, None] * falling),
        off_v=(("seed", "radius"), 1e-5 * spread * falling),
        residual=(("seed", "radius"), 1e-12 * flat),
        lowest=(("seed", "radius"), flat > 0),
        support=(("seed", "input"), ~mixed[:, None] | (np.arange(5) > 0)),
        largest=np.ones(SEEDS, bool),
        solved=(("attempt", "radius"), flat > 0),
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda run: path(("relaxed",), last=100.0), "Radii up to 100 are too small"),
        (lambda run: run.assign_attrs(unsolved=20, attempted=180), "20 of 180 paths are unsolved"),
        (lambda run: run.assign(support=run["support"] | True), "0 kept seeds are too few"),
    ],
)
def test_small_radii_unsolved_paths_and_seeds_of_one_kind_decide_nothing(change, reason):
    runs = {name: change(run) for name, run in measured().items()}
    summaries = EXPERIMENT.estimates(runs, KEY)
    judgements = {claim.id: claim.judge(summaries) for claim in EXPERIMENT.claims}
    assert judgements["joint-path:relaxed"].verdict == "not decided"
    assert judgements["joint-path:relaxed"].note.startswith(reason)
    assert EXPERIMENT.draw is not None
    assert EXPERIMENT.draw(summaries, judgements).axes


@pytest.mark.parametrize(
    ("missed", "verdict"), [(0, "holds with a correction"), (3, "does not hold"), (40, "does not hold")]
)
def test_a_correction_asks_for_the_share_that_the_statement_asks_for(missed, verdict):
    runs = measured()
    off = runs["r ~ R^2"]["off"].values
    # Of the seeds with inputs that are no support vectors, some miss every problem.
    off[[4 * k for k in range(missed)]] = 0.05
    summaries = EXPERIMENT.estimates(runs, KEY)
    found = {claim.id: claim.judge(summaries) for claim in EXPERIMENT.claims}
    relaxed, growth = found["joint-path:relaxed"], found["joint-path:growth"]
    assert relaxed.verdict == verdict
    assert growth.verdict == {0: "holds", 3: "not decided", 40: "does not hold"}[missed]
    assert {one.least for one in (*relaxed.stated, *relaxed.corrected)} == {0.95}


@pytest.mark.parametrize("r", [0.5, 30.0, 3e5])
def test_the_minimizer_over_v_satisfies_the_conditions_on_its_ball(r):
    A = jax.random.normal(KEY, (4, 6))
    v = np.asarray(jax.jit(minimizers.minimizer)(A, r))
    np.testing.assert_allclose(np.linalg.norm(v), r, rtol=1e-12)
    weights = -np.logaddexp(0, A @ v)
    along = np.exp(weights - weights.max()) @ A
    np.testing.assert_allclose(along / np.linalg.norm(along), v / r, atol=1e-9)


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
def test_a_record_is_stationary(tmp_path):
    made = written(setting(), tmp_path)
    assert (made["residual"] <= record.SOLVED).all()
    np.testing.assert_allclose(np.linalg.norm(made["p"], axis=-1), np.tile(made["radius"], (4, 2, 1)), rtol=1e-9)
    # Neither p nor v can be turned for a lower risk.
    lane = {name: made[name].values[0, 0, 0] for name in ("p", "head")}
    X, Y = made["X"].values[0], made["Y"].values[0]

    def risk(p, v):
        return jnp.mean(losses.logistic(Y * jnp.einsum("nt,ntd,d->n", jax.nn.softmax(X @ p, axis=1), X, v)))

    for place, name in enumerate(lane):
        falls = -np.asarray(jax.grad(risk, argnums=place)(lane["p"], lane["head"]))
        along = lane[name] / np.linalg.norm(lane[name])
        np.testing.assert_allclose(falls / np.linalg.norm(falls), along, atol=1e-6)
    found = measure(made)
    assert {name: found[name].dims for name in found} == {name: array.dims for name, array in path(()).items()}
    counts = (found.attrs[name] for name in ("kept", "ambiguous", "infeasible", "unsolved"))
    assert sum(counts) == found.attrs["attempted"] == 4
