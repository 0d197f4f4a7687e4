"""Several selected tokens: the published selection, the descriptions of a run, and the verdicts of the ReLU figure.

The instances in tests/data were computed by the authors' published code from recorded initial weights.
"""

from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxattn import Problem, attention, data, descent, heads, initial, losses, metrics, records, svm
from jaxattn.experiments.several_tokens import descriptions as multi_token
from jaxattn.experiments.several_tokens.multi_token_mlp import claims as multi_token_mlp
from jaxattn.experiments.several_tokens.multi_token_mlp import figure
from jaxattn.study.claims import EXCLUDED, Verdict
from jaxattn.study.settings import recording
from jaxattn.study.settings.schedule import Evenly
from jaxattn.study.settings.training import Screening, Training
from tests.instances import assert_close, drawn_lines

KEY = jax.random.key(0)
PUBLISHED = [
    (path, seed)
    for path in sorted((Path(__file__).parent / "data").glob("relu_*.npz"))
    for seed in sorted({name.partition("_")[0] for name in np.load(path)})
]


class Recorded:
    """One recorded instance, with a leading axis of one seed where the second stage wants one."""

    def __init__(self, path: Path, seed: str) -> None:
        arrays = np.load(path)
        self.of = {name.partition("_")[2]: arrays[name] for name in arrays if name.startswith(f"{seed}_")}
        self.problem = Problem(self.of["X"], self.of["Z"], self.of["Y"], self.of["V"])
        self.problems = jax.tree.map(lambda leaf: leaf[None], self.problem)
        self.selected = self.of["softmax"] >= 1e-3


@cache
def described(recorded: Recorded) -> multi_token.Described:
    return multi_token.describe(recorded.problems, recorded.of["W_final"][None], recorded.selected[None])


@pytest.fixture(scope="module", params=PUBLISHED, ids=lambda one: f"{one[0].stem} {one[1]}")
def recorded(request):
    return Recorded(*request.param)


def off(A, B) -> float:
    return 1 - float(metrics.correlation(jnp.asarray(A), jnp.asarray(B)))


def test_all_recorded_instances_are_here():
    assert len(PUBLISHED) == 6


def test_descent_from_the_recorded_start_ends_where_the_published_run_does(recorded):
    run = descent.train(jnp.asarray(recorded.of["W0"]), recorded.problem, steps=2001, snapshots=(2000,), head=heads.mlp)
    # Late iterates drift on rounding, the published ones too: direction and selected tokens are what stays.
    assert off(run.weights, recorded.of["W_final"]) < 5e-3
    before_the_last = attention.probabilities(run.snapshots[0], recorded.problem)
    np.testing.assert_array_equal(before_the_last >= 1e-3, recorded.selected)
    np.testing.assert_array_equal(before_the_last > 1e-6, recorded.selected)


def test_the_descriptions_are_the_published_ones(recorded):
    W = dict(zip(multi_token.SOLUTIONS, described(recorded).W[0], strict=True))
    assert (described(recorded).status == svm.Status.OPTIMAL).all()
    # Theirs are solved to about 1e-5.
    assert off(W["W_mm"], recorded.of["W_mm"]) < 1e-8
    assert off(W["W_1token"], recorded.of["W_1token"]) < 1e-8
    # Their finite part is that of one step before, and a step of 0.1 changes the logits by up to 0.1.
    assert off(W["W_SVMeq"], recorded.of["W_svmeq"]) < 5e-4


def test_the_descriptions_have_the_margins_that_define_them(recorded):
    W = dict(zip(multi_token.SOLUTIONS, described(recorded).W[0], strict=True))
    logits = {name: np.asarray(attention.logits(jnp.asarray(one), recorded.problem)) for name, one in W.items()}
    descended = np.asarray(attention.logits(jnp.asarray(recorded.of["W_final"]), recorded.problem))
    for i, inside in enumerate(recorded.selected):
        own = {name: one[i][inside] for name, one in logits.items()}
        np.testing.assert_allclose(np.ptp(own["W_mm"]), 0, atol=1e-8)
        assert own["W_mm"].min() - logits["W_mm"][i][~inside].max(initial=-np.inf) > 1 - 1e-8
        for name in ("W_fin", "W_SVMeq"):
            np.testing.assert_allclose(
                own[name] - own[name][0], descended[i][inside] - descended[i][inside][0], atol=1e-8
            )
        top = descended[i].argmax()
        assert logits["W_1token"][i][top] - np.delete(logits["W_1token"][i], top).max() > 1 - 1e-8
    # C is the least-squares fit.
    rest = recorded.of["W_final"] - W["W_SVMeq"]
    assert abs(np.sum(rest * W["W_mm"])) < 1e-9 * np.linalg.norm(rest) * np.linalg.norm(W["W_mm"])


