"""Every public name has one place in the API pages, which are made from `__all__` alone."""

import importlib.util
import inspect
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.test_public import OFFERED, PUBLIC

EXTENSIONS = Path(__file__).parents[2] / "docs" / "_ext"


def extension(name: str) -> Any:
    """Import an extension of the site; none of them needs Sphinx before a build starts."""
    spec = importlib.util.spec_from_file_location(name, EXTENSIONS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look themselves up there.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


api_pages, evidence = extension("api_pages"), extension("evidence")


@pytest.fixture(scope="module")
def modules():
    return api_pages.public_modules()


@pytest.fixture(scope="module")
def texts():
    return api_pages.pages()


def test_the_public_modules_are_those_whose_names_are_tested_and_each_belongs_to_a_group(modules, texts, monkeypatch):
    assert set(modules) == set(PUBLIC)
    assert texts[1] == []
    monkeypatch.setattr(api_pages, "GROUPS", api_pages.GROUPS[1:])
    assert "jaxattn.problem" in api_pages.pages()[1]


def test_every_public_function_and_class_is_described_once(modules, texts):
    homes = api_pages.homes(modules)
    lines = Counter(line for text in texts[0].values() for line in text.splitlines())
    described = {
        name: lines[f".. autofunction:: {homes[name]}"] + lines[f".. autoclass:: {homes[name]}"] for name in OFFERED
    }
    assert described == dict.fromkeys(OFFERED, 1)


def test_every_constant_and_alias_is_described_with_its_comment(modules, texts):
    text = "\n".join(texts[0].values())
    assert ".. py:data:: CLOSE\n   :module: jaxattn.bias\n   :value: 0.97\n\n   A seed obeys a norm only if" in text
    assert ".. py:data:: SATURATED\n   :module: jaxattn.tokens" in text
    assert ".. py:data:: Law\n   :module: jaxattn.data\n   :value: Callable[[PRNGKeyArray], Problem]\n" in text


def test_the_home_of_a_name_is_the_shortest_module_above_its_own(modules):
    homes = api_pages.homes(modules)
    assert homes["jaxattn.descent.training.train"] == "jaxattn.descent.train"
    assert homes["jaxattn.svm.frobenius"] == homes["jaxattn.norms.frobenius"] == "jaxattn.norms.frobenius"
    # One name for two things.
    assert homes["jaxattn.descent.Rule"] != homes["jaxattn.descent.gradients.Rule"]


@pytest.mark.parametrize(
    ("text", "module", "full"),
    [
        ("svm.solve", "", "jaxattn.svm.solve"),
        ("train_batch()", "jaxattn.descent.training", "jaxattn.descent.train_batch"),
        ("Problem", "", "jaxattn.problem.Problem"),
        ("batch.over_seeds", "", "jaxattn.parallel.batch.over_seeds"),
        ("svm.solved", "", None),
        ("W = K Q^T", "", None),
    ],
)
def test_a_name_is_resolved_as_one_writes_it(modules, text, module, full):
    assert api_pages.resolve(text, api_pages.homes(modules), module) == full


NUMBERS = {4647756.6: "4,600,000", 0.0882: "0.088", 11.0: "11", 2.5: "2.5", 3.0: "3.0", 1.06e-15: "1.1e-15", 0: "0"}


@pytest.mark.parametrize(
    ("plain", "text", "expected"),
    [
        (api_pages.escaped, ["the norm ||W||_* of `|a|*`"], [r"the norm \|\|W\|\|_\* of `|a|*`"]),
        (api_pages.escaped, [">>> a * b"], [">>> a * b"]),
        (api_pages.escaped, ["So::", "", "    a * b", "c * d"], ["So::", "", "    a * b", r"c \* d"]),
        (
            api_pages.shortened,
            "(x: jaxtyping.Float[jaxlib._jax.Array, 'n T']) -> numpy.ndarray",
            "(x: Float[Array, 'n T']) -> ndarray",
        ),
        (api_pages.shortened, "(start: ~collections.abc.Callable[[~a.b], int])", "(start: Callable[[a.b], int])"),
        *((evidence.rounded, number, text) for number, text in NUMBERS.items()),
    ],
)
def test_markup_outside_code_types_and_numbers_are_made_plain(plain, text, expected):
    assert plain(text) == expected


CLAIMS = [
    {"id": "a:b", "verdict": "holds", "kind": "claim", "measured": {"x": 0.5, "y": 2}, "interval": {"x": [0.4, 0.6]}},
    {"id": "a:c", "verdict": "not decided", "kind": "claim", "measured": {}, "interval": {}},
    {"id": "a:d", "verdict": "holds", "kind": "check", "measured": {}, "interval": {}},
]


def test_numbers_are_read_from_the_claims():
    assert evidence.measured(CLAIMS, "a:b / x") == "0.5 [0.4, 0.6]"
    assert evidence.measured(CLAIMS, "a:b / y") == "2"
    assert evidence.verdict(CLAIMS, "a:c") == "not decided"
    assert (evidence.counted(CLAIMS, "claims"), evidence.counted(CLAIMS, "holds")) == ("2", "1")


@pytest.mark.parametrize(
    ("read", "text"),
    [("measured", "a:z / x"), ("measured", "a:b / z"), ("verdict", "a:z"), ("counted", "hold"), ("bench", "a/2")],
)
def test_a_number_that_is_not_there_is_an_error(read, text):
    found = {"a": [{"b": 1.0}]} if read == "bench" else CLAIMS
    with pytest.raises(KeyError, match=r"claims|a:b|bench"):
        getattr(evidence, read)(found, text)


def test_a_benchmark_is_read_by_the_words_of_its_row_in_the_unit_asked_for():
    rows = [{"of": "W", "at": [6, 8], "b": 1250.0}, {"of": "W", "at": [5, 8], "b": 3.0}]
    assert evidence.bench({"a": rows}, "a/W; [6, 8]/b * 0.001") == "1.2"
    for words in ("W", "W; [6, 9]", "0"):
        with pytest.raises(KeyError, match=r"bench.json: nothing at"):
            evidence.bench({"a": rows}, f"a/{words}/b")


def test_no_extension_imports_what_only_a_build_needs():
    for file in EXTENSIONS.glob("*.py"):
        top = [line for line in file.read_text().splitlines() if line.startswith(("import ", "from "))]
        assert not [line for line in top if line.split()[1].split(".")[0] in ("sphinx", "docutils", "PIL")], file.name


def test_constants_have_a_comment(modules):
    for home in set(api_pages.homes(modules).values()):
        module, _, own = home.rpartition(".")
        value = getattr(modules[module], own)
        if isinstance(value, int | float | str) and not inspect.isclass(value):
            assert api_pages.definition(modules[module], own)[0], home
