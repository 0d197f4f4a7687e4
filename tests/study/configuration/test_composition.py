"""Mistakes on the command line: one error each, that names the thing and what is known, before anything runs."""

import re
import subprocess
import sys

import jax.numpy as jnp
import pytest

from jaxattn import records
from jaxattn.study import command, runs
from jaxattn.study.configuration import composition

# A user's own module, on the PYTHONPATH.
HEADS = """
import jax.numpy as jnp


def one(x):
    return x.sum()


def nan(x, v):
    return jnp.log(-jnp.vdot(x, x))


def steep(x, v):
    return jnp.sqrt(0 * jnp.vdot(x, v))


def rare(x, v):
    return jnp.sqrt(jnp.vdot(x, v) + 0.2)


def vector(x, v):
    return x * v


def broken(x, v):
    return x.nothing


def good(x, v, slope=1.0):
    return jnp.tanh(slope * jnp.vdot(x, v))
"""


@pytest.fixture(autouse=True)
def mistaken_heads(tmp_path, monkeypatch):
    """A module of heads, most of them mistaken, and one that cannot be imported."""
    (tmp_path / "mistaken_heads.py").write_text(HEADS)
    (tmp_path / "mistaken_import.py").write_text("import nothing_of_this_name\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("mistaken_heads", None)


MISTAKES = [
    # Unknown names, with the known ones.
    (
        "experiment=nope",
        "experiment: expected one of its known names, found nope.*known names of .*kq-penalty.*svm-rank",
    ),
    ("experiment=local-convergance", "found local-convergance; did you mean local-convergence?"),
    ("optimizer=adam", "optimizer: expected .* found adam.*known names of optimizer: exact_gd, .*, gd, "),
    # Unknown keys, whether added or not.
    ("seed=8", r"^jaxattn: seed: unknown key; did you mean seeds\?\nknown keys: .*data, .*, seeds, size"),
    ("+seed=8", r"^jaxattn: seed: unknown key; did you mean seeds\?\nknown keys: .*data, .*, seeds, size"),
    ("++seed=8", r"seed: unknown key; did you mean seeds\?"),
    ("+seed.x=8", r"seed: unknown key; did you mean seeds\?"),
    ("experiments=rate", r"experiments: unknown key; did you mean experiment\?"),
    ("data.D=3", r"data.D: unknown key, jaxattn.data.sphere accepts n, T, d; did you mean data.d\?"),
    ("+data.dd=3", r"data.dd: unknown key, jaxattn.data.sphere accepts n, T, d; did you mean data.d\?"),
    ("+loss.scale=3", "loss.scale: unknown key, jaxattn.losses.logistic accepts no arguments"),
    # Of a group that this record does not use.
    ("+ball.radius=3", "ball.radius: unknown key, jaxattn.regularization.Frobenius accepts name"),
    ("data=language +data.candidates.k=3", "data.candidates.k: unknown key, jaxattn.language.vocabulary accepts"),
    ("+svm.name=scs", "svm.name: unknown key.*known keys of svm: solver"),
    ("svm.solver=scs", "svm.solver: expected null or a value with a _target_, found 'scs'.*known names of svm: .*scs"),
    ("study.runz=1", r"study.runz: unknown key; did you mean study.runs\?"),
    ("+processes.counts=1", r"processes.counts: unknown key; did you mean processes.count\?"),
    ("data.d.e=1", "data.d: expected an integer, found {'e': 1}"),
    # Deleted ones.
    ("~seeds", "seeds: expected a value, found that it is deleted"),
    ("~optimizer.step_size", "optimizer.step_size: expected a value, which jaxattn.descent.normalized_gd needs"),
    # What is no override.
    ("data.d=4,8", "data.d=4,8: expected one value, found several; `jaxattn train --multirun` trains each"),
    ("experiment=rate,causal", "expected one value, found several"),
    ("--seeds 8", "--seeds: expected key=value, such as seeds=8, or an option such as --multirun"),
    ("--seeds=8", "--seeds=8: expected key=value, such as seeds=8, or an option such as "),
    ("8", "8: expected key=value, such as seeds=8"),
    # Targets that are not there.
    ("head._target_=nowhere.x", "head._target_: nowhere.x: expected a module nowhere on the PYTHONPATH, found none"),
    ("head._target_=jaxattn.headz.linear", "expected a module jaxattn.headz on the PYTHONPATH, found none"),
    ("head._target_=linear", "head._target_: linear: expected a module and a name in it"),
    (
        "head._target_=jaxattn.heads.nope",
        r"head._target_: jaxattn.heads.nope: expected a name of jaxattn.heads \(.*linear, mlp\), found nope",
    ),
    ("head._target_=jaxattn.heads.Linear", r"found Linear; did you mean linear\?"),
    ("head._target_=mistaken_import.x", "mistaken_import cannot be imported: No module named 'nothing_of_this_name'"),
    ("study.record=nowhere.Setting", "expected a module nowhere on the PYTHONPATH"),
    # Targets that do not fit.
    ("head._target_=mistaken_heads.one", r"head: should be head\(x, v\), found one\(x\)"),
    ("head._target_=jaxattn.heads.Quadratic", r"head: expected a function head\(x, v\), found the class Quadratic"),
    ("loss._target_=jaxattn.heads.linear", r"loss: should be loss\(margin\), found linear\(x.*, v"),
    ("head._target_=mistaken_heads.vector", r"head: expected one real number of x \(10,\) .*of shape \(10,\)"),
    ("head._target_=mistaken_heads.broken", "head: raised AttributeError: .*nothing"),
    ("head._target_=mistaken_heads.nan", "head: expected finite numbers, found nan on 24 of 24 inputs"),
    ("head._target_=mistaken_heads.steep", "head: expected finite numbers, found nan as its slope on 24 of 24"),
    (
        "head._target_=mistaken_heads.nan experiment=regularization-path",
        "head: expected finite numbers, found nan on 24 of 24 inputs",
    ),
    (
        "head._target_=mistaken_heads.good head.slop=2",
        r"head.slop: unknown key, .* accepts slope; did you mean head.slope",
    ),
    ("optimizer._target_=optax.adam", "optimizer.learning_rate: expected a value, which optax.adam needs, found none"),
    (
        "optimizer._target_=optax.adam optimizer.learning_rat=0.1",
        "optimizer.learning_rat: unknown key, optax.adam accepts learning_rate, b1, b2, .*; did you mean "
        "optimizer.learning_rate",
    ),
    ("optimizer._target_=optax.adam optimizer.learning_rate=0.1 optimizer.floor=0.0", "optimizer.floor: unknown key, "),
    ("--multirun head._target_=mistaken_heads.good,mistaken_heads.nan", "head: expected finite numbers, found nan"),
]


@pytest.mark.parametrize(("line", "message"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_one_error_and_status_2_before_anything_runs(line, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        command.main(["train", *line.split(), f"runs={tmp_path / 'runs'}"])
    said = capsys.readouterr().err
    assert end.value.code == 2
    pattern = message if message.startswith("^") else f"(?s){message}"
    assert re.search(pattern, said), said
    assert said.startswith("jaxattn: ")
    assert "Traceback" not in said
    assert "+seed" not in said
    assert not (tmp_path / "runs").exists()


def test_a_mistake_of_the_real_command_has_no_trace(tmp_path):
    asked = [sys.executable, "-m", "jaxattn.study", "train", "seed=8", f"runs={tmp_path / 'runs'}"]
    done = subprocess.run(asked, capture_output=True, text=True, cwd=composition.root(), check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("jaxattn: seed: unknown key; did you mean seeds?\n")
    assert "Traceback" not in done.stderr


ADAM = ["optimizer._target_=optax.adam", "optimizer.learning_rate=0.1"]


def test_any_optimizer_of_optax_trains_with_its_own_arguments(tmp_path, capsys):
    small = ["seeds=2", "steps=20", f"runs={tmp_path}"]
    command.main(["train", *ADAM, *small])
    path = runs.record_path(composition.compose([*ADAM, *small]))
    assert capsys.readouterr().out.strip() == str(path)
    # Adam's first step is the learning rate in every entry.
    record = records.load(path)
    assert set(composition.compose(ADAM).optimizer) == {"_target_", "learning_rate"}
    moved = record["W_snapshots"].values[:, 0] - record["W_initial"].values
    assert jnp.isfinite(moved).all()
    assert record.attrs["kept"] == 2
    # The same with a plus, as Hydra's users write it.
    assert runs.record_path(composition.compose([ADAM[0], f"+{ADAM[1]}", *small])) == path


def test_arguments_that_the_new_target_accepts_stay():
    config = composition.compose(["optimizer._target_=jaxattn.descent.gd"])
    assert dict(config.optimizer) == {"_target_": "jaxattn.descent.gd", "step_size": 0.1}
    config = composition.compose(["head=quadratic", "head._target_=jaxattn.heads.Quadratic"])
    assert config.head.penalty == 1.0


def test_a_head_need_not_be_defined_everywhere():
    composition.check(["head._target_=mistaken_heads.rare"])
    composition.check(["head._target_=mistaken_heads.good", "head.slope=2.0"])


def test_a_sweep_over_targets_is_checked_and_expanded():
    sweep = ["optimizer._target_=optax.adam,optax.sgd", "optimizer.learning_rate=0.1,0.2"]
    assert len({runs.folder(composition.compose(one)) for one in composition.expand(sweep)}) == 4