def made(s, Y=((1.0, -1.0),), W=1.0) -> multi_token.Runs:
    """Runs that end with these probabilities, (seeds, n, T)."""
    s = np.asarray(s, float)
    seeds, n, T = s.shape
    rng = np.random.default_rng(0)
    Y = np.broadcast_to(np.asarray(Y, float), (seeds, n))
    problems = Problem(rng.normal(size=(seeds, n, T, 4)), rng.normal(size=(seeds, n, 4)), Y, np.ones((seeds, 4)))
    logits = np.log(s)[:, None] + 7.0
    return multi_token.Runs(problems, W * np.ones((seeds, 4, 4)), logits, np.ones((seeds, 1)), np.array([2000]))


TWO = [0.5, 0.5 - 1e-7, 1e-7]


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (TWO, -1),
        ([0.9989, 1.1e-3, 0.9e-6], -1),
        ([0.999, 1e-3 - 1e-7, 1e-7], EXCLUDED.index("ambiguous")),
        ([0.999, 1e-3 - 1.1e-6, 1.1e-6], EXCLUDED.index("ambiguous")),
        ([0.6, 0.2, 0.2], EXCLUDED.index("finite")),
    ],
)
def test_the_published_selection_goes_by_its_thresholds(first, reason):
    runs = made([[first, [0.5, 0.25, 0.25]]])
    assert multi_token.published(runs).tolist() == [reason]
    if reason < 0:
        np.testing.assert_array_equal(multi_token.selected_sets(runs)[0], multi_token.probabilities(runs)[0] >= 1e-3)
        np.testing.assert_array_equal(multi_token.selected_sets(runs)[0], [[True, True, False], [True, True, True]])


def test_labels_and_divergence_come_before_the_probabilities():
    ambiguous = [[0.999, 1e-3 - 1e-5, 1e-5], TWO]
    for labels in (True, False):
        reason = EXCLUDED.index("labels" if labels else "ambiguous")
        assert multi_token.published(made([ambiguous]), labels=np.array([labels])).tolist() == [reason]
    divergent = multi_token.published(made([[TWO, TWO]], W=np.nan), labels=np.array([True]))
    assert divergent.tolist() == [EXCLUDED.index("diverged")]
    assert multi_token.unselected(made([[TWO, TWO]], W=np.nan)).tolist() == [EXCLUDED.index("diverged")]
    assert multi_token.unselected(made([ambiguous, [[0.4, 0.3, 0.3]] * 2])).tolist() == [-1, EXCLUDED.index("finite")]


@pytest.mark.parametrize(
    ("s", "selected"),
    [
        ([1.0, 1e-200, 1e-300], [True, False, False]),
        ([2e-3, 1e-9, 0.998], [True, False, True]),
        ([2e-3, 1e-5, 0.998], [True, True, True]),
        ([1e-12, 2e-5, 0.9999], [False, False, True]),
        ([1e-12, 2e-9, 0.9999], [False, False, True]),
        ([1e-4, 1e-2, 0.9899], [True, True, True]),
    ],
)
def test_sets_end_at_the_first_gap(s, selected):
    assert multi_token.selected_sets(made([[s, TWO]]))[0, 0].tolist() == selected


LAW = partial(data.mlp, n=3, T=4, d=4)


def setting(kind: type[Training], seeds: int, steps: int, every: int) -> Training:
    optimizer = descent.normalized_gd(0.1)
    return kind(LAW, initial.free, optimizer, losses.logistic, heads.mlp, seeds, 1, steps, Evenly(every), every)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """So few steps that most runs are left out, and some kept."""
    path = tmp_path_factory.mktemp("runs") / "record.zarr"
    recording.run(setting(Screening, 40, 2000, 500), path, {"config": "{}"})
    return records.load(path)


