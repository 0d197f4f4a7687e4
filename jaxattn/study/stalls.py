"""Report stalled runs: seeds whose gradient was lost to rounding, floor or penalty."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hydra.utils import instantiate
from omegaconf import DictConfig

from jaxattn.descent.stalling import NEVER, going_on
from jaxattn.records import Record
from jaxattn.study import runs


def line(configs: Sequence[DictConfig]) -> str | None:
    """Return one line on how many recorded seeds stalled, since when, and a rule that does not; None if none did."""
    steps, rules, seeds, trained = [], set[str](), 0, 0
    for config in configs:
        record = Record(runs.record_path(config))
        if "stalled" not in record:
            continue
        trained += 1
        since = record.read("stalled")
        seeds += len(since)
        if (stalled := since[since != NEVER]).size:
            steps.append(stalled)
            rules.add(going_on(instantiate(config.optimizer).update))
    if not steps:
        return None
    since = np.sort(np.concatenate(steps))
    of_runs = f", in {len(steps)} of {trained} runs" if trained > 1 else ""
    return (
        f"{len(since):,} of {seeds:,} seeds stalled{of_runs}: the gradient was lost to rounding, floor or penalty from "
        f"step {since[0]:,} on at the earliest, {since[len(since) // 2]:,} in the median; "
        f"{' or '.join(sorted(rules))} does not stall"
    )
