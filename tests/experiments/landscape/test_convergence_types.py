"""Types of convergence: how runs are classified, verdicts both ways, and what the figure draws."""

import itertools
import json

import jax
import numpy as np
import pytest
import xarray

from jaxattn import svm, tokens
from jaxattn.experiments.landscape.convergence_types import claims as convergence_types
from jaxattn.experiments.landscape.convergence_types import figure
from jaxattn.study.claims import Verdict
from jaxattn.svm import Status
from tests import instances

KEY = jax.random.key(0)
DIMENSIONS = (4, 10, 20)


def measured(weights, d, globally, locally, support, own=None, seeds=200, unsaturated=0, steps=1500):
    """Runs of which so many are of each type; those that are local and those with all support come first."""
    seed = np.arange(seeds)
    attrs = {"run": f"{weights} n=5 T=5 d={d}", "weights": weights, "n": 5, "T": 5, "d": d, "steps": steps}
    attrs |= {"attempted": seeds + 1, "kept": seeds - unsaturated, "diverged": 0, "ambiguous": unsaturated}
    attrs |= {"infeasible": 0, "unsolved": 1}
    variables = {"saturated": seed < seeds - unsaturated, "globally": seed < globally, "locally": seed < locally}
    variables |= {"all_support": seed < support, "locally_own": seed < (locally if own is None else own)}
    return xarray.Dataset({name: (("seed",), value) for name, value in variables.items()}, {"seed": seed}, attrs)


def summarized(changes=None, **more):
    runs = {}
    for weights, d in itertools.product(("W", "KQ"), DIMENSIONS):
        counts = {"globally": 100 + 4 * d, "locally": 200, "support": 4 * d} | (changes or {}).get((weights, d), {})
        one = measured(weights, d, **counts, **more)
        runs[one.attrs["run"]] = one
    summaries, claims = convergence_types.summarize(runs, KEY)
    return summaries, {claim.id.partition(":")[2]: claim for claim in claims}


HOLDS, CORRECTED, FAILS = Verdict.HOLDS, Verdict.CORRECTED, Verdict.FAILS


@pytest.mark.parametrize(
    ("changes", "verdicts"),
    [
        ({}, (HOLDS, HOLDS, HOLDS)),
        ({("KQ", 20): {"globally": 120}}, (FAILS, HOLDS, HOLDS)),
        ({("KQ", 10): {"globally": 198}}, (FAILS, HOLDS, HOLDS)),
        ({("W", 4): {"locally": 199}}, (HOLDS, CORRECTED, HOLDS)),
        ({("W", 4): {"locally": 190}}, (HOLDS, FAILS, HOLDS)),
        ({("KQ", 4): {"locally": 190, "own": 200}}, (HOLDS, CORRECTED, HOLDS)),
        ({("KQ", 4): {"locally": 200, "own": 190}}, (HOLDS, HOLDS, HOLDS)),
        ({("W", 20): {"support": 16}}, (HOLDS, HOLDS, FAILS)),
        ({("W", 20): {"support": 181}}, (HOLDS, HOLDS, FAILS)),  # One is local, all support, and not global.
    ],
)
def test_verdicts_follow_the_shares(changes, verdicts):
    _, claims = summarized(changes)
    assert tuple(claims[name].verdict for name in ("global", "local", "all-support")) == verdicts


@pytest.mark.parametrize("little", [{"unsaturated": 185}, {"steps": 200}])
def test_little_is_not_decided(little):
    assert {claim.verdict for claim in summarized(**little)[1].values()} == {Verdict.OPEN}


def test_types_are_counted_once_each_and_runs_that_selected_nothing_apart():
    summaries, claims = summarized({("W", 4): {"globally": 50, "locally": 120}}, unsaturated=20)
    one = summaries["W"].sel(d=4)
    shares = dict(zip(one["type"].values.tolist(), one["share"].values.tolist(), strict=True))
    assert shares == pytest.approx({"global": 0.25, "local": 0.35, "neither": 0.3, "unsaturated": 0.1})
    assert one["all_support"] == 0.08
    label = "n=5 T=5 d=4, locally optimal by the"
    assert claims["local"].measured[f"W {label} Frobenius solution"] == pytest.approx(120 / 180)
    assert claims["local"].measured[f"KQ {label} nuclear solution"] == 1
    assert f"W {label} nuclear solution" not in claims["local"].measured
    expected = {"attempted": 201, "kept": 180, "diverged": 0, "ambiguous": 20, "infeasible": 0, "unsolved": 1}
    assert claims["global"].counts["W n=5 T=5 d=4"] == expected


