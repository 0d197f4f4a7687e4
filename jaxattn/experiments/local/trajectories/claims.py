"""Trajectories in the plane (2308.16898, figure 1): W z and K Q^T z become parallel to the SVM's rays."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import xarray
from jaxtyping import Int, PRNGKeyArray

from jaxattn.experiments.local.trajectories import examples
from jaxattn.statistics import bootstrap, proportion, variables
from jaxattn.study.claims import (
    Claim,
    Datasets,
    Judgement,
    Setting,
    Source,
    above,
    below,
    counts_of,
    number,
    too_little,
)
from jaxattn.study.claims.criteria import Outcome
from jaxattn.study.measuring.growth import AT_REST, growth, lengths

# The max-margin problem that each parameterization is claimed to solve.
OWN_NORM = {"W": "frobenius", "KQ": "nuclear"}
_PATHS = {"W": "W", "KQ": "K Q^T"}
_SOLUTIONS = {"W": "Att-SVM (Frobenius norm)", "KQ": "Att-SVM* (nuclear norm)"}
# The two training rules: the suffixes of the runs, and their names in text.
EXACT = ", exact"
RULES = {"": "the published rule", EXACT: "the exact gradient direction"}
# Fixed beforehand: the correlation above which a direction counts as that of the ray, and the shares of seeds that
# count as nearly all and as most. The mean correlation is not used: a few instances of tiny margin, for which 2,000
# steps are only the beginning, move it to either side of 0.99 by chance.
PARALLEL, _ALL, _MOST = 0.99, 0.95, 0.5
# Derived from the bootstrap key, for the growth that the remarks report.
_GROWTH = 1


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Choose the instance to draw, and estimate the final direction over all kept seeds.

    The figure shows the seed whose correlation with the Frobenius solution, at the end of training W by the published
    rule, is the median over the seeds that all runs kept. The claims are about all seeds.

    Args:
        datasets: of `measure`, of the runs "W" and "KQ", each also along the exact gradient direction.
        key: of the bootstrap.

    Returns:
        For each run the measured dataset of that seed, which the figure draws, and over all kept seeds `final`, the
        mean correlation at the last step with its interval, (norm,); `parallel`, the share of seeds above 0.99;
        `off_10`, `off_50` and `off_90`, quantiles over the seeds of 1 - cos with the run's own solution, (snapshot,);
        and what `growth.growth` returns. The attribute `place` is the share of the seeds whose final correlation is
        below that of the drawn seed.

    Raises:
        ValueError: other runs, or no seed was kept in all.
    """
    expected = [run + rule for run in OWN_NORM for rule in RULES]
    if set(datasets) != set(expected):
        raise ValueError(f"trajectories: expected the runs {sorted(expected)}, found {sorted(datasets)}")
    drawn = _median(datasets)
    keys = jax.random.split(key, len(expected))
    return {
        run: _summary(datasets[run], OWN_NORM[run.removesuffix(EXACT)], drawn, own)
        for run, own in zip(expected, keys, strict=True)
    }


