"""Find which max-margin problem a variant obeys: one or several norms, none of them, or not decided.

usage: jaxattn which [GROUP=NAME ...] [KEY=VALUE ...] [norms=[NAME,...]] [--multirun]
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
  --multirun      several values per key, for example optimizer.step=0.01,0.1: every combination is trained and ranked
  style=FILE      a Matplotlib style of your own for the figure, as for `jaxattn figures`
  checkpoints=FILE  weights that another program trained, in place of all settings: a NumPy file (.npz) with the
                  arguments of `bias.rank_arrays`, X, Z and W (or K and Q), and if wanted steps, alpha, mask and scale;
                  only the table is printed

With --multirun it prints one table, a row for each combination: the values that vary, the norm with the largest limit,
that limit with its interval, the seeds that obey the norm, and the verdict. The table (CSV) and, if one or two keys
vary, a phase diagram of the verdicts (PNG, PDF) are written to the folder of runs. All combinations are checked before
the first is trained. The line of one combination prints its whole ranking, and repeats nothing.

Weights that no longer grow, as with weight decay, have no direction. If the model is `plain` and trains W, a line says
at which norm they stop and whether the risk is stationary there on the ball of that norm (`bias.finite`); otherwise it
says why that is not known.

optimizer=optax takes any optax transformation, or one of your own, by its _target_ and arguments. If it is scale-free
(c times the gradients give the same steps, as with eps=0), it gets the gradient's direction in the log domain, which
never underflows; if not, the gradient exact to rounding, which underflows in long runs. The output says which.

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
  jaxattn which --multirun optimizer=steepest optimizer.norm=frobenius,spectral,max optimizer.step=0.01,0.1 seeds=20
  jaxattn which optimizer=adamw optimizer.optimizer.weight_decay=0.1     no direction: largest entry 10
  jaxattn which optimizer=optax optimizer.optimizer._target_=optax.contrib.schedule_free_adamw
  jaxattn which optimizer=optax optimizer.optimizer._target_=mymodule.myrule optimizer.optimizer.step=0.01
  jaxattn which head._target_=mymodule.myhead               your own head, with mymodule on the PYTHONPATH
  jaxattn which checkpoints=run.npz                         weights trained elsewhere
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import numpy as np
from omegaconf import DictConfig, OmegaConf

from jaxattn import bias
from jaxattn.bias import ranking as rankings
from jaxattn.study import fingerprints, stalls
from jaxattn.study.asking import checked, norms_of
from jaxattn.study.configuration import composition
from jaxattn.study.configuration.names import key_of
from jaxattn.study.mistakes import UsageError
from jaxattn.study.points import Point, Table, write
from jaxattn.study.style import page, phases
from jaxattn.study.tuning import tune

_SEVERAL = ("--multirun", "-m")


def main(arguments: list[str]) -> None:
    """Check the whole command line, train, rank, and print the answer and where it is."""
    tune()
    words = [argument for argument in arguments if argument not in _SEVERAL]
    if any(key_of(argument) == "checkpoints" for argument in arguments):
        print(of_checkpoints(arguments).table())
    elif len(words) < len(arguments):
        of_sweep(words)
    else:
        of_one(words)


def of_one(words: Sequence[str]) -> None:
    """Answer for one setting."""
    (asked,) = checked([words])
    answer = asked.answer()
    record = asked.train(asked.folder.name)
    ranking, stopped = answer or asked.rank(record)
    figures = drawn(ranking.plot, asked.folder, f"alignment-{asked.digest}", asked.config)
    print(ranking.table())
    if stopped:
        print(f"where W stops: {stopped.text}")
    print(f"gradient: {asked.gradient}\nrecord: {record}\nranking: {asked.path}\nfigure: {' '.join(map(str, figures))}")
    if stalled := stalls.line([asked.config]):
        print(f"{asked.folder.name}: {stalled}", file=sys.stderr)


def of_sweep(words: Sequence[str]) -> None:
    """Answer for all combinations of a sweep, in one table with a row each, one file, and a diagram."""
    combinations = composition.expand(words)
    settings = composition.varied(combinations)
    if not settings[0]:
        raise UsageError("--multirun: expected several values for a key, such as optimizer.step=0.01,0.1, found one")
    labels = [f"{' '.join(f'{key}={value}' for key, value in setting.items())}: " for setting in settings]
    asked = checked(combinations, labels)
    answers = [one.answer() for one in asked]
    names = itertools.chain.from_iterable(rankings.named(one.norms)[0] for one in asked)
    table, found = Table(settings, list(names)), list[Point]()
    print(table.heading(), flush=True)
    for number, (one, setting, answer) in enumerate(zip(asked, settings, answers, strict=True), start=1):
        record = one.train(f"{number} of {len(asked)}: {' '.join(setting.values())}")
        try:
            found.append(Point(setting, record, *(answer or one.rank(record))))
        except ValueError as error:
            found.append(Point(setting, record, reason=str(error)))
        print(table.row(found[-1]), flush=True)
    config = asked[0].config
    content = [*map(str, settings), *(str(one.path) for one in asked), fingerprints.of([phases.__name__])]
    name = f"which-{hashlib.sha256(' '.join(content).encode()).hexdigest()[:12]}"
    (file,) = added(Path(config.runs), [f"{name}.csv"], lambda folder: write(found, folder / f"{name}.csv"))
    print(f"table: {file}")
    if len(settings[0]) > 2:
        print(f"figure: none, since more than two keys vary: {', '.join(settings[0])}")
    else:
        figures = drawn(lambda: phases.diagram(found), Path(config.runs), name, config)
        print(f"figure: {' '.join(map(str, figures))}")
    if stalled := stalls.line([one.config for one in asked]):
        print(stalled, file=sys.stderr)


def of_checkpoints(arguments: Sequence[str]) -> bias.Ranking:
    """Return the ranking of weights in a file of arrays; UsageError for other settings, or if there is no such file."""
    if others := [argument for argument in arguments if key_of(argument) not in ("checkpoints", "norms")]:
        raise UsageError(f"{others[0]}: expected only norms=[...] beside checkpoints=FILE, found another setting")
    given = OmegaConf.from_dotlist(list(arguments))
    try:
        found = np.load(str(given.checkpoints), allow_pickle=False)
        # A file of one array has no names.
        with nullcontext({"an array": found}) if isinstance(found, np.ndarray) else found as file:
            arrays: dict[str, Any] = dict(file)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"checkpoints: expected a NumPy file of arrays (.npz), found {given.checkpoints}: {error}"
        ) from error
    known = set(inspect.signature(bias.rank_arrays).parameters) - {"norms", "key"}
    if unknown := sorted(set(arrays) - known):
        raise UsageError(f"checkpoints: expected arrays among {sorted(known)}, found {unknown} in {given.checkpoints}")
    if lacking := sorted({"X", "Z"} - set(arrays)):
        raise UsageError(f"checkpoints: expected X and Z, found no {' and no '.join(lacking)} in {given.checkpoints}")
    norms: dict[str, Any] = (
        {"norms": norms_of(composition.compose([f"norms={given.norms}"]))} if "norms" in given else {}
    )
    with jax.enable_x64(True):
        return bias.rank_arrays(**(arrays | norms))


def drawn(draw: Callable[[], Any], folder: Path, name: str, config: DictConfig) -> list[Path]:
    """Draw a figure in the style of a configuration as PNG and PDF, and return their paths; existing files are kept."""
    if config.style:
        style = f"{config.style}\n{fingerprints.contents(config.style)}"
        name = f"{name}-{hashlib.sha256(style.encode()).hexdigest()[:6]}"
    with page.with_own(config.style):
        return added(folder, [f"{name}.png", f"{name}.pdf"], lambda made: page.save(draw(), made, name))


def added(folder: Path, names: Sequence[str], make: Callable[[Path], Any]) -> list[Path]:
    """Make files in another folder, move them to this one together, and return their paths; existing ones are kept."""
    paths = [folder / name for name in names]
    if not all(map(os.path.lexists, paths)):
        # A process may be killed while it writes.
        with tempfile.TemporaryDirectory(prefix=f"{names[0]}.", suffix=".partial", dir=folder) as partial:
            make(Path(partial))
            for path in paths:
                if not os.path.lexists(path):
                    (Path(partial) / path.name).rename(path)
    return paths
