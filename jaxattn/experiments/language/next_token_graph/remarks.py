"""Remarks on the verdicts on next-token prediction, as sentences with the measured numbers."""

from __future__ import annotations

from jaxattn.study.claims import Datasets
from jaxattn.study.style import page


def _ends(summaries: Datasets, name: str) -> str:
    """Return the range of the runs' means at the last snapshot."""
    return page.span((float(run[name][-1]) for run in summaries.values()), ".2g")


def on_direction(chosen: Datasets) -> str:
    """Say how near W itself comes to the direction, by rule of descent."""
    exact = {name: run for name, run in chosen.items() if run.attrs["optimizer"] == "scale_free_gd"}
    plain = {name: run for name, run in chosen.items() if name not in exact}
    longest = max(float(run["within"]) for run in plain.values())
    further = (
        " Without cycles, normalized steps along the exact gradient direction follow the same path further: 1 - "
        f"cos of W ends at {_ends(exact, 'whole')}, its margin ratio at {_ends(exact, 'margin')}."
    )
    return (
        f"For plain steps, of at most {longest:.2g} / L, 1 - cos of W itself ends at {_ends(plain, 'whole')} "
        "(geometric means). It falls like the inverse square of log step, as W is W_svm log step plus a bounded "
        "remainder. The change of W over a decade does not contain the constant part of this remainder. Margin "
        f"ratios outside the cyclic subspace are {_ends(plain, 'margin')}.{further}"
    )


def on_finite(chosen: Datasets) -> str:
    """Say how many probabilities are predicted, and the largest error."""
    largest = max(float(run["largest"]) for run in chosen.values())
    points = sum(run.sizes["point"] for run in chosen.values())
    return (
        f"The largest error over {points} probabilities within components is {largest:.2g}. The distance of the "
        f"projection of W on the cyclic subspace from W_fin ends at {_ends(chosen, 'finite')} (geometric means). "
        "W_fin is computed from the graphs only."
    )


def on_global(chosen: Datasets) -> str:
    """Say what is compared."""
    texts = sum(run.attrs["with_starts"] for run in chosen.values())
    starts = ", ".join(sorted({str(run.attrs["weights.starts"]) for run in chosen.values()}))
    return (
        f"{texts} texts with {starts} starts each. In each text the first start is compared with the one whose limit "
        "is farthest from its own; the changes are over the last decade of steps."
    )


def on_both(chosen: Datasets) -> str:
    """Say how near W ends to each prediction."""
    return (
        f"1 - cos with W_fin + C W_svm ends at {_ends(chosen, 'both')}, with W_svm at {_ends(chosen, 'whole')} "
        "(geometric means). C is fitted, W_fin is not. Both tend to 0, since W grows and W_fin does not."
    )
