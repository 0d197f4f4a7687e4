"""Decoders and their heads: exact attention, tasks, rows, and synthetic measurements of the ladder."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxattn import descent, metrics, svm
from jaxattn.attention import Factored
from jaxattn.experiments.beyond.hierarchy import claims, decoder, single, tasks
from jaxattn.experiments.beyond.hierarchy.attending import attended, hard
from jaxattn.experiments.beyond.hierarchy.heads import spelled, view
from jaxattn.experiments.beyond.hierarchy.measure import NORMS, measure
from jaxattn.experiments.beyond.hierarchy.record import Decoders
from jaxattn.study.settings import recording
from jaxattn.study.settings.schedule import Logarithmically

VERDICTS = {
    "hierarchy:bounded": "does not hold",
    "hierarchy:layers": "does not hold",
    "hierarchy:hope": "does not hold",
}
SEEDS, STEPS = 20, np.array([100, 178, 316, 562, 1000, 1778, 3162, 5623, 10_000])
CELLS = ("sequence", "query", "token")
OBEYING = (*claims.FROZEN, claims.READOUT, claims.OWN, claims.STOPPED)


def measured():
    """Heads obey where the inputs stand still, and end at .2 where they are trained."""
    names = dict.fromkeys((*OBEYING, *claims.TRAINED_INPUTS, *claims.TASKS[1:], *claims.CONDITIONS))
    runs = {name: run(obeys=name in OBEYING, soft=name in claims.TRAINED_INPUTS[3:]) for name in names}
    return runs | {claims.TEXT: runs[claims.TEXT].assign_attrs({"data.of.V": 4})}


def run(obeys, soft):
    """One head for each seed: W grows with the steps, or stands still while the margin grows by other means."""
    spread = 1 + 0.01 * np.cos(np.arange(SEEDS))[:, None]
    size = STEPS * spread if obeys else np.full((SEEDS, len(STEPS)), 4.0) * spread
    ratio = 1 - 2 / size if obeys else 0.2 * spread * np.ones(len(STEPS))
    margin = size * ratio if obeys else np.sqrt(STEPS) * spread
    of_ends = {"cone": 0.05, "mean": -0.5, "first": 0.1, "nearest": 0.8}
    ends = {name: (("seed", "head", "norm"), np.full((SEEDS, 1, 2), value)) for name, value in of_ends.items()}
    ones = np.ones((SEEDS, len(STEPS)))
    arrays = dict.fromkeys(("probability", "asked"), (("seed", "head"), np.ones((SEEDS, 1)))) | {
        "ratio": (("seed", "head", "norm", "snapshot"), np.repeat(ratio[:, None, None], 2, axis=2)),
        "size": (("seed", "head", "snapshot"), size[:, None]),
        "margin": (("seed", "head", "snapshot"), margin[:, None]),
        "log_loss": (("seed", "snapshot"), -ones),
        "log_loss_hard": (("seed", "snapshot"), (1 if soft else -1) * 0.1 * spread - ones),
        "share": (("seed", "snapshot"), 0.5 * ones),
    }
    # Of one sequence of three tokens: each query selects the token before it, and the last has a support vector.
    cells = np.tri(3, k=-1, dtype=bool) & ~np.tri(3, k=-2, dtype=bool)
    arrays |= {
        "null": (("head", "snapshot", "kind"), np.tile([0.0, 0.05, -0.5], (1, len(STEPS), 1))),
        "attention": (("head", "snapshot", *CELLS), np.tile(np.tri(3) / [[1], [2], [3]], (1, len(STEPS), 1, 1, 1))),
        "support": (("head", "snapshot", *CELLS), np.tile(np.tri(3, k=-2, dtype=bool), (1, len(STEPS), 1, 1, 1))),
        "selected": (("head", *CELLS), cells[None, None]),
        "tokens": (("sequence", "token"), np.array([[1, 0, 2]])),
    }
    axes = {"seed": np.arange(SEEDS), "head": np.array([claims.FIRST], object), "norm": np.array(NORMS, object)}
    axes["kind"] = np.array(single.NULLS, object)
    counts = {"attempted": SEEDS, "kept": SEEDS, "infeasible": 0, "unsolved": 0, "diverged": 0}
    return xarray.Dataset(arrays | ends, axes | {"snapshot": STEPS}, counts | {"steps": 10_000})


TASK = tasks.Fixed(partial(tasks.previous, n=4, T=4, V=5), 1)
SMALL = decoder.Decoder(vocabulary=5, length=4, d=9, width=9)


def test_exact_attention_is_softmax_and_its_gradient_keeps_its_digits():
    rng = np.random.default_rng(0)
    logits, values = jnp.asarray(rng.normal(size=(3, 4))), jnp.asarray(rng.normal(size=(4, 2)))

    def usual(logits, values):
        return jax.nn.softmax(logits, axis=-1) @ values

    def with_slopes(write):
        return jax.jit(lambda *given: (write(*given), *jax.jacobian(write, (0, 1))(*given)))(logits, values)

    (own, *slopes), (other, *others) = with_slopes(attended), with_slopes(usual)
    np.testing.assert_allclose(own, other, rtol=1e-14)
    for slope, expected in zip(slopes, others, strict=True):
        np.testing.assert_allclose(slope, expected, atol=1e-14)
    # Of a lead of 60 the selected token's slope is e^-60, which the usual derivative loses.
    far, one = jnp.array([[60.0, 0.0]]), jnp.array([[1.0], [0.0]])
    slope = jax.jit(jax.grad(lambda far: jnp.sum(attended(far, one))))(far)
    np.testing.assert_allclose(slope, [[np.exp(-60), -np.exp(-60)]], rtol=1e-12)
    np.testing.assert_array_equal(hard(far, one), [[1.0]])


def test_the_loss_is_followed_far_below_rounding():
    log_loss = jax.jit(decoder.log_loss)
    # The second position does not count, so that it has no loss.
    targets, counts = jnp.zeros((1, 2), int), jnp.array([[True, False]])
    for lead in (1.0, 39.0, 41.0, 1000.0):
        exact = np.log(np.log1p(np.exp(-lead))) if lead < 30 else -lead
        found = log_loss(jnp.array([[[lead, 0.0], [0.0, 5.0]]]), targets, counts)
        np.testing.assert_allclose(found, exact, rtol=1e-12)


def test_at_the_start_a_head_copies_and_the_readout_knows_every_token():
    parameters = SMALL.initial(jax.random.key(3))
    sequences, none = jnp.array([[3, 1, 4, 0]]), jnp.zeros((1, 9, 9))
    first_only = parameters._replace(layers=(parameters.layers[0]._replace(attention=Factored(none, none)),))
    logits, read = jax.jit(SMALL.logits)(first_only, sequences)
    assert read.shape == (1, 1, 4, 9)
    # Without a preference the mean of all tokens so far is written.
    np.testing.assert_allclose(logits[0, 2], [0, 1 / 3, 0, 1 / 3, 1 / 3], atol=1e-12)
    hardened, _ = SMALL.logits(first_only, sequences, hard)
    np.testing.assert_allclose(hardened[0, 2], [0, 0, 0, 1, 0], atol=1e-12)


@pytest.mark.parametrize("task", [tasks.previous, tasks.largest])
def test_the_source_of_a_task_holds_the_answer(task):
    batch = task(jax.random.key(4), n=6, T=5, V=8)
    np.testing.assert_array_equal(np.take_along_axis(batch.sequences, batch.sources, axis=1), batch.targets)
    assert (np.asarray(batch.sources) <= np.arange(5)).all()
    assert all(len(set(row.tolist())) == 5 for row in batch.sequences)


def test_induction_asks_for_what_followed_the_last_token():
    batch = tasks.induction(jax.random.key(4), n=20, T=6, V=8)
    for sequence, target, source in zip(batch.sequences, batch.targets, batch.sources, strict=True):
        place = list(sequence[:-1]).index(sequence[-1])
        assert source[-1] == place + 1 < 5
        assert target[-1] == sequence[place + 1]


def test_the_text_is_the_same_everywhere():
    batch = tasks.text(jax.random.key(4), n=3, T=8, V=16)
    np.testing.assert_array_equal(batch.sequences[:, 1:], batch.targets[:, :-1])
    assert 0 <= int(batch.sequences.min()) < int(batch.sequences.max()) <= 15
    names = tasks.letters(16)
    assert (names[:4], names[-1], len(names)) == ([" ", "e", "t", "a"], "other", 16)
    # Of all letters the text begins so.
    assert "".join(tasks.letters(40)[token] for token in np.asarray(tasks._zen(40))[:14]) == "the zen of pyt"


def test_fresh_sequences_change_with_the_step():
    key = jax.random.key(5)
    fresh = tasks.Fresh(TASK.of, TASK.since)
    assert not jnp.array_equal(fresh(key, 0).sequences, fresh(key, 1).sequences)
    assert jnp.array_equal(TASK(key, 0).sequences, TASK(key, 1).sequences)


def test_only_what_has_a_rate_is_trained_and_only_until_it_stops():
    gradient = jax.tree.map(jnp.ones_like, SMALL.initial(jax.random.key(3)))
    rates = decoder.Rates(attention=2.0, inputs=0.5, until=10)
    for step, inputs in ((9, 0.5), (10, 0.0)):
        found = rates.applied(gradient, gradient, jnp.asarray(step))
        assert float(jax.tree.leaves(found.layers[0].attention)[0][0, 0, 0]) == 2.0
        assert (float(found.tokens[0, 0]), float(found.readout[0, 0])) == (inputs, 0.0)


def test_decay_draws_the_readout_to_zero():
    parameters = SMALL.initial(jax.random.key(3))
    flat = jax.tree.map(jnp.zeros_like, parameters)
    found = decoder.Rates(readout=2.0, decay=0.1).applied(flat, parameters, jnp.asarray(0))
    np.testing.assert_allclose(found.readout, 0.2 * parameters.readout)
    assert not any(map(jnp.any, jax.tree.leaves(found._replace(readout=flat.readout))))


@pytest.mark.parametrize("given", [{"readout": 1.0, "decay": -0.1}, {"decay": 0.1}])
def test_a_decay_that_changes_nothing_or_lets_the_readout_grow_is_refused(given):
    with pytest.raises(ValueError, match=r"rates\.decay: expected"):
        decoder.Rates(**given)


def recorded(**changes):
    """The record of a few short runs."""
    rule = descent.ScaleFree(*descent.falling(descent.jointly_normalized_gd(0.3, 0.0, 0.0)))
    setting = Decoders(TASK, dataclasses.replace(SMALL, **changes), rule, 3, 7, 400, Logarithmically(4))
    record, shapes = record_of(setting), recording.shapes(setting)
    assert {name: array.shape[1:] for name, array in record.items()} == {
        name: one.shape for name, one in shapes.items()
    }
    return record


def record_of(setting):
    """The record of three seeds of a setting."""
    arrays = setting.block(np.arange(3), np.asarray(jax.random.key_data(jax.random.key(7))))
    axes = {"seed": np.arange(3), **setting.coordinates}
    return xarray.Dataset({name: (("seed", *setting.dims(name)), array) for name, array in arrays.items()}, axes)


@pytest.fixture(scope="module")
def record():
    return recorded()


@pytest.fixture(scope="module")
def found(record):
    return measure(record)


def test_the_ratio_is_that_of_the_selected_tokens_on_what_the_head_reads(record, found):
    assert found.attrs["kept"] == 3
    seed, W = 1, record["W"].values[1, -1, 0, 0]
    read, rows, queries = record["read"].values[seed, -1, 0], [], []
    for sequence in read:
        for u in range(1, 4):
            logits = sequence[: u + 1] @ W @ sequence[u]
            best = int(np.argmax(logits))
            for t in set(range(u + 1)) - {best}:
                rows.append(sequence[best] - sequence[t])
                queries.append(sequence[u])
    constraints = svm.Constraints(jnp.array(rows)[:, None], jnp.array(queries))
    for norm in NORMS:
        ratio = metrics.margin_ratio(jnp.array(W), constraints, norm, svm.solve(constraints, norm=norm))
        np.testing.assert_allclose(found["ratio"].sel(norm=norm).values[seed, 0, -1], ratio, rtol=1e-6)
    # The start is nearly zero, so the nearest matrix with the same margins is nearly the optimum.
    assert (found["nearest"].sel(norm="frobenius") > 0.95).all()
    assert (found["cone"] < found["nearest"]).all()


def test_inputs_that_stand_still_are_measured_as_those_that_hardly_move(record, found):
    moved = record.copy(deep=True)
    moved["read"][:, -2] *= 1 + 1e-9
    moving = measure(moved)
    for name in ("ratio", "first", "cone", "nearest"):
        np.testing.assert_allclose(moving[name], found[name], rtol=1e-5)


def test_of_the_first_seed_is_kept_what_a_picture_shows(record, found):
    own = found.isel(head=0, snapshot=-1)
    read, W = record["read"].values[0, -1, 0, 2], record["W"].values[0, -1, 0, 0]
    logits = np.where(np.tri(4, dtype=bool), read @ W.T @ read.T, -np.inf)
    np.testing.assert_allclose(own["attention"][2], jax.nn.softmax(logits, axis=-1), atol=1e-12)
    np.testing.assert_array_equal(own["tokens"], record["sequences"][0])
    # The first query has no other token to lead; each other query selects one, which is no support vector.
    best = np.argmax(logits, axis=1)
    np.testing.assert_array_equal(np.argwhere(own["selected"].values[2]), [[u, best[u]] for u in (1, 2, 3)])
    assert not (own["support"] & own["selected"]).any()
    # The optimum has margin 1 on the rows of support vectors, and more on all others.
    selected = jnp.argmax(jnp.asarray(own["selected"].values), axis=-1)[:, 1:]
    rows = single.rows(jnp.asarray(record["read"].values[0, -1, 0]), selected, (1, 2, 3))
    margins = np.asarray(svm.margins(rows, svm.solve(rows, norm="nuclear").W)).reshape(4, 6)[2]
    queries, others = np.array([(u, t) for u in (1, 2, 3) for t in range(u + 1) if t != best[u]]).T
    assert (np.abs(margins - 1) < 1e-6).tolist() == own["support"].values[2][queries, others].tolist()
    low, high, mean = own["null"].values
    assert 0 <= low < high < 1
    assert mean < 1


def test_the_view_has_ratios_sequences_and_support_vectors():
    heads = {head["name"]: head for head in view(measured())["heads"]}
    assert list(heads) == [claims.ALONE, "inputs", "Adam", claims.TEXT]
    text = heads[claims.TEXT]
    assert text["sequences"] == [["e", "␣", "t"]]
    assert spelled(measured()[claims.ALONE]) == [["2", "1", "3"]]
    assert text["attention"][-1] == [[[1.0], [0.5, 0.5], [0.33, 0.33, 0.33]]]
    assert (text["selected"], text["support"][-1]) == ([[[], [0], [1]]], [[[], [], [0]]])
    assert (text["rows"], set(text["carrying"]), text["high"][0], text["mean"][0]) == (3, {1}, 0.05, -0.5)


@pytest.mark.slow
def test_two_layers_with_everything_have_a_ratio_for_each_head():
    everything = {
        "layers": 2,
        "heads": 2,
        "hidden": 4,
        "compared": decoder.root_mean_square,
        "norm": decoder.root_mean_square,
        "join": decoder.add,
        "rates": decoder.Rates(1.0, 1.0, 1.0, 1.0),
    }
    assert measure(recorded(**everything)).sizes["head"] == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"law": "previous"}, "data: expected a Fixed of the decoders' own, found 'previous'"),
        ({"law": tasks.Fixed(TASK.of, 4)}, "data: expected since within 1..3, found 4"),
        ({"seeds": 0}, "seeds: expected"),
    ],
)
def test_a_setting_that_cannot_be_trained_is_refused(change, message):
    rule = descent.normalized_gd(0.1)
    fields = {"law": TASK, "model": SMALL, "optimizer": rule, "seeds": 3, "key": 7, "steps": 40}
    with pytest.raises((TypeError, ValueError), match=message):
        Decoders(**(fields | {"snapshots": Logarithmically(4)} | change))


def test_embeddings_have_to_be_independent():
    with pytest.raises(ValueError, match=r"d: expected at least V \+ T = 9, found 8"):
        decoder.Decoder(vocabulary=5, length=4, d=8)
