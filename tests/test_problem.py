"""A Problem: what it accepts, what it refuses by name, and that it is a pytree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem
from tests import instances

RNG = np.random.default_rng(0)
n, T, d = 3, 4, 5
FIELDS = {
    "X": RNG.normal(size=(n, T, d)),
    "Z": RNG.normal(size=(n, d)),
    "Y": np.array([1.0, -1.0, 1.0]),
    "v": RNG.normal(size=d),
}
SINGLE = instances.single(FIELDS)


def with_(**changes) -> Problem:
    return Problem(**{**FIELDS, **changes})


def test_sizes_are_read_from_the_tokens():
    assert (with_().n, with_().T, with_().d) == (n, T, d)


def test_labels_may_be_integers_of_any_kind_or_a_list():
    for labels in ([1, -1, 1], np.array([1, -1, 1], np.int8), jnp.array([1, -1, 1]), np.array([1, -1, 1], np.float32)):
        assert with_(Y=labels).Y.dtype == np.float64
        np.testing.assert_array_equal(with_(Y=labels).Y, FIELDS["Y"])


def test_single_precision_stays_single_precision():
    assert {leaf.dtype.name for leaf in jax.tree.leaves(Problem(**SINGLE))} == {"float32"}


def test_the_byte_order_of_a_file_does_not_matter():
    fields = {name: np.asarray(array) for name, array in instances.problem().arrays.items()}
    swapped = Problem(**{name: array.astype(array.dtype.newbyteorder()) for name, array in fields.items()})
    for name, array in fields.items():
        np.testing.assert_array_equal(swapped.arrays[name], array)


def test_it_is_a_pytree_with_named_leaves():
    leaves, structure = jax.tree_util.tree_flatten_with_path(with_())
    assert [jax.tree_util.keystr(path) for path, _ in leaves] == [".X", ".Z", ".Y", ".v"]
    again = jax.tree.unflatten(structure, [leaf for _, leaf in leaves])
    assert isinstance(again, Problem)
    instances.assert_close(again, with_(), rtol=0)


def test_batch_axes_may_lead():
    many = instances.problems(2)
    assert (many.X.shape, many.n, many.T, many.d) == ((2, n, T, d), n, T, d)
    assert Problem(many.X, many.Z, many.Y, many.v).X.shape == many.X.shape


def test_it_can_be_made_under_jit_and_vmap():
    made = jax.jit(Problem)(FIELDS["X"], FIELDS["Z"], FIELDS["Y"], FIELDS["v"])
    instances.assert_close(made, with_(), rtol=0)
    many = jax.vmap(Problem)(*jax.tree.leaves(instances.problems(2)))
    instances.assert_close(many, instances.problems(2), rtol=0)


def test_the_head_may_have_a_layer_of_any_width_whatever_the_batch():
    for width in (1, n, d, 7):
        layer = RNG.normal(size=(d, width))
        np.testing.assert_array_equal(with_(v=layer).v, layer)
        stacked = Problem(**{name: np.stack([values] * 2) for name, values in {**FIELDS, "v": layer}.items()})
        assert (stacked.v.shape, stacked.n, stacked.T, stacked.d) == ((2, d, width), n, T, d)


def test_shapes_are_checked_under_jit_too():
    with pytest.raises(ValueError, match=r"^Z: expected shape"):
        jax.jit(Problem)(FIELDS["X"], FIELDS["Z"][:2], FIELDS["Y"], FIELDS["v"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": FIELDS["X"][0]}, r"^X: expected shape \(\.\.\., n, T, d\), found \(4, 5\)"),
        ({"Z": FIELDS["Z"].T}, r"^Z: expected shape \(3, 5\).*found \(5, 3\)"),
        ({"Z": FIELDS["Z"][:2]}, r"^Z: expected shape \(3, 5\).*found \(2, 5\)"),
        ({"Y": FIELDS["Y"][:, None]}, r"^Y: expected shape \(3,\).*found \(3, 1\)"),
        ({"Y": [1, -1]}, r"^Y: expected shape \(3,\).*found \(2,\)"),
        ({"v": FIELDS["v"][:4]}, r"^v: expected shape \(5,\).*found \(4,\)"),
        ({"v": 1.0}, r"^v: expected shape \(5,\).*found \(\)"),
        ({"v": np.ones((4, 5))}, r"^v: expected shape \(5,\) or \(5, width\).*found \(4, 5\)"),
        ({"v": np.ones((5, 0))}, r"^v: expected shape \(5,\) or \(5, width\).*found \(5, 0\)"),
        ({"v": np.ones((5, 4, 2))}, r"^v: expected shape \(5,\) or \(5, width\).*found \(5, 4, 2\)"),
        ({"X": FIELDS["X"][:, :1]}, r"^X: expected at least T = 2 tokens.*found T = 1"),
        ({"X": FIELDS["X"][:, :0]}, r"^X: expected at least T = 2 tokens.*found T = 0"),
        ({"X": FIELDS["X"][:0], "Z": FIELDS["Z"][:0], "Y": FIELDS["Y"][:0]}, r"^X: expected n, T and d of at least 1"),
        *(({"Y": [1, label, -1]}, rf"^Y: expected labels \+1 or -1, found {label}") for label in (0, 2, -3, 0.5)),
        ({"Z": FIELDS["Z"] + 0j}, r"^Z: expected real numbers, found dtype complex128"),
        ({"v": ["a", "b", "c", "d", "e"]}, r"^v: expected real numbers, found dtype <U1"),
        ({"v": [None] * 5}, r"^v: expected real numbers, found dtype object"),
        ({"Y": [[1], [1, 2], [1]]}, r"^Y: expected an array of numbers"),
        *(
            ({name: FIELDS[name].astype(np.float32)}, r"^Problem: expected one precision, found .*float32")
            for name in "XZv"
        ),
    ],
)
def test_wrong_shapes_labels_and_types_are_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        with_(**changes)


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused_with_their_place(name, number):
    last, spoiled = ", ".join(str(size - 1) for size in FIELDS[name].shape), FIELDS[name].copy()
    spoiled.flat[-1] = number
    with pytest.raises(ValueError, match=rf"^{name}: expected finite numbers, found {number} at index \({last}"):
        with_(**{name: spoiled})


@pytest.mark.parametrize("name", FIELDS)
def test_double_precision_numbers_are_refused_while_x64_is_off(name):
    with jax.enable_x64(False), pytest.raises(ValueError, match=rf"^{name}: expected float32 .* found float64.*x64"):
        Problem(**{**SINGLE, name: FIELDS[name]})