def test_records_are_classified_by_the_solution_that_selects_their_tokens():
    problems = instances.problems(6)
    alpha = np.array(jax.random.randint(jax.random.key(1), (6, instances.n), 0, instances.T))
    alpha[0] = tokens.optimal(instances.lane(problems, 0))
    constraints = jax.vmap(svm.token_constraints)(problems, alpha)
    solved = svm.solve_batch(constraints)
    assert (solved.status == Status.OPTIMAL).all()
    W = solved.W * np.array([40.0, 40.0, 40.0, 40.0, 1.0, np.nan])[:, None, None]
    fields = {"X": ("input", "token", "feature"), "Z": ("input", "e"), "Y": ("input",), "v": ("feature",)}
    variables = {name: (("seed", *dims), np.asarray(getattr(problems, name))) for name, dims in fields.items()}
    variables["W"] = (("seed", "feature", "e"), np.asarray(W))
    record = xarray.Dataset(variables, {"seed": np.arange(6)}, {"config": json.dumps({"steps": 1500})})
    found = convergence_types.measure(record)
    assert found["saturated"].values.tolist() == [True] * 4 + [False]
    margins = np.asarray(jax.vmap(svm.margins)(constraints, solved.W))
    scores = np.asarray(jax.vmap(tokens.scores)(problems))
    for i in range(5):
        inputs = np.arange(instances.n)
        others = np.array([[t for t in range(instances.T) if t != own] for own in alpha[i]])
        own, rest = scores[i][inputs, alpha[i]], scores[i][inputs[:, None], others]
        active = np.abs(margins[i] - 1) < 1e-6
        one = found.isel(seed=i)
        assert one["globally"] == (own[:, None] > rest).all()
        assert one["locally"] == ((own[:, None] > rest) | ~active).all()
        assert one["all_support"] == active.all()
        assert one["nearest"] == margins[i][~active].min()
    np.testing.assert_array_equal(found["locally_own"], found["locally"])  # W tends to the Frobenius solution.
    counted = {name: found.attrs[name] for name in ("attempted", "kept", "diverged", "ambiguous", "unsolved")}
    assert counted == {"attempted": 6, "kept": 4, "diverged": 1, "ambiguous": 1, "unsolved": 0}


def test_factors_are_local_by_the_neighbours_of_the_nuclear_solution_too():
    problems = instances.problems(6)
    alpha = np.asarray(jax.random.randint(jax.random.key(3), (6, instances.n), 0, instances.T))
    constraints = jax.vmap(svm.token_constraints)(problems, alpha)
    solved = svm.solve_batch(constraints, norm="nuclear")
    assert (solved.status == Status.OPTIMAL).all()
    fields = {"X": ("input", "token", "feature"), "Z": ("input", "e"), "Y": ("input",), "v": ("feature",)}
    variables = {name: (("seed", *dims), np.asarray(getattr(problems, name))) for name, dims in fields.items()}
    variables["K"] = (("seed", "feature", "width"), 40 * np.asarray(solved.W))
    variables["Q"] = (("seed", "e", "width"), np.tile(np.eye(instances.d), (6, 1, 1)))
    record = xarray.Dataset(variables, {"seed": np.arange(6)}, {"config": json.dumps({"steps": 1500})})
    found = convergence_types.measure(record)
    assert found.attrs["kept"] == 6
    margins = np.asarray(jax.vmap(svm.margins)(constraints, solved.W))
    scores = np.asarray(jax.vmap(tokens.scores)(problems))
    for i in range(6):
        others = np.array([[t for t in range(instances.T) if t != own] for own in alpha[i]])
        own, rest = (np.take_along_axis(scores[i], which, axis=1) for which in (alpha[i][:, None], others))
        assert found["locally_own"][i] == ((own > rest) | (np.abs(margins[i] - 1) > 1e-6)).all()


def test_the_figure_stacks_the_types():
    summaries, _ = summarized({("W", 4): {"globally": 50, "locally": 120}}, unsaturated=20)
    drawn = figure.draw(summaries)
    left, right = drawn.axes
    assert left.get_title() == "(a) run of $W$"
    assert right.get_title() == r"(b) run of $KQ^\top$"
    for panel, summary in zip(drawn.axes, summaries.values(), strict=True):
        heights = [[bar.get_height() for bar in stack] for stack in panel.containers if hasattr(stack, "patches")]
        np.testing.assert_allclose(heights[:4], summary["share"].values.T)
        np.testing.assert_allclose(heights[4], summary["all_support"])
        np.testing.assert_allclose(np.sum(heights[:4], axis=0), 1)
    assert "540 of 603 seeds kept (0 diverged, 60 ambiguous, 0 infeasible, 3 unsolved)" in drawn.get_supxlabel()
