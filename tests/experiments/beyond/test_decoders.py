"""Rotary decoders, patches, sentences and Muon; and synthetic measurements of all runs."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray

from jaxattn import descent, svm
from jaxattn.attention import Factored
from jaxattn.experiments.beyond import decoders
from jaxattn.experiments.beyond.decoders import rotary, tasks, training
from jaxattn.experiments.beyond.decoders.measure import measure
from jaxattn.experiments.beyond.digits import images
from jaxattn.experiments.beyond.hierarchy.decoder import Decoder, Rates, add, root_mean_square
from jaxattn.experiments.beyond.hierarchy.record import Decoders
from jaxattn.language import Markov
from tests.experiments.beyond import test_hierarchy

VERDICTS = {"decoders:hope": "does not hold"}
ROTARY = rotary.Rotary(vocabulary=6, length=6, d=12, width=5, heads=2, compared=partial(rotary.lifted, angle=0.7))


def measured():
    """Heads obey where only K and Q are trained, and end at .2 elsewhere."""
    return {name: run(obeys=name == decoders.FROZEN) for name in (*decoders.EVERYTHING, decoders.FROZEN)}


def run(obeys):
    """As the runs of hierarchy, with a ratio in the spectral norm."""
    found = test_hierarchy.run(obeys=obeys, soft=not obeys)
    spectral = 0.1 + 0.01 * np.sin(np.arange(test_hierarchy.SEEDS))[:, None]
    return found.assign(spectral=(("seed", "head"), spectral)).assign_attrs(unlearned=0)


@jax.jit
def attention(parameters, sequences):
    """The logits of the rotary attention, and what it reads."""
    found = []

    def attend(logits, values):
        found.append(logits)
        return jax.nn.softmax(logits, axis=-1) @ values

    _, read = ROTARY.logits(parameters, sequences, attend)
    return found[0], read


@cache
def parameters():
    return jax.jit(ROTARY.initial)(jax.random.key(3))


def test_rotary_logits_depend_on_positions_only_through_their_differences():
    sequences = np.array([[4, 1, 2, 4, 1, 2], [0, 3, 5, 0, 3, 5]])
    logits, _ = map(np.asarray, attention(parameters(), sequences))
    np.testing.assert_allclose(logits[:, :, 3:, 3:], logits[:, :, :3, :3], atol=1e-12)
    # The same tokens at another distance have another logit.
    assert abs(logits[:, :, 4, 3] - logits[:, :, 4, 0]).min() > 1e-3
    moved = parameters()._replace(positions=parameters().positions + 1)
    np.testing.assert_array_equal(attention(moved, sequences)[0], logits)


def test_unfolded_W_gives_the_logits_wherever_the_sequence_begins():
    sequences = np.array([[4, 1, 2, 0, 3, 5], [0, 5, 4, 3, 2, 1]])
    logits, read = map(np.asarray, attention(parameters(), sequences))
    W = parameters().layers[0].W
    tokens = ("sequence", "token")
    arrays = dict.fromkeys(("W", "start"), (("head", "feature", "query_feature"), W))
    arrays |= dict.fromkeys(("sequences", "sources"), (tokens, sequences))
    whole = rotary.unfolded(xarray.Dataset(arrays | {"read": ((*tokens, "feature"), read[0])}))
    seen = np.tril(np.ones((6, 6), bool))
    found = np.einsum("ntd,hde,nue->hnut", whole["read"], whole["W"], whole["read"])
    np.testing.assert_allclose(found[:, :2][..., seen], logits[..., seen], atol=1e-12)
    np.testing.assert_allclose(found[:, 2:], found[:, :2], atol=1e-12)
    assert whole.sizes["sequence"] == 4


@pytest.mark.parametrize("norm", ["frobenius", "nuclear", "spectral"])
def test_the_largest_margin_over_all_matrices_is_that_of_a_rotary_head(norm):
    x = rotary.lifted(jax.random.normal(jax.random.key(1), (3, 3, 4)), 0.7)
    x = jnp.concatenate([x, rotary.quarter(x)])
    solution = svm.solve(svm.Constraints(x[:, 2:] - x[:, :2], x[:, 2]), norm=norm)
    assert solution.status == svm.Status.OPTIMAL
    turned = rotary.quarter(rotary.quarter(solution.W).mT).mT
    mean = (solution.W + turned) / 2
    assert float(jnp.min(svm.margins(svm.Constraints(x[:, 2:] - x[:, :2], x[:, 2]), mean))) > 1 - 1e-6
    length = {"frobenius": jnp.linalg.norm, "nuclear": partial(jnp.linalg.norm, ord="nuc")}
    of = length.get(norm, partial(jnp.linalg.norm, ord=2))
    np.testing.assert_allclose(of(mean), of(solution.W), rtol=1e-5)


def test_the_next_word_follows_from_the_last_two():
    key = jax.random.key(2)
    batch = jax.jit(partial(tasks.language, n=5, T=6, V=7, entropy=0.0, order=2))(key)
    sequences, targets = np.asarray(batch.sequences), np.asarray(batch.targets)
    table = np.asarray(jax.jit(Markov(7, 0.0, 2).table)(jax.random.split(key)[0]))
    before, word = sequences[:, :-1], sequences[:, 1:]
    np.testing.assert_array_equal(word, targets[:, :-1])
    np.testing.assert_array_equal(table[before * 7 + word].argmax(axis=-1), targets[:, 1:])


def test_patches_are_those_of_the_digit_and_end_with_a_blank():
    batch = tasks.digits(jax.random.key(2), n=9)
    table = tasks._table()
    assert table.shape == (241, 16)
    assert not table[batch.sequences[:, -1]].any()
    patches = table[batch.sequences[:, :-1]]
    for digit, image in zip(batch.targets[:, -1], patches, strict=True):
        assert any(np.array_equal(image, known) for known in images.tokens()[digit, : tasks.IMAGES])


def test_a_patch_is_embedded_by_a_linear_map_of_its_pixels():
    decoder = tasks.Patches(vocabulary=241, length=5, d=7, width=7, join=add)
    parameters = jax.jit(decoder.initial)(jax.random.key(3))
    sequences = tasks.digits(jax.random.key(2), n=2).sequences
    logits, read = jax.jit(decoder.logits)(parameters, sequences)
    assert logits.shape == (2, 5, 10)
    embedded = tasks._table()[sequences] @ np.asarray(parameters.tokens) + np.asarray(parameters.positions)
    np.testing.assert_allclose(read[0], embedded)
    with pytest.raises(ValueError, match="vocabulary: expected all 241 patches, found 8"):
        tasks.Patches(vocabulary=8, length=5, d=13)


def test_muon_moves_the_matrices_of_each_head_by_orthogonal_ones():
    model = Decoder(vocabulary=5, length=4, d=9, width=9, heads=2, hidden=9)
    parameters, rng = jax.jit(model.initial)(jax.random.key(0)), np.random.default_rng(0)
    gradient = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), parameters)
    rules = training.muon(1.0, 0.1), optax.adam(0.1, nesterov=True)
    steps = [jax.jit(lambda slope, at, rule=rule: rule.update(slope, rule.init(at), at)[0]) for rule in rules]
    updates, expected = (step(gradient, parameters) for step in steps)
    np.testing.assert_allclose(updates.tokens, expected.tokens, rtol=1e-6)
    np.testing.assert_allclose(updates.readout, expected.readout, rtol=1e-6)
    assert isinstance(updates.layers[0].attention, Factored)
    for part in jax.tree.leaves(updates.layers):
        # Newton-Schulz leaves singular values within .7 and 1.2, smaller ones where the gradient's are small.
        assert np.linalg.svd(part, compute_uv=False).max() < 1.3
        assert np.median(np.linalg.svd(part, compute_uv=False)) > 0.6


def test_snapshots_span_the_last_decade():
    assert training.last_decade(2000, 5) == (200, 356, 632, 1125, 2000)


@pytest.mark.slow
def test_decoders_that_have_not_learned_or_are_not_solved_are_excluded_and_counted(monkeypatch):
    model = rotary.Rotary(
        vocabulary=5,
        length=4,
        d=9,
        width=9,
        compared=partial(rotary.lifted, angle=1.0),
        norm=root_mean_square,
        join=add,
        rates=Rates(1.0, 1.0, 1.0, 1.0),
    )
    rule = descent.ScaleFree(*optax.adam(0.01, eps=1e-30))
    setting = Decoders(test_hierarchy.TASK, model, rule, 3, 7, 500, partial(training.last_decade, count=5))
    record = test_hierarchy.record_of(setting).assign_attrs({"model.compared.angle": 1.0, "model.rates.readout": 1.0})
    record["log_loss"][1, -1] = 1.0
    found = measure(record)
    assert found["seed"].values.tolist() == [0, 2]
    assert [found.attrs[name] for name in ("attempted", "kept", "unsolved", "unlearned")] == [3, 2, 1, 1]
    assert found["spectral"].shape == (2, 1)
    assert (found["spectral"] <= 1 + 1e-6).all()
    monkeypatch.setitem(measure.__globals__, "_spectral", lambda record: np.array([[np.nan], [0.5]]))
    found = measure(record)
    assert found["seed"].values.tolist() == [2]
    assert [found.attrs[name] for name in ("attempted", "kept", "unsolved")] == [3, 1, 2]
    record["log_loss"][:, -1] = [np.nan, 1.0, 1.0]
    with pytest.raises(ValueError, match=r"^decoders: expected one to measure, found none: each diverged"):
        measure(record)
