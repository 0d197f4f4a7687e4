"""The types of the configuration, checked by Hydra before anything runs."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING


class Precision(Enum):
    """Of every array of a run."""

    float64 = "float64"
    float32 = "float32"


@dataclass
class Study:
    """What an experiment's figure needs: the runs to compare, and how to judge and draw them."""

    id: str = "run"
    runs: dict[str, list[str]] | None = None
    summarize: str | None = None
    draw: str | None = None


@dataclass
class Config:
    """Top level of the configuration; the groups are values with a `_target_`."""

    data: Any = MISSING
    head: Any = MISSING
    loss: Any = MISSING
    weights: Any = MISSING
    optimizer: Any = MISSING
    svm: Any = MISSING
    study: Study = MISSING
    size: str = "published"
    seeds: int = 100
    key: int = 0
    steps: int = 2000
    snapshot_every: int = 20
    precision: Precision = Precision.float64
    runs: str = "runs"
    figures: str = "figures"


def register() -> None:
    """Make the schema known to Hydra under the name that conf/config.yaml extends."""
    ConfigStore.instance().store(name="schema", node=Config(study=Study()))
