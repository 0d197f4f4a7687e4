"""Drawn problems: the record holds every key, and an embedded problem has the solutions of the problem itself."""

import jax
import numpy as np
import pytest

from jaxattn import Problem, data, metrics, records, svm, tokens
from jaxattn.experiments.max_margin.feasibility import measure
from jaxattn.experiments.max_margin.separation import separate
from jaxattn.study.settings import recording
from jaxattn.study.settings.drawing import Drawing
from jaxattn.svm import Status
from tests.instances import assert_close, gives_up, stacked

SEEDS, n, T, DIMENSIONS = 6, 3, 4, (5, 2, 1)
sphere = jax.jit(data.sphere, static_argnums=(1, 2, 3))
REASONS = ("kept", "infeasible", "unsolved")


def drawn(path, tokens_law, dimensions=DIMENSIONS, seeds=SEEDS):
    recording.run(Drawing(data.Spheres(n, T, dimensions), tokens_law, seeds, key=1), path, {"config": "{}"})
    return records.load(path)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return drawn(tmp_path_factory.mktemp("runs") / "record.zarr", data.optimal_tokens)


@pytest.fixture(scope="module")
def separated(record):
    return separate(record)


def key_of(record, name, seed, d):
    return jax.random.wrap_key_data(record[name].sel(seed=seed, d=d).values)


def test_a_record_holds_every_problem_and_the_keys_it_was_drawn_from(record):
    assert record["d"].values.tolist() == list(DIMENSIONS)
    assert record["X"].dims == ("seed", "d", "input", "token", "feature")
    assert (record.attrs["kept"], record.attrs["complete"]) == (SEEDS, True)
    keys = [record[name].values.reshape(-1, 2) for name in ("data_key", "tokens_key")]
    assert len(np.unique(np.concatenate(keys), axis=0)) == 2 * SEEDS * len(DIMENSIONS)
    for seed, d in ((0, 5), (3, 2), (5, 1)):
        alone, here = sphere(key_of(record, "data_key", seed, d), n, T, d), record.sel(seed=seed, d=d)
        np.testing.assert_allclose(here["X"].values[..., :d], alone.X, rtol=0, atol=1e-15)
        np.testing.assert_array_equal(here["Y"], alone.Y)
        if d > 1:
            np.testing.assert_array_equal(here["alpha"], tokens.optimal(alone))


def test_what_a_seed_draws_depends_neither_on_other_seeds_nor_on_other_dimensions(record, tmp_path):
    fewer = drawn(tmp_path / "record.zarr", data.uniform_tokens, dimensions=(2,), seeds=2)
    more = record.sel(seed=[0, 1], d=[2])
    for name in ("data_key", "tokens_key", "Y"):
        np.testing.assert_array_equal(fewer[name], more[name])
    for name in "XZv":
        np.testing.assert_allclose(fewer[name], more[name].values[..., :2], rtol=0, atol=1e-15)
    one = Problem(**{name: fewer[name].values[1, 0] for name in "XZYv"})
    np.testing.assert_array_equal(fewer["alpha"][1, 0], data.uniform_tokens(key_of(fewer, "tokens_key", 1, 2), one))


@pytest.mark.parametrize(("d", "norm", "accuracy"), [(5, "nuclear", 1e-4), (2, "frobenius", 1e-9)])
def test_an_embedded_problem_has_the_solutions_of_the_problem_itself_and_zeros(record, separated, d, norm, accuracy):
    problems = [sphere(key_of(record, "data_key", seed, d), n, T, d) for seed in range(SEEDS)]
    constraints = stacked([svm.token_constraints(one, tokens.optimal(one)) for one in problems])
    alone, here = svm.solve_batch(constraints, norm), separated.sel(d=d, norm=norm)
    np.testing.assert_array_equal(here["status"], alone.status)
    solved = alone.status == Status.OPTIMAL
    assert solved.any()
    np.testing.assert_allclose(here["primal"].values[solved], alone.primal[solved], rtol=1e-8)
    for seed in np.flatnonzero(solved):
        W = here["W_svm"].values[seed]
        assert_close(W[:d, :d], alone.W[seed], rtol=accuracy)
        for rest in (W[d:], W[:, d:]):
            np.testing.assert_allclose(rest, 0, atol=1e-12 * np.abs(W).max())
        assert here["rank"][seed] == metrics.rank(jax.numpy.asarray(alone.W[seed]))
        assert_close(here["singular_values"].values[seed], np.linalg.svd(W, compute_uv=False))


def test_every_problem_is_counted_under_one_reason(separated):
    assert separated.attrs["attempted"] == SEEDS * len(DIMENSIONS) == sum(separated.attrs[r] for r in REASONS)
    assert separated.attrs["infeasible"] == (separated["status"] == Status.INFEASIBLE).any("norm").sum() > 0
    assert separated.attrs["kept"] == (separated["status"] == Status.OPTIMAL).all("norm").sum() >= SEEDS
    assert [separated.attrs[name] for name in ("n", "T", "solver")] == [n, T, ""]


def test_what_a_solver_leaves_unsolved_is_counted_and_named_by_it(record):
    found = separate(record, solver=gives_up)
    assert [found.attrs[reason] for reason in REASONS] == [0, 0, SEEDS * len(DIMENSIONS)]
    assert found.attrs["solver"] == "function"
    assert separate(record, solver=svm.ActiveSet(), norms=[svm.frobenius]).attrs["solver"] == "ActiveSet"


def test_feasibility_is_measured_in_the_frobenius_norm_alone(record, separated):
    found = measure(record)
    assert found["norm"].values.tolist() == ["frobenius"]
    np.testing.assert_array_equal(found["status"].values, separated["status"].sel(norm=["frobenius"]).values)


def test_a_law_of_one_dimension_is_refused_by_name():
    with pytest.raises(TypeError, match=r"^data: expected a law of several dimensions such as spheres, found"):
        Drawing(data.three_tokens, data.optimal_tokens, 3, 1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"^seeds: expected at least 1, found 0"):
        Drawing(data.Spheres(2, 3, [2]), data.optimal_tokens, 0, 1)
