"""Train one setting over many seeds, or a sweep of settings, and print where the records are.

usage: jaxattn train [GROUP=NAME ...] [KEY=VALUE ...] [--multirun] [--cfg=job]

  GROUP=NAME      a choice from a configuration group, for example weights=factored; the groups are listed below
  KEY=VALUE       any key of the configuration (seeds, key, steps, record_every, precision, ...) or of a group's
                  configuration, for example data.d=20
  --multirun      several values per key, for example data.d=4,8,16: every combination is trained
  --cfg=job       print the resolved configuration without training
  --hydra-help    Hydra's own options, for example the launchers of a sweep

With a launcher, hydra/launcher=..., the paths are printed when all runs of the sweep are finished.

A finished run is not repeated, and an interrupted one continues from its last block of seeds.

Examples:
  jaxattn train data.d=20 seeds=1000
  jaxattn train experiment=rate optimizer=scale_free_gd
  jaxattn train --multirun data.d=4,8,16 weights=free,factored seeds=1000
  jaxattn train head._target_=mymodule.myhead       your own head, with mymodule on the PYTHONPATH
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from jaxattn import records
from jaxattn.study import ending, mistakes, progress, runs, stalls
from jaxattn.study.configuration import composition
from jaxattn.study.configuration.keys import forced, settled
from jaxattn.study.configuration.names import key_of, names_of, root
from jaxattn.study.configuration.values import own_words
from jaxattn.study.mistakes import UsageError
from jaxattn.study.tuning import tune

_OPTIONS = (
    *("--multirun", "-m", "--run", "-r", "--hydra-help", "--version", "--info", "-i"),
    *("--cfg", "-c", "--resolve", "--package", "-p", "--config-dir", "-cd"),
)
# Those that take a value.
_VALUED = ("--cfg", "-c", "--package", "-p", "--config-dir", "-cd")
_LAUNCHER = "hydra/launcher"


def run(config: DictConfig) -> tuple[DictConfig, Path]:
    """Train the setting of one configuration; return the configuration as it was trained, and where its record is."""
    # A launcher calls this in its own processes, which have not run `main`.
    tune()
    config = settled(config, HydraConfig.get().overrides.task)
    with progress.bar(runs.folder(config).name, config.seeds) as report:
        return config, runs.run(config, report)


def main(arguments: list[str]) -> None:
    """Check the whole command line first, then pass it to Hydra."""
    tune()
    arguments = _joined(arguments)
    _check_options(arguments)
    is_sweep = bool({"--multirun", "-m"} & set(arguments))
    _check_launcher(arguments, is_sweep)
    own = [argument for argument in arguments if not argument.lstrip("+~").startswith(("-", "hydra"))]
    # Without --multirun a key with several values is an error.
    combinations = composition.expand(own) if is_sweep else [own]
    composition.check(combinations)
    if is_sweep:
        # Hydra writes there before the first run.
        records.check_folder(Path(composition.compose(combinations[0]).runs))
    # Otherwise Hydra prints an error's traceback; passed on, the error ends in one message.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    # Hydra reads sys.argv, and accepts no option after a key.
    sys.argv = ["jaxattn train", *sorted(forced(arguments), key=lambda argument: argument[:1] != "-")]
    here, told, failed = os.getpid(), list[Path](), list[Exception]()

    def task(config: DictConfig) -> None:
        if os.getpid() != here:
            # What a launcher's worker prints may end in a file of its own: this process prints it.
            ending.with_parent()
            run(config)
            return
        try:
            trained, record = run(config)
            _tell(trained, record)
            told.append(record)
        except mistakes.known() as error:
            if HydraConfig.get().mode is not RunMode.RUN:
                raise
            # Otherwise Hydra would first print that a job has failed.
            failed.append(error)

    try:
        hydra.main(version_base="1.3", config_path=str(root() / "conf"), config_name="config")(task)()
    except (HydraException, OmegaConfBaseException) as error:
        raise UsageError(own_words(error)) from error
    if failed:
        raise failed[0]
    if is_sweep and not told:
        for trained in composition.composed(combinations):
            _tell(trained, runs.record_path(trained))


def _tell(config: DictConfig, record: Path) -> None:
    print(record)
    # To stderr: scripts read the path from stdout.
    counts = records.attributes(record)
    if diverged := counts.get("diverged"):
        said = f"{diverged:,} of {counts['attempted']:,} seeds diverged: their weights are infinite or not a number"
        print(f"{record.parent.name}: {said}", file=sys.stderr)
    if stalled := stalls.line([config]):
        print(f"{record.parent.name}: {stalled}", file=sys.stderr)


def _joined(arguments: list[str]) -> list[str]:
    """Return the arguments with each option that takes a value in one word, `--cfg=job`."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1] in _VALUED:
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


def _check_launcher(arguments: list[str], is_sweep: bool) -> None:
    """Raise UsageError for a launcher that is not installed, or that a single run would not use."""
    installed = [name.removesuffix(".yaml") for name in ConfigStore.instance().list(_LAUNCHER)]
    for argument in arguments:
        name = argument.partition("=")[2]
        if key_of(argument) != _LAUNCHER:
            continue
        if name not in [*installed, *names_of(_LAUNCHER)]:
            raise UsageError(
                f"{argument}: expected an installed launcher ({', '.join(sorted(installed))}), found another; "
                '`pip install "jaxattn[cluster]"` installs joblib, submitit_local and submitit_slurm'
            )
        if not is_sweep:
            raise UsageError(f"{argument}: expected --multirun beside it, since only sweeps are launched, found none")


def _check_options(arguments: list[str]) -> None:
    for number, argument in enumerate(arguments, start=1):
        if argument.startswith("-") and argument.partition("=")[0] not in _OPTIONS:
            name, equals, value = argument.lstrip("-").partition("=")
            value = value if equals else next(iter(arguments[number:]), "...")
            setting = f"{name.replace('-', '_')}={value}"
            raise UsageError(f"{argument}: expected key=value, such as {setting}, or an option such as --multirun")
