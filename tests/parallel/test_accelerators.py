"""Programs are lowered for accelerators from a processor without one, and the branches they take run on the CPU."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import export

from jaxattn import data, descent, initial, language, svm
from jaxattn.parallel import lanes

KEY = jax.random.key(0)
n, T, d = 3, 4, 5


ALONG = {
    "gd": descent.gd(0.1),
    "normalized": descent.normalized_gd(0.1),
    "exact": descent.exact_normalized_gd(0.1),
    "scale-free": descent.normalized_gd(0.1, floor=0.0, penalty=0.0),
}
RULES = ALONG | {
    "jointly normalized": descent.jointly_normalized_gd(0.1),
    "sign": descent.ScaleFree(*optax.chain(optax.scale_by_sign(), optax.scale(-0.01))),
    "polar factor": descent.steepest("spectral", 0.03),
    "Adam": optax.adam(0.01),
    "Adam, exact": descent.Exact(*optax.adam(0.01)),
    "Adam, scale-free": descent.ScaleFree(*optax.adam(0.01, eps=0.0)),
}
WEIGHTS = {"W": initial.free, "(K, Q)": lambda key, d: initial.factored(key, d, m=2)}
WIDE = {"n": lanes.TERMS + 1}
# Double precision is the GPU's alone.
DEVICES = [("cuda", True), ("cuda", False), ("tpu", False)]
# What an accelerator's own library offers: decompositions, and nothing that calls back to Python or to LAPACK.
OFFERED = {"cuda": r"cusolver_\w+|cublas\w*", "tpu": r"Eigh|Qr|Svd|ProductOfElementaryHouseholderReflectors"}


def training(weights: str, rule: str, steps: int = 10, n: int = n):
    """The program of a batch, whose lanes lie behind all other axes unless n is large, and two lanes for it."""

    def train(start, problem):
        return descent.train(start, problem, optimizer=RULES[rule], steps=steps).weights

    keys = jax.random.split(KEY, 2)
    given = jax.vmap(lambda key: (WEIGHTS[weights](key, d), data.sphere(key, n=n, T=T, d=d)))(keys)
    return lambda given: jax.vmap(train)(*given), given


def reading(rule: str, steps: int = 10):
    text = data.language(KEY, m=3, n=4, d=6, V=5, entropy=0.2)
    return lambda text: language.train(text, optimizer=ALONG[rule], steps=steps).pairs, text


def solving(norm: str):
    rows = svm.token_constraints(data.sphere(KEY, n=n, T=T, d=d), jnp.zeros(n, int))
    return lambda rows: svm.solve(rows, norm=norm), rows


PROGRAMS = {
    **{f"{weights}, {rule}": partial(training, weights, rule) for weights in WEIGHTS for rule in RULES},
    # With the lanes in front.
    **{
        f"wide {weights}, {rule}": partial(training, weights, rule, **WIDE)
        for weights in WEIGHTS
        for rule in ("normalized", "scale-free", "Adam, exact")
    },
    **{f"texts, {rule}": partial(reading, rule) for rule in ALONG},
    **{f"{norm} solution, certified": partial(solving, norm) for norm in ("frobenius", "nuclear")},
}


@pytest.mark.slow
@pytest.mark.parametrize(("platform", "double"), DEVICES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_lowered_for_an_accelerator_and_calls_its_library_alone(name, platform, double):
    with jax.enable_x64(double):
        program, argument = PROGRAMS[name]()
        module = lowered(program, argument, platform)
    assert ("f64" in module) == double
    assert [one for one in called(module) if not re.fullmatch(OFFERED[platform], one)] == []
    # Descent (also along polar factors, of few columns) and the active set are arithmetic alone.
    assert bool(called(module)) == ("nuclear solution" in name)


@pytest.mark.slow
# The bias correction of optax's Adam is computed in double precision wherever JAX knows it, as is its SVD on a TPU.
@pytest.mark.parametrize("name", [name for name in PROGRAMS if "Adam" not in name])
def test_no_array_of_a_program_in_single_precision_is_of_double_where_jax_knows_it(name):
    program, argument = PROGRAMS[name]()
    floating = partial(jnp.issubdtype, arg2=jnp.floating)
    single = jax.tree.map(lambda leaf: leaf.astype(np.float32) if floating(leaf.dtype) else leaf, argument)
    assert "xf64" in lowered(program, argument, "cuda")
    assert "xf64" not in lowered(program, single, "cuda")


def lowered(program, argument, platform: str) -> str:
    """What an accelerator's compiler would be given."""
    return export.export(jax.jit(program), platforms=[platform])(argument).mlir_module()


def called(module: str) -> set[str]:
    return set(re.findall(r"custom_call @(\w+)", module))


def test_what_only_the_cpu_offers_is_found():
    found = called(lowered(jnp.linalg.svd, jnp.eye(3), "cpu"))
    assert found
    assert not any(re.fullmatch(offered, one) for one in found for offered in OFFERED.values())


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize("weights", [*WEIGHTS, "texts"])
@pytest.mark.parametrize("rule", ["normalized", "scale-free"])
def test_what_accelerators_are_given_computes_the_same_on_the_cpu(weights, rule, monkeypatch):
    make = partial(reading, rule, steps=200) if weights == "texts" else partial(training, weights, rule, steps=200)
    program, argument = make()
    kept = jax.jit(program).lower(argument).compile()
    try:
        # Nothing keeps XLA from fusing sums into their readers.
        monkeypatch.setattr(lanes, "_counted", lanes._known)
        jax.clear_caches()
        program, argument = make()
        free = jax.jit(program).lower(argument).compile()
    finally:
        jax.clear_caches()
    free_text, kept_text = (str(one.as_text()) for one in (free, kept))
    assert free_text.count(" conditional(") < kept_text.count(" conditional(")
    for one, other in zip(*map(jax.tree.leaves, (free(argument), kept(argument))), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-11 * float(jnp.max(jnp.abs(other))))
