"""Tell where the weights of a ranked record stop, if they no longer grow, as with weight decay."""

from __future__ import annotations

from typing import NamedTuple

import xarray

from jaxattn import bias, descent, models
from jaxattn.bias import limits
from jaxattn.bias.checkpoints import as_run
from jaxattn.bias.verdict import MOST
from jaxattn.problem import of_arrays
from jaxattn.study.settings.parameters import weights_of
from jaxattn.study.settings.training import Training


class Stopped(NamedTuple):
    """Where weights have stopped: `bias.finite` in one line, or why it has no answer, and norms.

    The weights are stationary on the balls of these norms; there are none if it is not decided.
    """

    text: str
    norms: tuple[str, ...]


def stopped(record: xarray.Dataset, ranking: bias.Ranking, setting: Training) -> Stopped | None:
    """Return where the weights of a ranked training stop; None if most of them grow, or if some stalled."""
    if ranking.stalled.any() or (~limits.growing(ranking.size, ranking.steps)).mean() <= 1 - MOST:
        return None
    arrays = {str(name): record[name].values for name in record.data_vars}
    rule = descent.Rule(setting.optimizer, loss=setting.loss, head=setting.head, model=models.of(setting.model))
    run = as_run(weights_of(arrays, "_snapshots"), record["snapshot"].values)._replace(rule=rule)
    try:
        found = bias.finite(run, of_arrays(arrays))
    except ValueError as error:
        return Stopped(f"not told: {error}", ())
    return Stopped(str(found), found.verdict.norms if found.verdict.decided else ())
