"""The types of the configuration, which Hydra checks before anything runs."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from omegaconf import MISSING


class Precision(Enum):
    """The precision of all arrays of a run."""

    float64 = "float64"
    float32 = "float32"


@dataclass
class Study:
    """What an experiment's figure needs: its runs, and the folder that measures, judges and draws them.

    `runs` maps the name of each run to its settings: values of some keys. A list of values is a sweep, and the name
    then says which run it is: `"n = {data.n}": {data.n: [5, 10]}`. `small` are the runs at size=small, if there are
    fewer, and `large` those at size=large, if there are any. `experiment` is a module with an EXPERIMENT, and `record`
    the setting that draws and trains. `of` names what is reproduced from the paper, `notebook` is that of the authors'
    repository, and `departs` says where and why the figure departs from the published one. Pages are ordered by
    `place`, the order in the paper. `published` marks a figure that `jaxattn figures` makes by default. `name` and
    `settings` are filled in for each run.
    """

    of: str = ""
    notebook: str = ""
    departs: str = ""
    place: int = 0
    published: bool = False
    runs: dict[str, Any] | None = None
    small: dict[str, Any] | None = None
    large: dict[str, Any] | None = None
    name: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    experiment: str | None = None
    record: str = "jaxattn.study.settings.training.Training"


@dataclass
class Config:
    """The top level of the configuration; the groups are values with a `_target_`."""

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
    style: str | None = None
