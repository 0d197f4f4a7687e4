"""Find which max-margin problem a variant obeys: one or several norms, none of them, or not decided.

usage: jaxattn which [GROUP=NAME ...] [KEY=VALUE ...] [norms=[NAME,...]]
       jaxattn which checkpoints=FILE [norms=[NAME,...]]

Trains the variant over many seeds. For each norm it prints the margin ratio (the margin of W divided by the certified
largest margin, 1 if W obeys the norm) with its 95 % interval, the limit that it tends to as W grows, and the number of
seeds that obey the norm. Then it prints the verdict: one norm, several that cannot be distinguished, a norm or one near
it, none of these, or not decided, with the reason. A norm is named only if its neighbours in the families l_p and
schatten_p fit less well. The ranking (Zarr) and its figure (PNG, PDF) are written beside the record, and all paths are
printed. The exit status is 0 for every verdict.

  GROUP=NAME      a choice from a configuration group, for example optimizer=muon; the groups are listed below
  KEY=VALUE       any key of the configuration or of a group's configuration, as for `jaxattn train`
  norms=[...]     frobenius, nuclear, spectral, max, l1, l_p with any p (l_1.5), or values with a _target_;
                  default: [frobenius,nuclear,spectral,max,l1]
  style=FILE      a Matplotlib style of your own for the figure, as for `jaxattn figures`
  checkpoints=FILE  weights that another program trained, in place of all settings: a NumPy file (.npz) with the
                  arguments of `bias.rank_arrays`, X, Z and W (or K and Q), and if wanted steps, alpha, mask and scale;
                  only the table is printed

Its defaults differ from `jaxattn train`, so that a run can decide:
  optimizer=scale_free_gd       the published normalized_gd stalls after a few hundred steps
  weights=free_zero             W = 0 at the start
  steps=20000                   (not with size=small, which has its own)
  snapshots=logarithmically     needed to see where the ratios end
  record_every=100
With experiment=NAME the experiment's settings replace these. The constraints are those of the tokens that a seed has
selected at the end, for any head. If a head mixes tokens and so does not select one, the verdict is not decided. The
same holds for runs that stalled, for weights that no longer grow, and for fewer than 8 seeds.

A finished run is not repeated, and an interrupted one continues from its last block of seeds.

Examples:
  jaxattn which                                             normalized descent on W: frobenius
  jaxattn which optimizer=sign data.d=10 seeds=100
  jaxattn which optimizer=steepest optimizer.norm=spectral optimizer.step=0.03 weights=factored
  jaxattn which optimizer=mirror optimizer.p=1.5 optimizer.step=0.1 "norms=[frobenius,l_1.5,max]"
  jaxattn which head._target_=mymodule.myhead               your own head, with mymodule on the PYTHONPATH
  jaxattn which checkpoints=run.npz                         weights trained elsewhere
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray
from hydra.errors import HydraException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from jaxattn import bias, records
from jaxattn.bias import limits
from jaxattn.bias import ranking as rankings
from jaxattn.records import locks
from jaxattn.study import fingerprints, progress, runs, stalls
from jaxattn.study.configuration import composition
from jaxattn.study.configuration.names import key_of, named
from jaxattn.study.measuring.ranked import of_dataset, ranked, to_dataset
from jaxattn.study.mistakes import UsageError
from jaxattn.study.settings.training import Training
from jaxattn.study.style import page
from jaxattn.study.tuning import tune

# Defaults of this command: an optimizer that does not stall, and snapshots along decades of steps.
DEFAULTS = {
    "optimizer": "scale_free_gd",
    "weights": "free_zero",
    "steps": "20000",
    "snapshots": "logarithmically",
    "record_every": "100",
}
_CODE = (f"{ranked.__module__}.{ranked.__qualname__}", "jaxattn.plots.alignment")
# Attributes of a record that tell where its numbers come from.
_PROVENANCE = ("config", "fingerprint", "revision", "versions")


def main(arguments: list[str]) -> None:
    """Check the whole command line, train, rank, and print the ranking and where it is.

    Raises:
        RecordError: something else is in the place of the ranking.
    """
    tune()
    if any(key_of(argument) == "checkpoints" for argument in arguments):
        print(of_checkpoints(arguments).table())
        return
    config, norms = checked(arguments)
    folder = runs.folder(config)
    path = folder / f"ranking-{_digest(config)}.zarr"
    if os.path.lexists(path):
        dataset = records.load_dataset(path)
    else:
        dataset = None
        records.check_place(path)
    with progress.bar(folder.name, config.seeds) as report:
        record = runs.run(config, report)
    if dataset is None:
        with progress.waiting(f"solving the max-margin problems of {len(norms)} norm{'s' * (len(norms) != 1)}"):
            dataset = _ranked(config, norms, record, path)
    ranking = of_dataset(dataset)
    with page.with_own(config.style):
        figures = drawn(ranking, folder, _figure(config))
    print(ranking.table())
    print(f"record: {record}\nranking: {path}\nfigure: {' '.join(map(str, figures))}")
    if stalled := stalls.line([config]):
        print(f"{folder.name}: {stalled}", file=sys.stderr)


def of_checkpoints(arguments: Sequence[str]) -> bias.Ranking:
    """Return the ranking of weights in a file of arrays.

    Raises:
        UsageError: another setting beside the file and the norms, or no such file of arrays.
        ValueError: as `bias.rank_arrays`.
    """
    if others := [argument for argument in arguments if key_of(argument) not in ("checkpoints", "norms")]:
        raise UsageError(f"{others[0]}: expected only norms=[...] beside checkpoints=FILE, found another setting")
    given = OmegaConf.from_dotlist(list(arguments))
    try:
        with np.load(str(given.checkpoints), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise UsageError(
            f"checkpoints: expected a NumPy file of arrays (.npz), found {given.checkpoints}: {error}"
        ) from error
    known = set(inspect.signature(bias.rank_arrays).parameters) - {"norms", "key"}
    if unknown := sorted(set(arrays) - known):
        raise UsageError(f"checkpoints: expected arrays among {sorted(known)}, found {unknown} in {given.checkpoints}")
    if lacking := sorted({"X", "Z"} - set(arrays)):
        raise UsageError(f"checkpoints: expected X and Z, found no {' and no '.join(lacking)} in {given.checkpoints}")
    norms: dict[str, Any] = {"norms": _norms(composition.compose([f"norms={given.norms}"]))} if "norms" in given else {}
    with jax.enable_x64(True):
        return bias.rank_arrays(**(arrays | norms))


def with_defaults(overrides: Sequence[str]) -> list[str]:
    """Return a command line preceded by this command's defaults, except those that it sets itself.

    An experiment replaces the defaults by its own settings, and a size the number of steps.
    """
    given = set(map(key_of, overrides))
    if "experiment" in given:
        return list(overrides)
    given |= {"steps"} if "size" in given else set()
    return [*(f"{key}={value}" for key, value in DEFAULTS.items() if key not in given), *overrides]


def checked(arguments: Sequence[str]) -> tuple[DictConfig, list[Any]]:
    """Return the configuration of a command line and its norms, before anything is trained.

    Raises:
        UsageError: a mistake in it, a setting whose record cannot be ranked, or snapshots that show no trend.
        ValueError: norms that are unknown or cannot be used for ranking.
    """
    if options := [argument for argument in arguments if argument.startswith("-")]:
        raise UsageError(f"{options[0]}: expected key=value, such as seeds=100; `jaxattn which` takes no options")
    if solver := [argument for argument in arguments if key_of(argument).partition(".")[0] == "svm"]:
        raise UsageError(f"{solver[0]}: expected none, since each norm has its own certified solver, found one")
    overrides = with_defaults(arguments)
    config = composition.compose(overrides)
    norms = _norms(config)
    rankings.named(norms)
    setting = composition.setting_of(config)
    if type(setting) is not Training:
        trained = f"{Training.__module__}.{Training.__qualname__}"
        raise UsageError(
            f"experiment: expected one that trains attention on problems (study.record={trained}), found "
            f"study.record={config.study.record}"
        )
    snapshots = np.asarray(setting.snapshots(setting.steps), int)
    if (recent := limits.window(snapshots).size if snapshots.size else 0) < limits.LEAST:
        shown = snapshots.tolist()
        shown = shown if len(shown) <= 5 else [*shown[:2], "...", *shown[-2:]]
        raise UsageError(
            f"snapshots: expected {limits.LEAST} in the last decade of steps, to tell where ratios end, found {recent} "
            f"among {shown}; snapshots=logarithmically has them"
        )
    try:
        composition.check(overrides)
    except UsageError as error:
        # The error names the whole line, including defaults: remove it.
        raise UsageError(str(error).removeprefix(f"{' '.join(overrides)}: ")) from error
    records.check_folder(Path(config.runs))
    with page.with_own(config.style):
        pass  # A mistake in it is found at once.
    return config, norms


def _norms(config: DictConfig) -> list[Any]:
    """Return the norms of a configuration: names, or values made from a _target_."""
    given = OmegaConf.to_container(config.norms, resolve=True)
    assert isinstance(given, list)
    return [_instantiated(norm) if isinstance(norm, dict) else norm for norm in given]


def _instantiated(norm: dict[Any, Any]) -> Any:
    if not isinstance(path := norm.get("_target_"), str):
        raise UsageError(f"norms: expected names, or values with a _target_, found {norm}")
    named(path)
    try:
        return instantiate(norm)
    except HydraException as error:
        raise UsageError(f"norms: {path}: {error.__cause__ or error}") from error


def _digest(config: DictConfig) -> str:
    """Return a hash of the norms, and of the code that ranks and draws."""
    norms = OmegaConf.to_container(config.norms, resolve=True)
    code = fingerprints.of([*_CODE, *fingerprints.targets(norms)])
    return hashlib.sha256(f"{norms}\n{code}".encode()).hexdigest()[:12]


def _figure(config: DictConfig) -> str:
    """Return the name of the ranking's figure, which says in which style it is drawn."""
    name = f"alignment-{_digest(config)}"
    if not config.style:
        return name
    style = f"{config.style}\n{fingerprints.contents(config.style)}"
    return f"{name}-{hashlib.sha256(style.encode()).hexdigest()[:6]}"


def _ranked(config: DictConfig, norms: Sequence[Any], record: Path, path: Path) -> xarray.Dataset:
    with locks.held(path), jax.enable_x64(config.precision.name == "float64"):
        loaded = records.load(record)
        dataset = to_dataset(ranked(loaded, norms, jax.random.key(config.key)))
        dataset = dataset.assign_attrs({name: loaded.attrs[name] for name in _PROVENANCE if name in loaded.attrs})
        records.save_dataset(path, dataset)
    return dataset


def drawn(ranking: bias.Ranking, folder: Path, name: str) -> list[Path]:
    """Draw a ranking as PNG and PDF, and return their paths; existing files are kept.

    Raises:
        OSError: the folder cannot be written.
    """
    paths = [folder / f"{name}.png", folder / f"{name}.pdf"]
    if not all(map(os.path.lexists, paths)):
        # Write completely or not at all: a process may be killed while it writes.
        with tempfile.TemporaryDirectory(prefix=f"{name}.", suffix=".partial", dir=folder) as partial:
            for made, path in zip(page.save(ranking.plot(), Path(partial), name), paths, strict=True):
                if not os.path.lexists(path):
                    made.rename(path)
    return paths
