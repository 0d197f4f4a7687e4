"""Whether the norms that rules obey depend on the problem size, the start, or the precision."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import xarray

from jaxattn.experiments.bias.atlas_robust import examples
from jaxattn.experiments.bias.ratios import run_of, summarize
from jaxattn.experiments.bias.rules import RULES, STEPS
from jaxattn.study.claims import (
    Claim,
    Datasets,
    Judgement,
    Number,
    Setting,
    Source,
    below,
    counts_of,
    number,
    too_little,
)

__all__ = ["CLAIMS", "VARIANTS", "pairs", "summarize"]

_SOURCE = Source("arXiv 2308.16898 and 2502.04664", "limits stated for any size and start", Setting.OURS)
# The changes, as named by `rules.described`, for each claim.
VARIANTS = {
    "sizes": ("(4, 4, 6)", "(10, 5, 20)"),
    "starts": ("start as published", "start of scale 0.01"),
    "precision": ("single precision",),
}
_SAID = {
    "sizes": "the numbers n, T and d of inputs, tokens and features",
    "starts": "the starting point of W, or of K and Q",
    "precision": "the precision of training",
}


class Pair(NamedTuple):
    """A run of the atlas, and the same run with a change.

    Attributes:
        usual: as in the atlas.
        changed: the same rule, with the change.
        label: of the changed run.
    """

    usual: xarray.Dataset
    changed: xarray.Dataset
    label: str

    @property
    def is_decided(self) -> bool:
        """Whether both verdicts are decided."""
        return bool(self.usual.attrs["decided"] and self.changed.attrs["decided"])

    @property
    def differs(self) -> bool:
        """Whether both verdicts are decided and differ."""
        return self.is_decided and bool((self.usual["named"].values != self.changed["named"].values).any())


def pairs(summaries: Mapping[str, xarray.Dataset], variants: tuple[str, ...]) -> list[Pair]:
    """Pair every run that has one of these changes with the unchanged run, if both were made."""
    found = []
    for one in summaries.values():
        row = {name: str(one.attrs[name]) for name in ("weights", "rule", "step")}
        usual = run_of(summaries, **row, variant="")
        if one.attrs["variant"] in variants and usual is not None:
            said = f"{row['weights']}, {RULES[row['rule']]}, {STEPS[row['step']]}, {one.attrs['variant']}"
            found.append(Pair(usual, one, said.replace("$k^{-1/2}$", "k^-1/2")))
    return found


def _judge(which: str, summaries: Datasets) -> Judgement:
    """No decided verdict may change, and all verdicts, with and without the change, must be decided."""
    found = pairs(summaries, VARIANTS[which])
    if not found:
        return Judgement.withheld("These runs are not made at this size.")
    changed = [pair for pair in found if pair.differs]
    numbers: dict[str, Number] = {}
    for pair in found:
        for norm in pair.usual["norm"].values[pair.usual["named"].values]:
            numbers[f"margin ratio, {norm}: {pair.label}"] = number(pair.changed.sel(norm=norm), "ratio")
    undecided = next((said for pair in found for one in (pair.usual, pair.changed) if (said := too_little(one))), "")
    open_ones = [pair.label for pair in found if not pair.is_decided]
    if open_ones and not changed and not undecided:
        undecided = f"Not decided, with or without the change: {'; '.join(open_ones)}."
    said = "; ".join(f"{pair.label}: {pair.changed.attrs['verdict']}" for pair in changed)
    share = float(len(changed))
    return Judgement(
        numbers={"rows whose verdict changes": share, **numbers},
        expected={"rows whose verdict changes": 0.0},
        counts=counts_of({pair.changed.attrs["run"]: pair.changed for pair in found}),
        stated=(below(f"rows of {len(found)} whose verdict changes", Number.exact(share), 0.0),),
        undecided=undecided
        or (f"Not decided, with or without the change: {'; '.join(open_ones)}." if open_ones and not changed else ""),
        remark=f"Changed: {said}."
        if changed
        else f"All {len(found)} verdicts agree with those of the same rule in the atlas.",
    )


CLAIMS = tuple(
    Claim(
        f"atlas-robust:{which}",
        _SOURCE,
        f"The norm whose Att-SVM a rule obeys does not depend on {_SAID[which]}.",
        partial(_judge, which),
        partial(examples.of_variants, variants),
    )
    for which, variants in VARIANTS.items()
)
