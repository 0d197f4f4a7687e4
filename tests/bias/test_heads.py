"""Heads of an attention layer, given as arrays: what they select, against optima and against untrained matrices."""

import jax
import numpy as np
import pytest

from jaxattn import bias, svm
from jaxattn.problem import Problem

SEQUENCES, T, D = 2, 4, 6
RNG = np.random.default_rng(0)
HIDDEN = RNG.normal(size=(SEQUENCES, T, D))
EYE = np.eye(D)


def selecting(alpha):
    """Return the certified W that selects these tokens, one for every query, from the package's own builder."""
    X = np.repeat(HIDDEN, T - 1, axis=0)
    at = np.tile(np.arange(1, T), SEQUENCES)
    present = np.arange(T) <= at[:, None]
    problem = Problem(X, X[np.arange(len(X)), at], np.ones(len(X)), np.zeros(D), present=present)
    return np.asarray(svm.solve(svm.token_constraints(problem, alpha(at))).W)


PREVIOUS = np.tile(np.maximum(np.arange(T) - 1, 0), (SEQUENCES, 1))


@pytest.fixture(scope="module")
def optimum():
    return selecting(lambda at: at - 1)


@pytest.fixture(scope="module")
def found(optimum):
    """Heads that are optimal, short, wrong, and one that attends to the first token; they share their keys."""
    first = selecting(lambda at: 0 * at)
    W_Q = np.stack([20 * optimum.T, 0.01 * optimum.T, -20 * optimum.T, first.T])
    start = RNG.normal(size=W_Q.shape)
    return bias.heads(HIDDEN, W_Q, EYE[None], sources=PREVIOUS, start=(start, EYE[None]), scale=2.0)


def test_the_optimum_lies_above_all_nulls_and_others_do_not(found):
    assert found.rows.tolist() == [SEQUENCES * (1 + 2 + 3)] * 4
    assert found.margin_ratio[0, 0] == pytest.approx(1, abs=1e-6)
    assert found.margin_ratio[1, 0] == pytest.approx(1, abs=1e-6)
    assert found.margin_ratio[2, 0] < 0
    assert (found.status == svm.Status.OPTIMAL).all()
    assert found.verdict == ("above all nulls (frobenius, nuclear)", "not saturated", "not saturated", "sink")
    np.testing.assert_allclose(found.violated[:3], [0, 0, 1])
    np.testing.assert_allclose(found.saturated[:3], [1, 0, 0])
    # Of three queries of a sequence, the first one's previous token is the first.
    np.testing.assert_allclose(found.first[[0, 1, 3]], [1 / 3, 1 / 3, 1])


def test_a_table_has_a_line_for_each_head(found):
    lines = found.table().splitlines()
    assert len(lines) == 5
    assert lines[1].endswith("above all nulls (frobenius, nuclear)")
    assert sum(found.counts.values()) == 4


def test_tokens_that_no_matrix_separates_are_proved_to_be_so():
    # Two equal tokens, of which one is to be selected.
    hidden = HIDDEN.copy()
    hidden[:, 1] = hidden[:, 0]
    found = bias.heads(hidden, EYE[None], EYE[None], sources=PREVIOUS, norms=["frobenius"])
    assert found.verdict == ("not separable",)
    assert np.isnan(found.margin_ratio).all()
    assert found.table().splitlines()[1].split()[-3:] == ["-", "not", "separable"]


