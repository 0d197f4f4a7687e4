"""Train one setting, or with --multirun a sweep, over many seeds: `python scripts/train.py data.d=20 seeds=1000`."""

import os

import hydra
import jax
from omegaconf import DictConfig

from jaxattn.study import composition, joining


@hydra.main(version_base="1.3", config_path="../conf", config_name="config")
def run(config: DictConfig) -> None:
    """Train what one configuration describes and print where its record is."""
    # A launcher calls this in processes of its own, which have done nothing of what stands below.
    composition.tune()
    joining.join(config)
    record = composition.run(config)
    if jax.process_index() == 0:
        print(record)


def main(arguments: list[str]) -> None:
    """Check the whole command line first, then hand it to Hydra."""
    own = [argument for argument in arguments if not argument.lstrip("+~").startswith(("-", "hydra"))]
    config = joining.alike([composition.compose(one) for one in composition.expand(own)])
    if any(argument.startswith("hydra/launcher=") for argument in arguments):
        joining.check(config, launched=True)
        # The launcher's processes import what this one finds beside this script.
        paths = [str(composition.ROOT / "scripts"), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    else:
        joining.join(config)
    composition.check(own)
    # Hydra would print an error's whole trace; passed on, it ends in one message.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    run()


if __name__ == "__main__":
    composition.entry(main)
