"""Programs are lowered for accelerators from a processor without one: nothing in them needs the CPU."""

import re

import jax
import jax.numpy as jnp
import pytest
from jax import export

from jaxattn import data, descent, initial, language, svm

KEY = jax.random.key(0)
n, T, d = 3, 4, 5
RULES = {"published": descent.normalized_gd(0.1), "exact": descent.normalized_gd(0.1, floor=0.0, penalty=0.0)}
WEIGHTS = {"W": initial.free, "(K, Q)": lambda key, d: initial.factored(key, d, m=2)}
# Double precision is the GPU's alone.
DEVICES = [("cuda", True), ("cuda", False), ("tpu", False)]
# What an accelerator's own library offers: decompositions, and nothing that calls back to Python or to LAPACK.
OFFERED = {"cuda": r"cusolver_\w+|cublas\w*", "tpu": r"Eigh|Qr|Svd|ProductOfElementaryHouseholderReflectors"}


def training(weights: str, rule: str):
    def train(given):
        start, problem = given
        return descent.train(start, problem, optimizer=RULES[rule], steps=10).weights

    return train, (WEIGHTS[weights](KEY, d), data.sphere(KEY, n=n, T=T, d=d))


def texts():
    text = data.language(KEY, m=3, n=4, d=6, V=5, entropy=0.2)
    return lambda text: language.train(text, optimizer=RULES["exact"], steps=10).pairs, text


def solving(norm: str):
    rows = svm.token_constraints(data.sphere(KEY, n=n, T=T, d=d), jnp.zeros(n, int))
    return lambda rows: svm.solve(rows, norm=norm), rows


PROGRAMS = {
    **{f"{weights}, {rule}": lambda w=weights, r=rule: training(w, r) for weights in WEIGHTS for rule in RULES},
    "texts": texts,
    **{f"{norm} solution, certified": lambda norm=norm: solving(norm) for norm in ("frobenius", "nuclear")},
}


@pytest.mark.slow
@pytest.mark.parametrize(("platform", "double"), DEVICES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_lowered_for_an_accelerator_and_calls_its_library_alone(name, platform, double):
    with jax.enable_x64(double):
        program, argument = PROGRAMS[name]()
        lowered = export.export(jax.jit(program), platforms=[platform])(argument)
    module = lowered.mlir_module()
    assert lowered.platforms == (platform,)
    assert ("f64" in module) == double
    called = set(re.findall(r"custom_call @(\w+)", module))
    assert [one for one in called if not re.fullmatch(OFFERED[platform], one)] == []
    # Descent and the active set are arithmetic alone; the nuclear solver decomposes matrices.
    assert bool(called) == name.startswith("nuclear")


def test_a_program_that_calls_back_to_python_is_refused():
    def program(x):
        return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct((), x.dtype), x)

    with pytest.raises(ValueError, match="backend cpu is different from the lowering platform cuda"):
        export.export(jax.jit(program), platforms=["cuda"])(jnp.zeros(()))
