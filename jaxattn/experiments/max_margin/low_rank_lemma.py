"""Is the rank of the SVM solutions at most n, and do their rows lie in the span of the queries?"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.max_margin.separation import separate
from jaxattn.study.claims import Claim, Datasets, Experiment, Judgement, Judgements, Needs, Setting, Source, too_few
from jaxattn.study.claims.criteria import Number, below
from jaxattn.study.estimates import estimated, mean, number
from jaxattn.study.style import page
from jaxattn.study.style.page import told
from jaxattn.study.style.table import Table
from jaxattn.svm import Status

# This package's solver, and an external one that does not use the span of the queries.
_OWN, _EXTERNAL = "n=3 T=8", "n=3 T=8 by CLARABEL"
# Thresholds for rounding error, and for the accuracy of an external solution with a relative gap certified to 1e-8.
_ROUNDING, _ACCURACY = 1e-13, 1e-6
_PARTS = ("beyond", "outside")


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Compute how far every kept solution is from rank n and from the span of the queries.

    Returns:
        For each run, with axes `seed` and `norm`, for the kept problems: `beyond`, singular value number n + 1 over
        the largest; `outside`, `||W (I - P_Z)||_F / ||W||_F` with the projector on the span of the queries; and `gap`,
        the certified relative gap. If there are any, also the means of the first two for each norm, under its name,
        (part).
    """
    return {name: _summary(run, key) for name, run in runs.items()}


def _summary(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    kept = run.isel(d=0)
    kept = kept.isel(seed=(kept["status"].values == Status.OPTIMAL).all(axis=1))
    W, values, n = kept["W_svm"].values, kept["singular_values"].values, run.attrs["n"]
    basis, _ = np.linalg.qr(np.swapaxes(kept["Z"].values, 1, 2))
    outside = W - np.einsum("snde,sek,sfk->sndf", W, basis, basis)
    by_norm = ("seed", "norm")
    summary = xarray.Dataset(
        {
            "beyond": (by_norm, values[..., n] / values[..., 0]),
            "outside": (by_norm, np.linalg.norm(outside, axis=(2, 3)) / np.linalg.norm(W, axis=(2, 3))),
            "gap": (by_norm, np.abs(kept["gap"].values)),
        },
        {"seed": kept["seed"].values, "norm": kept["norm"].values, "d": int(kept["d"])},
        run.attrs,
    )
    if not summary.sizes["seed"]:
        return summary
    parts = summary[[*_PARTS]].to_array("part")
    means = {str(norm): mean(parts.sel(norm=norm, drop=True)) for norm in summary["norm"].values}
    return summary.assign(estimated(run, key, **means).data_vars)


def _judge(norm: str, runs: Datasets) -> Judgement:
    own, external = (runs[name].sel(norm=norm) for name in (_OWN, _EXTERNAL))
    n, d, solver = own.attrs["n"], int(own["d"]), external.attrs["solver"]
    labels = {"beyond": f"sigma_{n + 1}/sigma_1", "outside": "||W(I - P_Z)||_F/||W||_F"}
    numbers: dict[str, Number | float] = {}
    for part, label in labels.items():
        if own.sizes["seed"]:
            numbers[f"{label}, d={d}"] = number(own, norm, part=part)
        numbers[f"{label}, d={d}, largest"] = _largest(own, part)
        numbers[f"{label}, d={int(external['d'])}, largest, by {solver}"] = _largest(external, part)
    # ||W - W*||^2 <= ||W||^2 - ||W*||^2, and ||W*|| is at least the dual value.
    distance = float(np.sqrt(2 * _largest(own, "gap")))
    remark = "The solver builds W from the queries, but its certificate covers all of R^(d x d)"
    if norm == "frobenius":
        numbers[f"distance to the minimizer over ||W||_F, d={d}, at most"] = distance
        remark += f". There the minimizer is unique, and it lies within {distance:.2g} ||W||_F of W."
    else:
        remark += f": no feasible matrix has a norm smaller by more than a relative {_largest(own, 'gap'):.2g}."
    by_external = "" if external.sizes["seed"] else "No solution by an external solver was certified."
    return Judgement(
        [
            below(f"largest {label}{by}", Number.exact(_largest(run, part)), threshold)
            for run, by, threshold in ((own, "", _ROUNDING), (external, f", by {solver},", _ACCURACY))
            for part, label in labels.items()
        ],
        remark=f"{remark} For solutions on the full matrix by {solver}, which does not use the span, both are at most "
        f"{max(_largest(external, part) for part in _PARTS):.2g}.",
        numbers=numbers,
        expected={f"{label}, d={d}": 0.0 for label in labels.values()},
        undecided=too_few(own.sizes["seed"]) or by_external,
    )


def _largest(run: xarray.Dataset, part: str) -> float:
    return float(run[part].max()) if run.sizes["seed"] else np.nan


_CLAIMS = tuple(
    Claim(
        f"low-rank-lemma:{norm}",
        Source("arXiv 2308.16898", "lemma on the rank of the SVM solutions", Setting.OURS),
        f"The {norm} solution has rank at most n, and its rows lie in the span of the queries.",
        partial(_judge, norm),
        # Those of the two solvers are counted differently.
        Needs(seeds=0),
    )
    for norm in ("frobenius", "nuclear")
)


def table(summaries: Datasets, judgements: Judgements) -> Table:
    """Return one row per norm and solver."""
    first = next(iter(summaries.values()))
    n = first.attrs["n"]
    heads = (
        *("norm", "solver", "$d$", "problems kept"),
        rf"largest $\sigma_{{{n + 1}}}/\sigma_1$",
        r"largest $\lVert W(I-P_Z)\rVert_F/\lVert W\rVert_F$",
        "largest certified gap",
        "threshold of both ratios",
    )
    rows = tuple(_row(run, norm) for norm in map(str, first["norm"].values) for run in summaries.values())
    note = (
        r"$\sigma_k$ is the $k$-th singular value of a solution $W$, and $P_Z$ projects on the span of the queries. "
        f"With $n = {n}$ inputs, the lemma makes both ratios 0. jaxattn builds $W$ from the queries; its threshold "
        "allows rounding error. An external solver does not use the span of the queries; its threshold allows its "
        "accuracy. The certified gap is relative. A problem is kept if its solutions in both norms are certified "
        f"optimal. {told(summaries, 'problems')}"
    )
    return Table(heads, rows, note)


def _row(run: xarray.Dataset, norm: str) -> tuple[str, ...]:
    of_norm = run.sel(norm=norm)
    return (
        page.NORMS[norm],
        run.attrs["solver"] or "jaxattn",
        str(int(run["d"])),
        f"{run.attrs['kept']} of {run.attrs['attempted']}",
        *(page.power(_largest(of_norm, part)) for part in (*_PARTS, "gap")),
        page.power(_ACCURACY if run.attrs["solver"] else _ROUNDING),
    )


EXPERIMENT = Experiment(separate, claims=_CLAIMS, summarize=summarize, table=table)
