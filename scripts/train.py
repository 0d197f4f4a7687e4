"""Train one setting, or with --multirun a sweep, over many seeds: `python scripts/train.py data.d=20 seeds=1000`."""

import os

import composition
import hydra
from omegaconf import DictConfig


@hydra.main(version_base="1.3", config_path="../conf", config_name="config")
def run(config: DictConfig) -> None:
    """Train what one configuration describes and print where its record is."""
    print(composition.run(config))


def main(arguments: list[str]) -> None:
    """Check the whole command line first, then hand it to Hydra."""
    composition.check([argument for argument in arguments if not argument.startswith("-")])
    # Hydra would print an error's whole trace; passed on, it ends in one message.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    run()


if __name__ == "__main__":
    composition.entry(main)