def test_a_screening_is_a_training_that_keeps_logits(record):
    plain = setting(Training, 40, 2000, 500).block(np.arange(40), np.asarray(jax.random.key_data(jax.random.key(1))))
    plain = {name: array[:3] for name, array in plain.items()}
    problems = Problem(plain["X"], plain["Z"], plain["Y"], plain["v"])
    logits = jax.vmap(lambda W, problem: jax.vmap(lambda one: attention.logits(one, problem))(W))
    # Programs of other results round differently, and the published rule drifts on that: early snapshots agree.
    assert_close(record["logits_snapshots"].values[:3, 0], logits(plain["W_snapshots"], problems)[:, 0], rtol=1e-6)
    assert_close(
        record["size_snapshots"].values[:3, 0], np.linalg.norm(plain["W_snapshots"], axis=(2, 3))[:, 0], rtol=1e-6
    )
    assert {"W_snapshots", "W_initial"} & set(record) == set()
    assert record["logits_snapshots"].dims == ("seed", "snapshot", "input", "token")


def test_a_screening_of_factors_is_refused():
    factored = setting(Screening, 2, 20, 10)
    object.__setattr__(factored, "initial", initial.factored)
    with pytest.raises(ValueError, match=r"^weights: expected a free W"):
        recording.shapes(factored)


@pytest.fixture(scope="module")
def measured(record):
    return multi_token_mlp.measure(record)


def test_distances_are_those_of_the_weights(record, measured):
    runs = multi_token.runs_of(record)
    seeds = measured["seed"].values
    described = multi_token.describe(
        jax.tree.map(lambda leaf: leaf[seeds], runs.problems), runs.W[seeds], multi_token.selected_sets(runs)[seeds]
    )
    for k, seed in enumerate(seeds):
        for solution, W in zip(multi_token.SOLUTIONS, described.W[k], strict=True):
            expected = off(runs.W[seed], W) if np.any(W) else 1.0
            found = float(measured["off"].sel(seed=seed, solution=solution).isel(snapshot=-1))
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_every_attempt_is_counted_once_and_the_two_parts_share_their_runs(record, measured):
    runs = multi_token.runs_of(record)
    for prefix, reason in (
        ("", multi_token.published(runs, labels=multi_token_mlp.labels_of_one_kind(runs))),
        ("every_", multi_token.unselected(runs)),
    ):
        reasons = {name: measured.attrs[prefix + name] for name in EXCLUDED if prefix + name in measured.attrs}
        assert measured.attrs[prefix + "attempted"] == 40 == measured.attrs[prefix + "kept"] + sum(reasons.values())
        assert measured.attrs[prefix + "kept"] == int((reason < 0).sum())
        assert all(count == int((reason == EXCLUDED.index(name)).sum()) for name, count in reasons.items())
    assert int(measured["published"].sum()) == measured.attrs["kept"] > 0
    assert int(measured["every"].sum()) == measured.attrs["every_kept"] > measured.attrs["kept"]
    assert measured.attrs["ambiguous"] > 0 < measured.attrs["labels"]


def test_attempts_end_with_the_last_run_that_is_needed(record, measured, monkeypatch):
    kept = measured["seed"].values[measured["published"].values]
    monkeypatch.setattr(multi_token, "SEEDS", 3)
    few = multi_token_mlp.measure(record)
    assert few.attrs["kept"] == 3
    assert few.attrs["attempted"] == kept[2] + 1 == 3 + sum(few.attrs[reason] for reason in EXCLUDED)
    assert few["seed"].values[few["published"].values].tolist() == kept[:3].tolist()
    assert few.attrs["every_attempted"] == 3
    assert set(few["seed"].values[few["every"].values]) <= {0, 1, 2}


def gives_up(constraints: svm.Constraints, norm: svm.Norm) -> svm.Candidate:
    del norm
    shape = constraints.differences.shape
    return svm.Candidate(jnp.zeros((shape[-1], shape[-1])), jnp.zeros(shape[:-1]), jnp.asarray(0))


