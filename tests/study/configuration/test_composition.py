"""From a command line to what is trained: a user's own heads and optimizers, sweeps, targets (mistakes: malformed)."""

import json
import sys

import hydra
import jax.numpy as jnp
import pytest
from omegaconf import OmegaConf

from jaxattn import records
from jaxattn.study import command, runs
from jaxattn.study.configuration import composition
from jaxattn.study.settings import training

# A user's own module, on the PYTHONPATH.
HEADS = """
import hydra
import jax.numpy as jnp


def rare(x, v):
    return jnp.sqrt(jnp.vdot(x, v) + 0.2)


def good(x, v, slope=1.0):
    return jnp.tanh(slope * jnp.vdot(x, v))
"""


@pytest.fixture(autouse=True)
def own_heads(tmp_path, monkeypatch):
    """A module of heads."""
    (tmp_path / "own_heads.py").write_text(HEADS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("own_heads", None)


ADAM = ["optimizer._target_=optax.adam", "optimizer.learning_rate=0.1"]


@pytest.mark.slow
def test_any_optimizer_of_optax_trains_with_its_own_arguments(tmp_path, capsys):
    # In a folder that is a link, whose name has blanks and other letters.
    (tmp_path / "target").mkdir()
    (tmp_path / "my runs, äö").symlink_to(tmp_path / "target")
    small = ["seeds=2", "steps=20", f"runs={tmp_path / 'my runs, äö'}"]
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
    composition.check(["head._target_=own_heads.rare"])
    composition.check(["head._target_=own_heads.good", "head.slope=2.0"])


def test_a_sweep_over_targets_is_checked_and_expanded():
    sweep = ["optimizer._target_=optax.adam,optax.sgd", "optimizer.learning_rate=0.1,0.2"]
    assert len({runs.folder(composition.compose(one)) for one in composition.expand(sweep)}) == 4


@pytest.mark.slow
def test_a_run_that_another_jax_began_is_refused_in_one_line_and_stays(tmp_path, capsys, monkeypatch):
    line = ["seeds=2", "steps=20", "data.n=2", "data.T=3", "data.d=3", f"runs={tmp_path}"]

    def stopped(*given, **more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training.Training, "block", stopped)
        with pytest.raises(SystemExit):
            command.main(["train", *line])
    path = runs.record_path(composition.compose(line))
    status = path.with_name("status.json")
    assert json.loads(status.read_text())["state"] == "stopped"
    description = path / "zarr.json"
    content = json.loads(description.read_text())
    content["attributes"]["jax"] = "0.1.0"
    description.write_text(json.dumps(content))
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        command.main(["train", *line])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert f"jaxattn: the record {path} was begun with other settings and cannot be continued: jax: expected " in said
    assert f", found 0.1.0; nothing was changed: move {path} away, and run the same command again\n" in said
    assert "Error executing job" not in said
    assert json.loads(description.read_text()) == content
    path.rename(tmp_path / "away")
    command.main(["train", *line])
    assert records.is_complete(path)


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["experiment=sequence", "data=causal", "size=small", "steps=7"],
        ["experiment=atlas", "optimizer=adam", "optimizer.optimizer.b2=0.95"],
        ["weights=factored", "~weights.m", "head=quadratic", "runs=my runs", "model=one_hot"],
        *(pytest.param([f"experiment={name}"], marks=pytest.mark.slow) for name in composition.experiments()),
    ],
    ids=" ".join,
)
def test_configurations_are_those_that_hydra_composes(overrides):
    with hydra.initialize_config_dir(str(composition.root() / "conf"), version_base="1.3"):
        expected = composition.settled(hydra.compose("config", composition.forced(overrides)), overrides)
    assert OmegaConf.to_yaml(composition.compose(overrides)) == OmegaConf.to_yaml(expected)
