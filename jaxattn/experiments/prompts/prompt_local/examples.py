"""Hand-built ends of grids for which the verdicts of the claims are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray

from jaxattn.study.claims.claim import Datasets, Verdict

_SIDE = 12


def run(
    inputs: int, seeds: int = 200, resting: float = 0.0, wrong: float = 0.0, far: float = 0.0, both: bool = True
) -> xarray.Dataset:
    """Return the ends of a grid of starts in problems with three tokens per input, two of whose choices are optimal.

    Args:
        inputs: of a problem.
        seeds: number of problems.
        resting: share of the starts whose prompt stays at a point.
        wrong: share of the starts that end at a choice that is not locally optimal.
        far: share of the starts that select an optimal choice, far from its solution.
        both: whether the others end at both optimal choices, or only at the first.
    """
    starts, choices = _SIDE**2, 3**inputs
    centres = np.linspace(-9.2, 9.2, _SIDE)
    rows, columns = np.meshgrid(centres, centres, indexing="ij")
    place = (np.arange(starts) + 0.5) / starts
    locally = np.arange(choices) < 2
    choice = np.where(both & (columns.ravel() > 0), 1, 0)
    is_wrong = place < wrong
    choice = np.where(is_wrong, 2, choice)
    is_far = (place >= wrong) & (place < wrong + far)
    rests = place >= 1 - resting
    angles = np.arange(choices)
    alpha = np.stack(np.unravel_index(np.arange(choices), (3,) * inputs), axis=1)
    counts = {"attempted": seeds, "kept": seeds, "diverged": 0, "unsolved": 0}

    def every(one: Any) -> Any:
        return np.broadcast_to(one, (seeds, *np.shape(one))).copy()

    X = np.stack([np.cos(np.arange(3.0)), np.sin(np.arange(3.0))], axis=1)
    return xarray.Dataset(
        {
            "choice": (("seed", "start"), every(choice)),
            "off": (("seed", "start"), every(np.where(is_far, 0.5, 1e-4))),
            "moved": (("seed", "start"), every(np.where(rests, 0.01, 0.5))),
            "solution": (
                ("seed", "choice_number", "feature"),
                every(np.stack([np.cos(angles), np.sin(angles)], axis=1)),
            ),
            "feasible": (("seed", "choice_number"), every(np.ones(choices, bool))),
            "locally": (("seed", "choice_number"), every(locally)),
            "alpha": (("choice_number", "input"), alpha),
            "X": (("seed", "input", "token", "feature"), every(np.tile(X, (inputs, 1, 1)))),
            "score": (("seed", "input", "token"), every(np.tile(np.arange(3.0), (inputs, 1)))),
            "p_initial": (("seed", "start", "feature"), every(np.stack([columns.ravel(), rows.ravel()], axis=1))),
        },
        {"seed": np.arange(seeds)},
        {"run": f"n = {inputs}, {starts} starts", "inputs": inputs, "steps": 4000, **counts},
    )


def runs(**changes: Any) -> Datasets:
    """Return both runs, with changes for the one with two inputs."""
    every = [run(1), run(2, **changes)]
    return {one.attrs["run"]: one for one in every}


def of_attracting() -> dict[Verdict, Datasets]:
    """All starts converge; some rest, or end at other choices; or there are too few problems."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.CORRECTED: runs(resting=0.1),
        Verdict.FAILS: runs(wrong=0.1),
        Verdict.OPEN: runs(seeds=5),
    }


def of_several() -> dict[Verdict, Datasets]:
    """Starts end at both choices, or only at one; or there are too few problems."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(both=False), Verdict.OPEN: runs(seeds=5)}