def test_runs_that_cannot_be_described_are_counted_as_unsolved(record, measured):
    found = multi_token_mlp.measure(record, solver=gives_up)
    assert found.sizes["seed"] == found.attrs["kept"] == found.attrs["every_kept"] == 0
    assert found.attrs["unsolved"] == measured.attrs["kept"]
    assert found.attrs["every_unsolved"] == measured.attrs["every_kept"]
    summaries, claims = multi_token_mlp.summarize({"d = 4": found}, KEY)
    assert {claim.verdict for claim in claims} == {Verdict.OPEN}
    assert "no run is kept" in {text.get_text() for axes in figure.draw(summaries).axes for text in axes.texts}


def as_published(changes=(), every=(0.02, 0.1, 0.15), seeds=400, last=2000):
    """Claims of runs whose means are the published ones but for changes, (d, solution, mean) each."""
    means = {(d, name): by_d[d] for name, by_d in multi_token_mlp.PUBLISHED.items() for d in (4, 6)}
    means |= {(d, name): mean for d, name, mean in changes}
    wobble = 0.2 * np.resize([1.0, -1.0], seeds)
    runs = {}
    for d in (4, 6):
        one = np.array([*(means[d, name] for name in multi_token_mlp.PUBLISHED), 0.9])
        both = np.concatenate([np.outer(1 + wobble, one), np.outer(1 + wobble, [*every, 0.9])])
        which = np.arange(2 * seeds) < seeds
        counts = {"attempted": seeds + 5, "kept": seeds, "ambiguous": 5}
        runs[f"d = {d}"] = xarray.Dataset(
            {
                "off": (("seed", "solution", "snapshot"), both[:, :, None] * np.array([2.0, 1.0])),
                "size": (("seed",), np.full(2 * seeds, 50.0)),
                "masked": (("seed",), np.full(2 * seeds, 1e-8)),
                "published": (("seed",), which),
                "every": (("seed",), ~which | (np.arange(2 * seeds) == 0)),
            },
            {"seed": np.arange(2 * seeds), "solution": list(multi_token.SOLUTIONS), "snapshot": [100, last]},
            {"run": f"d = {d}", "d": d, **counts} | {f"every_{k}": v for k, v in counts.items()} | {"every_finite": 5},
        )
    return multi_token_mlp.summarize(runs, KEY)


def test_the_published_numbers_hold_in_their_order():
    summaries, (selected, every) = as_published()
    assert (selected.verdict, every.verdict) == (Verdict.HOLDS, Verdict.HOLDS)
    assert selected.measured == pytest.approx(selected.expected)
    assert set(selected.expected) == {f"d = {d}, {name}" for d in (4, 6) for name in multi_token_mlp.PUBLISHED}
    drawn = figure.draw(summaries)
    final = [y[-1] for _, y in drawn_lines(drawn.axes[0])]
    np.testing.assert_allclose(final, [*(by_d[4] for by_d in multi_token_mlp.PUBLISHED.values()), 0.9])
    marks = [points[1, 0] for points in drawn_lines(drawn.axes[0], least=1) if points.shape[1] == 1]
    assert marks == [by_d[4] for by_d in multi_token_mlp.PUBLISHED.values()]
    assert "d = 4: 400 of 405 runs kept (5 ambiguous)" in drawn.get_supxlabel()


@pytest.mark.parametrize(
    ("changes", "every", "verdicts"),
    [
        ([(4, "W_mm", 0.065)], (0.02, 0.1, 0.15), (Verdict.CORRECTED, Verdict.HOLDS)),
        ([(4, "W_mm", 0.03)], (0.02, 0.1, 0.15), (Verdict.FAILS, Verdict.HOLDS)),
        ([(6, "W_1token", 0.04)], (0.02, 0.1, 0.15), (Verdict.FAILS, Verdict.HOLDS)),
        ([], (0.02, 0.2, 0.15), (Verdict.HOLDS, Verdict.CORRECTED)),
        ([], (0.2, 0.1, 0.15), (Verdict.HOLDS, Verdict.FAILS)),
    ],
)
def test_another_order_or_other_numbers_change_the_verdict(changes, every, verdicts):
    assert tuple(claim.verdict for claim in as_published(changes, every)[1]) == verdicts


@pytest.mark.parametrize("few", [{"seeds": 6}, {"last": 900}])
def test_few_runs_or_steps_decide_nothing(few):
    assert {claim.verdict for claim in as_published(**few)[1]} == {Verdict.OPEN}
