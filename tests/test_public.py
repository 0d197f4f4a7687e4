"""What is public: named in `__all__`, documented with an example that runs, and typed so that `help` can tell."""

import doctest
import importlib
import inspect
import pkgutil
import typing

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from matplotlib.figure import Figure

import jaxattn
from jaxattn import bias, data, descent, initial, svm, tokens

# The experiments and what they share are not a library; what a study offers is its commands.
NOT_A_LIBRARY = ("jaxattn.experiments", "jaxattn.study")
MODULES = {
    one.name: importlib.import_module(one.name)
    for one in pkgutil.walk_packages(jaxattn.__path__, "jaxattn.")
    if not one.name.startswith(NOT_A_LIBRARY)
}
PUBLIC = {name: module for name, module in MODULES.items() if not (module.__doc__ or "").startswith("Internal: ")}
# Whose examples solve several problems, or those of bounded rank.
LONG = ("jaxattn.regularization", "jaxattn.norms.nuclear_of_rank", "jaxattn.svm.certificate", "jaxattn.svm.solve")
# Every public function and class, by the module that defines it.
OFFERED = {
    f"{name}.{own}": getattr(module, own)
    for name, module in PUBLIC.items()
    if not hasattr(module, "__path__")
    for own in module.__all__
    if inspect.isfunction(getattr(module, own)) or inspect.isclass(getattr(module, own))
}


@pytest.fixture(scope="module")
def namespace() -> dict:
    """What every example may use without saying so."""
    key = jax.random.key(0)
    problem = data.sphere(key, n=3, T=4, d=5)
    start = initial.free(jax.random.key(1), 5)
    run = descent.train(start, problem, steps=20, snapshots=(1, 10, 20))
    alpha = tokens.selected(run.weights, problem)
    constraints = svm.token_constraints(problem, alpha)
    problems = jax.vmap(lambda key: data.sphere(key, n=3, T=4, d=5))(jax.random.split(key, 8))
    runs = descent.train_batch(jnp.zeros((8, 5, 5)), problems, steps=20, snapshots=(2, 20))
    return {
        **{name: getattr(jaxattn, name) for name in (*jaxattn.__all__, "norms", "plots", "records", "regularization")},
        "jax": jax,
        "jnp": jnp,
        "np": np,
        "optax": optax,
        "Figure": Figure,
        "key": key,
        "problem": problem,
        "start": start,
        "run": run,
        "alpha": alpha,
        "constraints": constraints,
        "planar": data.three_tokens(key),
        "text": data.language(key, m=3, n=4, d=6, V=5, entropy=0.2),
        "solution": svm.solve(constraints),
        "ranking": bias.rank(runs, problems, ["frobenius"]),
    }


def test_every_module_says_what_is_public_or_that_it_is_internal():
    silent = [name for name, module in MODULES.items() if not hasattr(module, "__all__") and name in PUBLIC]
    assert [name for name in silent if not hasattr(MODULES[name], "__path__")] == []
    assert len(OFFERED) > 100


@pytest.mark.parametrize("name", PUBLIC)
def test_all_names_what_is_there_in_order_and_nothing_of_others(name):
    module = PUBLIC[name]
    offered = list(getattr(module, "__all__", []))
    assert len(set(offered)) == len(offered)
    for own in offered:
        value = getattr(module, own)
        assert not inspect.ismodule(value) or hasattr(module, "__path__")
        home = getattr(value, "__module__", name)
        assert str(home).startswith("jaxattn") or not inspect.isclass(value)


@pytest.mark.parametrize("name", OFFERED)
def test_help_can_resolve_the_types(name):
    offered = OFFERED[name]
    typing.get_type_hints(offered if inspect.isfunction(offered) else offered.__init__)
    if inspect.isclass(offered):
        typing.get_type_hints(offered)


def shown(name: str):
    """A function's name, with its example among the slow tests where it compiles for seconds."""
    return pytest.param(name, marks=[pytest.mark.slow] if name.startswith(LONG) else [])


@pytest.mark.examples
@pytest.mark.parametrize("name", [shown(name) for name, one in OFFERED.items() if inspect.isfunction(one)])
def test_every_public_function_has_an_example_that_runs(name, namespace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = inspect.getdoc(inspect.unwrap(OFFERED[name])) or ""
    example = doctest.DocTestParser().get_doctest(text, dict(namespace), name, None, None)
    assert example.examples, "expected an example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False)
    assert runner.run(example).failed == 0