def _median(datasets: Datasets) -> int:
    """Return the seed of median final correlation of W; the lower of two middle ones."""
    seeds = by_final(datasets)
    return int(seeds[(len(seeds) - 1) // 2])


def by_final(datasets: Datasets) -> Int[np.ndarray, " seeds"]:
    """Return the seeds that all runs kept, sorted by their final correlation of W; ties are sorted by seed number.

    Raises:
        ValueError: no seed was kept in all runs.
    """
    kept: list[Int[np.ndarray, " seeds"]] = [one["seed"].values for one in datasets.values()]
    shared = kept[0][[all(seed in others for others in kept) for seed in kept[0]]]
    if shared.size == 0:
        raise ValueError(f"trajectories: no seed was kept in all runs, counts {counts_of(datasets)}")
    final = datasets["W"]["correlation"].sel(norm=OWN_NORM["W"], seed=shared).isel(snapshot=-1).values
    return shared[np.lexsort((shared, final))]


def _summary(one: xarray.Dataset, own: str, drawn: int, key: PRNGKeyArray) -> xarray.Dataset:
    final = one["correlation"].isel(snapshot=-1)
    of_own = final.sel(norm=own)
    estimates = variables(
        {
            "final": (("norm",), bootstrap(final.values, key)),
            "parallel": ((), proportion(of_own.values > PARALLEL)),
        }
    )
    off = 1 - one["correlation"].sel(norm=own).values
    quantiles = {f"off_{q}": (("snapshot",), np.quantile(off, q / 100, axis=0)) for q in (10, 50, 90)}
    grows = growth(lengths(one), jax.random.fold_in(key, _GROWTH))
    place = float((of_own < of_own.sel(seed=drawn)).mean())
    return one.sel(seed=drawn).assign(estimates | quantiles).assign(dict(grows.data_vars)).assign_attrs(place=place)


def _judge(run: str, summaries: Datasets) -> Judgement:
    """Along the exact gradient direction nearly all paths must end parallel to their rays, else most.

    The statement is about the limit, which the published rule does not reach: it makes few steps, and it stalls by
    rounding. As corrected, most paths must be parallel under both rules.
    """
    runs = {run + rule: summaries[run + rule] for rule in RULES}
    own = OWN_NORM[run]
    ends = {name: f"step {int(one['snapshot'].values[-1])}" for name, one in runs.items()}
    finals = {
        f"{name}: {norm} at {ends[name]}": number(one.sel(norm=norm), "final")
        for name, one in runs.items()
        for norm in one["norm"].values
    }
    shares = {f"{name}: share of seeds above {PARALLEL}": number(one, "parallel") for name, one in runs.items()}
    numbers = finals | shares
    expected = {f"{name}: {own} at {end}": 1.0 for name, end in ends.items()}
    said = {name: RULES[name.removeprefix(run)] for name in runs}
    shown = " and ".join(
        f"{share.mean:.0%} by {rule} ({end})"
        for share, rule, end in zip(shares.values(), said.values(), ends.values(), strict=True)
    )
    asked = {"": _MOST, EXACT: _ALL}
    return Judgement(
        numbers=numbers,
        expected=expected,
        counts=counts_of(runs),
        stated=tuple(
            above(label, share, asked[name.removeprefix(run)])
            for (label, share), name in zip(shares.items(), runs, strict=True)
        ),
        corrected=tuple(above(label, share, _MOST) for label, share in shares.items()),
        correction=f"at that step most but not nearly all of the paths are parallel to their rays: {shown}.",
        undecided=next((reason for one in runs.values() if (reason := too_little(one))), ""),
        remark=" ".join(_motion(one, _PATHS[run], said[name]) for name, one in runs.items()),
    )


def _motion(one: xarray.Dataset, W: str, rule: str) -> str:
    """Say whether the paths still move outwards at the end."""
    since, until, grows = int(one["since"]), int(one["until"]), number(one, "growth")
    found = below("growth", grows, AT_REST).outcome
    said = {
        Outcome.MET: "the paths no longer grow, so their direction is that of their end points",
        Outcome.BROKEN: "the paths still move outwards",
        Outcome.UNCLEAR: "it is not clear whether the paths still move outwards",
    }[found]
    return f"By {rule}, from step {since} to {until}, ||{W} Z|| grows like k^{grows.mean:.2g}: {said}."


def _claims(tokens: int) -> tuple[Claim, ...]:
    """Return the claims on the instances with this number of tokens per input."""
    return tuple(
        Claim(
            f"trajectories-{tokens}:{run}",
            Source("arXiv 2308.16898", "trajectories figure (figure 1; the figure of the poster)", Setting.EXACT),
            f"The trajectories {_PATHS[run]} z_i of gradient descent converge towards the directions to which the "
            f"solution of the {_SOLUTIONS[run]} maps z_i.",
            partial(_judge, run),
            partial(examples.of_run, run, tokens),
        )
        for run in OWN_NORM
    )


CLAIMS = (*_claims(3), *_claims(5))
