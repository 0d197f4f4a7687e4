"""Hand-built datasets for which the verdicts of the claims on changed sizes, starts and precision are known."""

from __future__ import annotations

import xarray

from jaxattn.experiments.bias import made
from jaxattn.study.claims.claim import Datasets, Verdict

_ROWS = (("W", "steepest max", "constant", "max"), ("KQ", "steepest spectral", "falling", "spectral"))


def runs(variants: tuple[str, ...], changed: float = 0.99, moving: float = 0.0) -> Datasets:
    """Return two rules, each as in the atlas and with every change.

    Args:
        variants: the changes.
        changed: margin ratio for the first rule's norm with the first change.
        moving: by how much this ratio changes per decade of steps.
    """
    found: dict[str, xarray.Dataset] = {}
    for variant in ("", *variants):
        for weights, rule, step, norm in _ROWS:
            first = variant == variants[0] and rule == _ROWS[0][1]
            ratio, drift = (changed, moving) if first else (0.99, 0.0)
            name = ", ".join(part for part in (weights, rule, step, variant) if part)
            described = {"weights": weights, "rule": rule, "step": step, "variant": variant}
            found[name] = made.run(name, {norm: ratio}, described, moving=drift)
    return found


def of_variants(variants: tuple[str, ...]) -> dict[Verdict, Datasets]:
    """All verdicts are the same; one names none; one is still moving."""
    return {
        Verdict.HOLDS: runs(variants),
        Verdict.FAILS: runs(variants, changed=0.9),
        Verdict.OPEN: runs(variants, changed=0.9, moving=0.05),
    }
