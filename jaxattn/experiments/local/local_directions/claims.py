"""Where descent stays if it starts far along an SVM solution (2308.16898, theorem on local convergence)."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import xarray
from jaxtyping import Float, PRNGKeyArray

from jaxattn.experiments.local.local_directions import examples
from jaxattn.experiments.local.local_directions.measure import STAYED
from jaxattn.statistics import bootstrap, pooled, variables
from jaxattn.study.claims import (
    LEAST_SEEDS,
    Claim,
    Criterion,
    Datasets,
    Judgement,
    Number,
    Setting,
    Source,
    below,
    counts_of,
    number,
    too_few,
    too_short,
)

# Fixed beforehand: the largest share of locally optimal choices that descent may leave at the largest radius, if R must
# be large enough for alpha.
_FEW = 0.1


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Count the starts that descent left, by whether their tokens are locally optimal.

    Args:
        datasets: of `measure`, "all starts" alone.
        key: of the bootstrap, which resamples whole problems, since the choices of tokens of one problem are dependent.

    Returns:
        The dataset with axes `of`, locally optimal or not, and `radius` in addition: the share of starts that descent
        `left`, with its interval, and the number of `starts`; and, over `farther`, `rise`, the change in the share of
        locally optimal starts left from one radius to the next, with its interval.

    Raises:
        ValueError: not one dataset; no start was kept; a run marked as stayed has too low a correlation; or a choice
            marked as locally optimal has no positive lead.
    """
    if len(datasets) != 1:
        raise ValueError(f"local-directions: expected one dataset, found {list(datasets)}")
    (one,) = datasets.values()
    if not one.sizes["start"]:
        raise ValueError(f"local-directions: expected a solved choice of tokens, found counts {counts_of(datasets)}")
    _check(one)
    shape = 2, one.sizes["radius"]
    table = {name: np.full(shape, np.nan) for name in ("left", "left_low", "left_high")}
    starts = np.zeros(2, int)
    keys = jax.random.split(key)
    for k, locally in enumerate((False, True)):
        those = one["locally"].values == locally
        left = ~one["stayed"].values[those]
        starts[k] = len(left)
        if len(left):
            estimate = pooled(left, one["seed"].values[those], keys[k])
            for name, values in zip(table, estimate[:3], strict=True):
                table[name][k] = values
    summary = one.assign({name: (("of", "radius"), values) for name, values in table.items()})
    if starts[1] and shape[1] > 1:
        rise = bootstrap(_rises(one), jax.random.fold_in(key, 2))
        summary = summary.assign(variables({"rise": (("farther",), rise)}))
    return {one.attrs["run"]: summary.assign(starts=(("of",), starts)).assign_coords(of=["not local", "local"])}


def _check(one: xarray.Dataset) -> None:
    """Reject a dataset that contradicts itself."""
    stayed, correlation = one["stayed"].values, one["correlation"].values
    if (wrong := int((stayed & (correlation <= STAYED)).sum())) > 0:
        raise ValueError(f"stayed: expected a correlation above {STAYED}, found {wrong} runs with a lower one")
    if (wrong := int((one["locally"].values != (one["gap"].values > 0)).sum())) > 0:
        raise ValueError(f"locally: expected the choices whose lead is positive, found {wrong} that differ")


def _rises(one: xarray.Dataset) -> Float[np.ndarray, "problems farther"]:
    """Return what each problem contributes to the change in the share of locally optimal starts left."""
    those = one["locally"].values
    left = ~one["stayed"].values[those]
    problems, place = np.unique(one["seed"].values[those], return_inverse=True)
    rises = np.zeros((len(problems), left.shape[1] - 1))
    np.add.at(rises, place, np.diff(left.astype(float), axis=1))
    return rises * len(problems) / len(left)


