"""The runs of a screening: what they record, which tokens they select, and which of them are excluded."""

import jax
import numpy as np
import pytest
from scipy.special import softmax

from jaxattn import Problem, attention, initial
from jaxattn.experiments.several_tokens import screening
from jaxattn.study.claims import EXCLUDED
from jaxattn.study.settings import recording
from jaxattn.study.settings.training import Screening, Training
from tests.experiments.several_tokens.runs import setting
from tests.instances import assert_close


def made(s, Y=((1.0, -1.0),), W=1.0) -> screening.Runs:
    """Runs that end with these probabilities, (seeds, n, T)."""
    s = np.asarray(s, float)
    seeds, n, T = s.shape
    rng = np.random.default_rng(0)
    Y = np.broadcast_to(np.asarray(Y, float), (seeds, n))
    problems = Problem(rng.normal(size=(seeds, n, T, 4)), rng.normal(size=(seeds, n, 4)), Y, np.ones((seeds, 4)))
    logits = np.log(s)[:, None] + 7.0
    return screening.Runs(problems, W * np.ones((seeds, 4, 4)), logits, np.ones((seeds, 1)), np.array([2000]))


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
    assert screening.published(runs).tolist() == [reason]
    if reason < 0:
        np.testing.assert_array_equal(screening.selected_sets(runs)[0], softmax(runs.logits[0, -1], axis=-1) >= 1e-3)
        np.testing.assert_array_equal(screening.selected_sets(runs)[0], [[True, True, False], [True, True, True]])


def test_labels_and_divergence_come_before_the_probabilities():
    ambiguous = [[0.999, 1e-3 - 1e-5, 1e-5], TWO]
    for labels in (True, False):
        reason = EXCLUDED.index("labels" if labels else "ambiguous")
        assert screening.published(made([ambiguous]), labels=np.array([labels])).tolist() == [reason]
    divergent = screening.published(made([[TWO, TWO]], W=np.nan), labels=np.array([True]))
    assert divergent.tolist() == [EXCLUDED.index("diverged")]
    assert screening.unselected(made([[TWO, TWO]], W=np.nan)).tolist() == [EXCLUDED.index("diverged")]
    assert screening.unselected(made([ambiguous, [[0.4, 0.3, 0.3]] * 2])).tolist() == [-1, EXCLUDED.index("finite")]


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
    assert screening.selected_sets(made([[s, TWO]]))[0, 0].tolist() == selected


def test_a_screening_is_a_training_that_keeps_logits(record):
    plain = setting(Training, 40, 2000, 500).block(np.arange(40), np.asarray(jax.random.key_data(jax.random.key(1))))
    plain = {name: array[:3] for name, array in plain.items()}
    problems = Problem(plain["X"], plain["Z"], plain["Y"], plain["v"])
    logits = jax.vmap(lambda W, problem: jax.vmap(lambda one: attention.logits(one, problem))(W))
    # Programs of other results round differently, and the published rule drifts on that: early snapshots agree.
    size = np.linalg.norm(plain["W_snapshots"], axis=(2, 3))
    assert_close(record["logits_snapshots"].values[:3, 0], logits(plain["W_snapshots"], problems)[:, 0], rtol=1e-6)
    assert_close(record["size_snapshots"].values[:3, 0], size[:, 0], rtol=1e-6)
    assert {"W_snapshots", "W_initial"} & set(record) == set()
    assert record["logits_snapshots"].dims == ("seed", "snapshot", "input", "token")


def test_a_screening_of_factors_is_refused():
    factored = setting(Screening, 2, 20, 10)
    object.__setattr__(factored, "initial", initial.factored)
    with pytest.raises(ValueError, match=r"^weights: expected a free W"):
        recording.shapes(factored)