def test_grouped_heads_masks_and_queries_pose_the_problem(optimum):
    W_Q = np.stack([20 * optimum.T, 30 * optimum.T])
    shared = bias.heads(HIDDEN, W_Q, EYE[None], norms=["frobenius"])
    apart = bias.heads(HIDDEN, W_Q, np.stack([EYE, EYE]), norms=["frobenius"])
    np.testing.assert_array_equal(shared.margin_ratio, apart.margin_ratio)
    np.testing.assert_allclose(shared.margin_ratio, 1, atol=1e-6)
    # By default those tokens count as sources that the head selects.
    assert shared.verdict == ("above all nulls (frobenius)",) * 2
    last = np.zeros((SEQUENCES, T), bool)
    last[:, -1] = True
    near = np.tri(T, dtype=bool) & ~np.tri(T, k=-2, dtype=bool)
    # The last query of each sequence sees one other token.
    assert bias.heads(HIDDEN, W_Q, EYE[None], queries=last, mask=near, norms=["frobenius"]).rows.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"hidden": HIDDEN[0]}, r"hidden: expected shape \(sequences, T, d\), found \(4, 6\)"),
        ({"hidden": HIDDEN[:, :1]}, "hidden: expected sequences of at least two tokens"),
        ({"hidden": np.nan * HIDDEN}, "hidden: expected finite numbers, found nan .*48 of 48"),
        ({"W_Q": np.ones((1, 5, 6))}, r"W_Q: expected \(heads, 6, 6\), .* found \(1, 5, 6\)"),
        ({"W_K": np.ones((1, 6, 5))}, r"W_K: expected \(heads, 6, 6\), .* found \(1, 6, 5\)"),
        ({"W_K": np.stack([EYE, EYE])}, "W_K: expected a number of heads that divides the 1 of W_Q, found 2"),
        ({"W_K": 0 * EYE[None]}, r"found W = 0 in the heads \[0\]"),
        ({"mask": np.ones((T, T))}, "mask: expected truth values"),
        ({"queries": np.ones((SEQUENCES, T), bool)}, "queries: expected ones that see at least two tokens, found 2"),
        ({"queries": np.zeros((SEQUENCES, T), bool)}, "queries: expected at least one that counts"),
        ({"sources": np.zeros((T, T))}, r"sources: expected integers \(2, 4\)"),
        ({"sources": np.full((SEQUENCES, T), 9)}, "sources: expected tokens 0..3, found 6 others"),
        ({"sources": np.full((SEQUENCES, T), 3)}, "sources: expected tokens that their queries see, found 4 others"),
        ({"start": (np.ones((2, 6, 6)), EYE[None])}, "start: expected 1 heads as after training, found 2"),
        ({"scale": np.nan}, "scale: expected a finite number other than 0, found nan"),
        ({"norms": []}, "norms: expected at least one"),
        ({"norms": ["trace"]}, "norm: expected one of .*, found 'trace'"),
    ],
)
def test_arrays_that_do_not_fit_are_named(given, error):
    with pytest.raises(ValueError, match=error):
        bias.heads(**({"hidden": HIDDEN, "W_Q": EYE[None], "W_K": EYE[None]} | given))


def test_single_precision_stays_so_where_jax_has_no_other():
    found = bias.heads(HIDDEN, 20 * EYE[None], EYE[None], norms=["frobenius"])
    with jax.enable_x64(False):
        single = bias.heads(
            *(np.asarray(one, np.float32) for one in (HIDDEN, 20 * EYE[None], EYE[None])), norms=["frobenius"]
        )
        np.testing.assert_allclose(single.margin_ratio, found.margin_ratio, rtol=1e-3)
        with pytest.raises(ValueError, match=r"^hidden: expected float32 while JAX's x64 mode is off, found float64"):
            bias.heads(HIDDEN, EYE[None], EYE[None])


def test_behind_padding_the_first_token_is_the_first_that_is_seen():
    W = selecting(lambda at: 0 * at)
    padded = np.concatenate([RNG.normal(size=(SEQUENCES, 2, D)), HIDDEN], axis=1)
    mask = np.tri(T + 2, dtype=bool) & (np.arange(T + 2) >= 2)
    found = bias.heads(padded, 20 * W.T[None], EYE[None], mask=mask, norms=["frobenius"])
    assert found.first == [1.0]
    assert found.verdict == ("sink",)


def is_of_layer(q_proj, k_proj, hidden, q, k):
    """Whether `bias.heads` finds what these queries and keys select, (sequences, T, heads * m) each."""
    H, G, m = 4, 2, 3
    found = bias.heads(
        hidden,
        q_proj.reshape(H, m, D).swapaxes(1, 2),
        k_proj.reshape(G, m, D).swapaxes(1, 2),
        scale=m**-0.5,
        norms=["frobenius"],
    )
    keys = np.repeat(k.reshape(SEQUENCES, T, G, m), H // G, axis=2)
    logits = np.einsum("suhm,sthm->hsut", q.reshape(SEQUENCES, T, H, m), keys)
    chosen = np.where(np.tri(T, dtype=bool), logits, -np.inf).argmax(axis=3)[:, :, 1:]
    return np.allclose(found.first, (chosen == 0).mean(axis=(1, 2))) and (found.violated == 0).all()


def test_weights_are_cut_into_heads_as_a_linear_layer_stores_them():
    q_proj, k_proj = RNG.normal(size=(12, D)), RNG.normal(size=(6, D))
    assert is_of_layer(q_proj, k_proj, HIDDEN, HIDDEN @ q_proj.T, HIDDEN @ k_proj.T)


def test_weights_of_a_torch_model_are_found_by_name():
    torch = pytest.importorskip("torch", reason="PyTorch is no requirement of this package")
    torch.manual_seed(0)
    layers = {name: torch.nn.Linear(D, width, bias=False) for name, width in (("q_proj", 12), ("k_proj", 6))}
    model, kept = torch.nn.ModuleDict({"norm": torch.nn.LayerNorm(D)} | layers), {}
    model["norm"].register_forward_hook(lambda module, given, result: kept.update(hidden=result.detach()))
    model["norm"](torch.tensor(HIDDEN, dtype=torch.float32))
    weights = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}
    hidden = kept["hidden"].double().numpy()
    q, k = (model[name](kept["hidden"]).detach().double().numpy() for name in layers)
    assert is_of_layer(weights["q_proj.weight"], weights["k_proj.weight"], hidden, q, k)
