"""The types of the configuration, checked by Hydra before anything runs."""

from dataclasses import dataclass, field
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
    """What an experiment's figure needs: the runs, and the folder that measures, judges and draws them.

    `runs` is a list of sweeps, each with the values of some keys, and `small` those at size=small, if fewer.
    `experiment` is a folder with the modules measure, claims and figure, and `record` the setting that draws and
    trains, both as dotted paths. `of` names what in the paper is reproduced, and `departs` says in what the figure
    departs from the published one, and why; figures/README.md prints both, in the order of `place`, that of the paper.
    """

    of: str = ""
    departs: str = ""
    place: int = 0
    runs: list[dict[str, list[Any]]] | None = None
    small: list[dict[str, list[Any]]] | None = None
    experiment: str | None = None
    record: str = "jaxattn.study.settings.training.Training"


@dataclass
class Processes:
    """The processes of one run: how many, which of them this is, and where the first one listens ("host:port").

    `detect` names a cluster that JAX asks for all this: slurm, ompi, mpi4py or k8s.
    """

    count: int = 1
    index: int | None = None
    coordinator: str | None = None
    detect: str | None = None


@dataclass
class Config:
    """Top level of the configuration; the groups are values with a `_target_`."""

    data: Any = MISSING
    head: Any = MISSING
    loss: Any = MISSING
    model: Any = MISSING
    weights: Any = MISSING
    optimizer: Any = MISSING
    noise: Any = MISSING
    penalty: Any = MISSING
    svm: Any = MISSING
    tokens: Any = MISSING
    snapshots: Any = MISSING
    ball: Any = MISSING
    radii: Any = MISSING
    study: Study = MISSING
    size: str = "published"
    seeds: int = 100
    key: int = 0
    steps: int = 2000
    record_every: int = 1
    witnesses: int = 20
    draws: int = 10000
    workers: int | None = None
    norms: list[Any] = MISSING
    precision: Precision = Precision.float64
    runs: str = "runs"
    figures: str = "figures"
    processes: Processes = field(default_factory=Processes)


def register() -> None:
    """Make the schema known to Hydra under the name that conf/config.yaml extends."""
    ConfigStore.instance().store(name="schema", node=Config(study=Study()))
