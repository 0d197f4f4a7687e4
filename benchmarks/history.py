"""The history of the ratios to what a user would otherwise run, so that nothing gets slower unseen.

A ratio is that of two times of one run on one machine, so it can be compared from commit to commit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from jaxattn import records
from jaxattn.study.style import page, palette

# A ratio that falls by more than this factor is a bug.
LOST = 1.3
# The peers of the figure: the loop of the authors' notebooks, and the solver of CVXPY's default.
_DRAWN = {"one seed, PyTorch loop": "a PyTorch loop over seeds", "Clarabel": "CVXPY with Clarabel"}


def ratios(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return how many times faster than each peer the rows of a part are, by what they measure and the peer."""
    found = {}
    for row in rows:
        if "ratios" in row:
            peers, what = row["ratios"], f"{row['weights']} {row['rule']}"
        elif "others ms" in row:
            peers = {peer: ms / row["ms"] for peer, ms in row["others ms"].items()}
            what = f"{row['norm']} ({', '.join(map(str, row['shape']))})"
        else:
            continue
        found |= {f"{what}, {peer}": float(ratio) for peer, ratio in peers.items()}
    return found


def read(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a history, oldest first; none if there is no file."""
    return json.loads(path.read_text()) if path.exists() else []


def added(path: Path, commit: str, machine: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Add the ratios of some rows to a history, and return a line for each that fell by more than `LOST`.

    The entry of the commit that was measured, on this machine, is extended.
    """
    entries, new = read(path), ratios(rows)
    if not new:
        return []
    own = [entry for entry in entries if entry["machine"] == machine]
    before = {label: ratio for entry in own if entry["commit"] != commit for label, ratio in entry["ratios"].items()}
    if own and own[-1]["commit"] == commit:
        own[-1]["ratios"] |= new
    else:
        entries.append({"commit": commit, "machine": machine, "ratios": new})
    records.write_json(path, entries)
    return [
        f"{label}: {ratio:.3g} times as fast, {before[label]:.3g} when it was measured before"
        for label, ratio in new.items()
        if before.get(label, 0.0) > LOST * ratio
    ]


def draw(entries: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the ratios to the authors' loop and to CVXPY's default against the commits that were measured."""
    machines = list(dict.fromkeys(entry["machine"] for entry in entries))
    with page.style():
        figure = page.full(4.0)
        panels = figure.subplots(1, len(_DRAWN), squeeze=False)[0]
        for letter, axes, (peer, title) in zip("ab", panels, _DRAWN.items(), strict=True):
            labels = dict.fromkeys(label for entry in entries for label in entry["ratios"] if label.endswith(peer))
            for label, colour in zip(labels, palette.ramp(len(labels)), strict=True):
                look = {"color": colour, "markersize": 3, "label": label.removesuffix(f", {peer}")}
                for machine in machines:
                    points = [
                        (k, entry["ratios"][label])
                        for k, entry in enumerate(entries)
                        if entry["machine"] == machine and label in entry["ratios"]
                    ]
                    if points:
                        axes.plot(*zip(*points, strict=True), "o-", **look)
                        # One line of the key for all machines.
                        look["label"] = None
            axes.set(yscale="log", title=f"({letter}) against {title}", xlabel="commit")
            axes.set_xticks(range(len(entries)), [entry["commit"] for entry in entries], rotation=90)
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.36), ncols=2)
        panels[0].set_ylabel("times as fast")
        words = f"Both times of a ratio are of one run. Lines join what one machine measured: {'; '.join(machines)}."
        page.note(figure, words)
    return figure