def _judge(summaries: Datasets) -> Judgement:
    """At the largest radius there must be no exception; as corrected, fewer and fewer local optima are left."""
    if "all starts" not in summaries:
        return Judgement.withheld(f"Expected the run of all starts, found {list(summaries)}.")
    summary = summaries["all starts"]
    numbers, expected = {}, {}
    for of, goal, radius in itertools.product(("local", "not local"), (0.0, 1.0), summary["radius"].values):
        if (of == "local") == (goal == 0.0):
            here = summary.sel(of=of, radius=radius)
            label = f"{of}, share left, R = {radius:g}"
            if int(here["starts"]):
                numbers[label], expected[label] = number(here, "left"), goal
    stayed, locally = summary["stayed"].values, summary["locally"].values
    wrongly = int((stayed & ~locally[:, None]).sum())
    converse = below("runs that stayed at tokens that are not locally optimal", Number.exact(wrongly), 0)
    radii, left = summary["radius"].values, summary["left"].sel(of="local").values
    return Judgement(
        numbers=numbers,
        expected=expected,
        counts=counts_of(summaries),
        stated=(
            converse,
            below(
                f"locally optimal choices left at R = {radii[-1]:g}",
                Number.exact((~stayed[locally, -1]).sum()),
                0,
            ),
        ),
        corrected=(converse, *_falls(summary)),
        correction=f"only if R is large enough for alpha. Descent leaves {left[0]:.1%} of the locally optimal choices "
        f"at R = {radii[0]:g}, and {left[-1]:.1%} at R = {radii[-1]:g}.",
        undecided=too_short(summary.attrs["steps"])
        or too_few(int(summary["starts"].min()))
        or too_few(_problems(summary), LEAST_SEEDS),
        remark="A run has stayed if it selects alpha after the last step and its correlation with W_alpha is above "
        f"{STAYED}. {wrongly} runs stayed at tokens that are not locally optimal. {_slack_of(summary)}".rstrip(),
    )


def _falls(summary: xarray.Dataset) -> list[Criterion]:
    """Ask that the share of locally optimal starts left falls with the radius, and is small at the last one."""
    radii = summary["radius"].values
    few = below(
        f"share of the locally optimal choices left at R = {radii[-1]:g}",
        number(summary.isel(radius=-1).sel(of="local"), "left"),
        _FEW,
    )
    if "rise" not in summary:
        return [few]
    rises = [
        below(f"change of that share from R = {a:g} to {b:g}", number(summary.isel(farther=k), "rise"), 0)
        for k, (a, b) in enumerate(itertools.pairwise(radii))
    ]
    return [few, *rises]


def _problems(summary: xarray.Dataset) -> int:
    """Return the number of problems with locally optimal choices or with other choices, whichever is smaller."""
    seed, locally = summary["seed"].values, summary["locally"].values
    return min(len(np.unique(seed[locally == of])) for of in (True, False))


def _slack_of(summary: xarray.Dataset) -> str:
    """Say the median of `slack R / ||W_alpha||` over the locally optimal starts left, and over the others.

    Only starts outscored by some token count. The text is empty unless there are starts of both kinds.
    """
    scaled = (summary["slack"] * summary["radius"] / summary["length"]).values
    counted = summary["locally"].values[:, None] & np.isfinite(scaled)
    left, stayed = (scaled[counted & (summary["stayed"].values == stayed)] for stayed in (False, True))
    if not (left.size and stayed.size):
        return ""
    return (
        "Among locally optimal choices outscored by a token that is not a support neighbour, the median of that "
        f"token's slack times R / ||W_alpha|| is {np.median(left):.1f} where descent left and {np.median(stayed):.1f} "
        "where it stayed."
    )


CLAIMS = (
    Claim(
        "local-directions:exactly",
        Source("arXiv 2308.16898", "section 5, theorem on local convergence of gradient descent", Setting.OURS),
        "Descent that starts far along W_alpha stays at alpha if and only if alpha is locally optimal.",
        _judge,
        examples.of_exactly,
    ),
)
