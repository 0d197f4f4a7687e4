"""Token-priority graphs: components against reachability, the two parts of the limit by hand, and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import language, svm
from jaxattn.experiments.language.next_token_graph import law
from jaxattn.language import priority

V = 4


def text(*inputs, E=None):
    """A text of inputs (last word, next word, tokens)."""
    last, following, tokens = zip(*inputs, strict=True)
    counts = np.stack([np.bincount(held, minlength=V) for held in tokens]).astype(float)
    arrays = np.eye(V) if E is None else E, np.array(last), np.array(following), np.ones(len(last)), counts
    return language.Choices(*map(jnp.asarray, arrays))


# Words 1 and 2 in a cycle, before 0, which is the last word.
CYCLE = text((0, 1, (1, 2, 0)), (0, 1, (1, 2, 0)), (0, 2, (2, 1, 1, 0)))
CHAIN = text((0, 1, (1, 2, 0)), (0, 2, (2, 0)))


def parts(choices):
    groups = priority.components(priority.edges(choices))

    @jax.jit
    def posed(choices):
        logits = priority.finite_logits(choices, groups)
        return priority.constraints(choices, groups), priority.finite_constraints(choices, groups, logits)

    rows, equations = posed(choices)
    return groups, svm.solve(rows), equations


def test_edges_go_from_the_next_word_to_every_other_one():
    found = np.argwhere(np.asarray(priority.edges(CYCLE))).tolist()
    assert found == [[0, 1, 0], [0, 1, 2], [0, 2, 0], [0, 2, 1]]
    # An input that does not count has none.
    left_out = CHAIN._replace(weight=jnp.array([1.0, 0.0]))
    assert np.argwhere(np.asarray(priority.edges(left_out))).tolist() == [[0, 1, 0], [0, 1, 2]]


def test_components_are_the_words_that_reach_each_other():
    graphs = np.random.default_rng(0).random((5, 6, 6, 6)) < 0.25
    reach = graphs | np.eye(6, dtype=bool)
    for _ in range(3):
        reach = reach @ reach
    mutual = reach & reach.swapaxes(-1, -2)
    np.testing.assert_array_equal(priority.components(graphs), np.argmax(mutual, axis=-1))


def test_the_graph_svm_ties_a_cycle_and_separates_the_rest():
    groups, solution, _ = parts(CYCLE)
    assert groups[0].tolist() == [0, 1, 1, 3]
    assert svm.Status(int(solution.status)) is svm.Status.OPTIMAL
    # The least-norm gap between words 1 and 2 together and word 0: proportional to (-2, 1, 1), of difference 1.
    np.testing.assert_allclose(solution.W[:, 0], [-2 / 3, 1 / 3, 1 / 3, 0], atol=1e-8)
    np.testing.assert_allclose(solution.W[:, 1:], 0, atol=1e-12)


def test_the_finite_part_minimizes_the_loss_within_the_cycle():
    _, _, equations = parts(CYCLE)
    W_fin = np.asarray(svm.solve(equations).W)
    # log(1 + e^-x) twice, and log(1 + 2 e^x) once, for the difference x of words 1 and 2: its slope is 0.
    x = W_fin[1, 0] - W_fin[2, 0]
    assert 2 * np.exp(-x) / (1 + np.exp(-x)) == pytest.approx(2 * np.exp(x) / (1 + 2 * np.exp(x)), rel=1e-9)
    np.testing.assert_allclose(W_fin[:, 0], [0, x / 2, -x / 2, 0], atol=1e-9)


def test_the_cyclic_part_keeps_words_of_the_next_words_component_alone():
    whole = priority.cyclic(CYCLE, priority.components(priority.edges(CYCLE)))
    assert np.asarray(whole.counts).tolist() == [[0, 1, 1, 0], [0, 1, 1, 0], [0, 2, 1, 0]]
    assert whole.weight.tolist() == [1, 1, 1]


def test_without_a_cycle_there_is_no_finite_part():
    groups, solution, equations = parts(CHAIN)
    assert groups.tolist() == [[0, 1, 2, 3]] * V
    np.testing.assert_allclose(solution.W[:, 0], [-1, 1, 0, 0], atol=1e-8)
    assert not np.asarray(equations.present).any()
    finite = svm.solve(equations)
    assert svm.Status(int(finite.status)) is svm.Status.OPTIMAL
    np.testing.assert_array_equal(finite.W, 0)
    assert priority.cyclic(CHAIN, groups).weight.tolist() == [0, 0]


def test_a_text_whose_words_are_all_in_one_cycle_has_no_direction():
    _, solution, _ = parts(text((0, 1, (1, 0)), (0, 0, (0, 1))))
    assert svm.Status(int(solution.status)) is svm.Status.OPTIMAL
    np.testing.assert_array_equal(solution.W, 0)


def test_linearly_dependent_embeddings_are_infeasible_and_said_to_be():
    E = jnp.array([[1.0, 0], [1, 0], [0, 1], [0, -1]])
    _, solution, _ = parts(text((0, 1, (1, 0)), E=E))
    assert svm.Status(int(solution.status)) is svm.Status.INFEASIBLE


def test_with_all_words_as_candidates_the_parts_are_those_of_the_words_that_follow():
    words = jnp.array([[0, 1, 0, 2, 0, 1, 3, 0]])

    @jax.jit
    def posed(words):
        own = language.of_text(jnp.eye(V), words)
        return own, language.set_constraints(own, language.followers(own) > 0), language.finite_constraints(own)

    own, sets, finite = posed(words)
    _, solution, equations = parts(own)
    np.testing.assert_allclose(solution.W, svm.solve(sets).W, atol=1e-8)
    np.testing.assert_allclose(svm.solve(equations).W, svm.solve(finite).W, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("cycle", [1, 2, 3, 4, 5])
def test_planted_graphs_have_one_cycle_of_the_length(cycle):
    for seed in range(4):
        drawn = law.planted(jax.random.key(seed), V=7, asking=2, cycle=cycle, inputs=8, T=5)
        np.testing.assert_allclose(np.sum(np.asarray(drawn.counts), axis=1), 5)
        groups = priority.components(priority.edges(drawn))
        for k in set(drawn.last.tolist()):
            sizes = np.bincount(groups[k], minlength=7)
            assert sorted(sizes[sizes > 1].tolist()) == ([cycle] if cycle > 1 else [])
        assert len(set(drawn.last.tolist())) == 2


GROUPS = np.tile(np.arange(V), (V, 1))
MALFORMED = {
    "next word out of range": (lambda: priority.edges(CHAIN._replace(next=jnp.array([1, 4]))), "next: .* found 1..4"),
    "last word out of range": (lambda: priority.edges(CHAIN._replace(last=jnp.array([-1, 0]))), "last: .* found -1..0"),
    "a label that is not in the input": (
        lambda: priority.edges(text((0, 1, (1, 2)), (0, 3, (1, 2)))),
        "counts: expected each input to hold its next word, found none in input 1",
    ),
    "scores": (lambda: priority.edges(CHAIN._replace(scores=jnp.ones((2, V)))), "choices: expected a next word"),
    "one word": (lambda: language.of_text(jnp.ones((1, 3)), jnp.zeros((1, 4), int)), "E: .* at least 2 words"),
    "graphs that are no squares": (lambda: priority.components(np.zeros((2, 3, 3), bool)), r"edges: .*\(2, 3, 3\)"),
    "graphs of numbers": (lambda: priority.components(np.zeros((3, 3, 3))), "edges: .* float64"),
    "components of another text": (lambda: priority.constraints(CHAIN, GROUPS[:2]), r"components: .*\(2, 4\)"),
    "components out of range": (lambda: priority.cyclic(CHAIN, GROUPS + 1), "components: .* found 1..4"),
    "components that are no words": (lambda: priority.finite_logits(CHAIN, GROUPS / 1), "components: .* float64"),
}


@pytest.mark.parametrize("mistake", MALFORMED)
def test_a_mistake_is_named(mistake):
    call, message = MALFORMED[mistake]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"V": 2}, r"cycle: expected 1\.\.1 of V = 2 words, found 2"),
        ({"asking": 8}, r"asking: expected 1\.\.7 of V = 7 words, found 8"),
        ({"cycle": 7, "inputs": 9}, r"cycle: expected 1\.\.6 .* found 7"),
        ({"cycle": 0}, "cycle: expected an integer of at least 1, found 0"),
        ({"cycle": 6}, "inputs: expected at least 6, found 5"),
        ({"T": 3}, "T: expected at least 4, found 3"),
    ],
)
def test_sizes_that_no_planted_graph_has_are_named(changes, message):
    sizes = {"V": 7, "asking": 2, "cycle": 2, "inputs": 5, "T": 5} | changes
    if "V" in changes:
        sizes["asking"] = 1
    with pytest.raises(ValueError, match=message):
        law.planted(jax.random.key(0), **sizes)


def test_too_few_dimensions_for_independent_embeddings_are_named():
    with pytest.raises(ValueError, match=r"d: expected at least V = 7, .* found 6"):
        law.spherical(jax.random.key(0), 7, 6)
