"""Train one setting over many seeds, or a sweep with --multirun: `jaxattn train data.d=20 seeds=1000`."""

from __future__ import annotations

import os
import sys

import hydra
import jax
from omegaconf import DictConfig

from jaxattn.study import composition, joining, runs
from jaxattn.study.tuning import tune


def run(config: DictConfig) -> None:
    """Train what one configuration describes and print where its record is."""
    # A launcher calls this in processes of its own, which have done nothing of what stands below.
    tune()
    joining.join(config)
    record = runs.run(config)
    if jax.process_index() == 0:
        print(record)


def main(arguments: list[str]) -> None:
    """Check the whole command line first, then hand it to Hydra."""
    own = [argument for argument in arguments if not argument.lstrip("+~").startswith(("-", "hydra"))]
    config = joining.alike([composition.compose(one) for one in composition.expand(own)])
    if any(argument.startswith("hydra/launcher=") for argument in arguments):
        joining.check(config, launched=True)
    else:
        joining.join(config)
    composition.check(own)
    # Hydra would print an error's whole trace; passed on, it ends in one message.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    # It reads the arguments of the process.
    sys.argv = ["jaxattn train", *arguments]
    hydra.main(version_base="1.3", config_path=str(composition.root() / "conf"), config_name="config")(run)()
