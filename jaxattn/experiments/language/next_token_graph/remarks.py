"""What a reader should know beside the verdicts on next-token prediction, in sentences made from the numbers."""

from __future__ import annotations

from jaxattn.study.claims import Datasets

# How W descends.
_RULES = ("plain", "exact direction")


def _ends(summaries: Datasets, name: str) -> str:
    """Return the range of the runs' means at the last snapshot."""
    means = [float(one[name].values.ravel()[-1]) for one in summaries.values()]
    return f"{min(means):.2g} to {max(means):.2g}" if len(means) > 1 else f"{means[0]:.2g}"


def on_direction(chosen: Datasets) -> str:
    """Say how near W itself has come, by how it descends."""
    rules = {rule: {run: one for run, one in chosen.items() if one.attrs["rule"] == rule} for rule in _RULES}
    plain, exact = rules["plain"], rules["exact direction"]
    parts = []
    if plain:
        longest = max(float(one["within"]) for one in plain.values())
        parts.append(
            f"Plain steps, of at most {longest:.2g} / L: 1 - cos of W itself ends at {_ends(plain, 'whole')}, geometric"
            " means, and falls like the inverse square of log step, as W is W_svm log step and a bounded remainder. The"
            " gain of a decade is free of what is constant in it. Margin ratios outside the cyclic subspace are "
            f"{_ends(plain, 'margin')}."
        )
    if exact:
        parts.append(
            "Without cycles, normalized steps in the exact direction of the gradient follow the same path further: 1 - "
            f"cos of W ends at {_ends(exact, 'whole')}, its margin ratio at {_ends(exact, 'margin')}."
        )
    return " ".join(parts)


def on_finite(chosen: Datasets) -> str:
    """Say how many probabilities are predicted, and the largest error."""
    largest = max(float(one["largest"]) for one in chosen.values())
    points = sum(one.sizes["point"] for one in chosen.values())
    return (
        f"Of {points} probabilities within components none is off by more than {largest:.2g}. The distance of the "
        f"projection of W on the cyclic subspace from W_fin ends at {_ends(chosen, 'finite')}, geometric means. W_fin "
        "is computed from the graphs alone."
    )


def on_global(chosen: Datasets) -> str:
    """Say what is compared."""
    texts = sum(one.attrs["with_starts"] for one in chosen.values())
    starts = ", ".join(sorted({str(one.attrs["starts"]) for one in chosen.values()}))
    return (
        f"{texts} texts with {starts} starts each. In each text the first start is compared with the one whose limit is"
        " farthest from its own; gains are those of the last decade of steps."
    )


def on_both(chosen: Datasets) -> str:
    """Say how near W ends to each prediction."""
    return (
        f"1 - cos with W_fin + C W_svm ends at {_ends(chosen, 'both')}, with W_svm at {_ends(chosen, 'whole')}, "
        "geometric means. C is fitted, W_fin is not. Both tend to 0, as W grows and W_fin does not."
    )


def on_sets(chosen: Datasets) -> str:
    """Say why the two agree."""
    del chosen
    return (
        "By the definitions: every input holds every word, so the words that follow k form one component, which comes "
        "before all others. The limit is then that of lm-cosine:mixed, W_fin + C W_sets."
    )


def on_convex(chosen: Datasets) -> str:
    """Say where convexity is looked at."""
    del chosen
    return (
        "Between the start and the end of every run. By algebra: -log of a softmax probability is convex in the logits."
    )
