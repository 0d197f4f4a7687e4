"""From which dimension d can random tokens be selected?"""

from __future__ import annotations

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import svm
from jaxattn.experiments.max_margin.separation import separate
from jaxattn.study.claims import Datasets, Experiment, Judgement, Judgements, Setting, Source, claim, too_few, total
from jaxattn.study.claims.criteria import Number, above, below
from jaxattn.study.estimates import estimated, exact, number, share
from jaxattn.study.style import page, palette
from jaxattn.svm import Status
from jaxattn.svm.certificate import tolerance_of

_COVERED = "d >= max(T - 1, n)"


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Solve every problem of a `Drawing` in the Frobenius norm, by `separate`: feasibility depends on no norm."""
    return separate(record, norms=(svm.frobenius,), solver=solver)


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate the shares of feasible problems.

    Returns:
        Over d the share of `feasible` problems; how many are certified `infeasible` and how many are `undecided`; the
        largest `violation` of a constraint by a certified solution. `promised` is the share of feasible problems in the
        dimensions that the theorem covers, if any were drawn, and `always` the smallest d from which all are feasible,
        NaN if there is none. Attributes in addition: `seeds`, and `enough`, the dimension of the theorem.
    """
    of_norm, n, T = run.sel(norm="frobenius", drop=True), run.attrs["n"], run.attrs["T"]
    status, d, enough = of_norm["status"], run["d"].values, max(T - 1, n)
    feasible = status == Status.OPTIMAL
    covered = feasible.values[:, d >= enough].ravel()
    always = [dimension for dimension in d if feasible.values[:, d >= dimension].all()]
    return estimated(
        run,
        key,
        feasible=share(feasible),
        **({"promised": share(xarray.DataArray(covered, dims="seed"))} if covered.size else {}),
        undecided=exact((status == Status.NOT_CONVERGED).sum("seed")),
        infeasible=exact((status == Status.INFEASIBLE).sum("seed")),
        violation=exact(of_norm["violation"].where(feasible, 0).max("seed")),
        always=exact(float(always[0]) if always else np.nan),
    ).assign_attrs(enough=enough, seeds=run.sizes["seed"])


@claim(
    "feasibility:theorem",
    Source("arXiv 2308.16898", "theorem on the feasibility of Att-SVM", Setting.OURS),
    "Any choice of tokens can be selected in problems in general position if d >= max(T - 1, n).",
)
def _theorem(runs: Datasets) -> Judgement:
    numbers, expected = {}, {}
    for name, run in runs.items():
        if "promised" in run:
            label = f"{name}, share at d >= {run.attrs['enough']}"
            expected[label], numbers[label] = 1.0, number(run, "promised")
        numbers[f"{name}, smallest d from which all are feasible"] = float(run["always"])
    covered = [run.isel(d=run["d"].values >= run.attrs["enough"]) for run in runs.values()]
    infeasible, open_ones = (sum(int(run[name].sum()) for run in covered) for name in ("infeasible", "undecided"))
    problems = sum(run.sizes["d"] * run.attrs["seeds"] for run in covered)
    if not problems:
        return Judgement.withheld("No problem was drawn at d >= max(T - 1, n).")
    undecided = too_few(min(run.attrs["seeds"] for run in covered))
    if open_ones:
        undecided = f"{open_ones} of {problems} problems at {_COVERED} could not be decided."
    if infeasible:
        # One counterexample is enough, however few problems there are.
        undecided, remark = "", f"{infeasible} of {problems} problems at {_COVERED} are certified infeasible."
    else:
        earlier = sum(bool(run["always"] < run.attrs["enough"]) for run in covered)
        remark = (
            f"All {problems} problems at {_COVERED} have a certified solution. The condition is only sufficient: in "
            f"{earlier} of {len(covered)} sizes (n, T) all random tokens can be selected from a smaller d."
        )
    # Undecided problems may be infeasible or feasible.
    least, most = ((problems - infeasible - counted) / problems for counted in (open_ones, 0))
    violation = max(float(run["violation"].max()) for run in covered if run.sizes["d"])
    allowed = tolerance_of(np.result_type(*(run["violation"] for run in covered), np.float32)).violation
    return Judgement(
        (
            above(f"share of feasible problems at {_COVERED}", Number(least, least, most), 1.0),
            below("largest constraint violation of their solutions", Number.exact(violation), allowed),
        ),
        remark=remark,
        numbers=numbers,
        expected=expected,
        undecided=undecided,
    )


# One for each number of inputs, in increasing order, so that they are told apart in grey too.
_MARKERS = "os^"


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw one panel per number of tokens T, one curve per number of inputs n, with 95 % intervals.

    Above each curve's panel a bar shows the dimensions in which the theorem promises a share of 1.
    """
    inputs, sizes = (sorted({run.attrs[name] for run in summaries.values()}) for name in ("n", "T"))
    looks = dict(zip(inputs, zip(palette.ramp(len(inputs)), _MARKERS, strict=False), strict=False))
    counts = total(summaries)
    with page.style():
        figure = page.full(3.4)
        figure.suptitle(
            "Any choice of tokens can be selected if $d \\geq \\max(T - 1, n)$: "
            f"{judgements['feasibility:theorem'].verdict}"
        )
        panels = figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
        for axes, T, letter in zip(panels, sizes, "abc", strict=False):
            runs = [run for run in summaries.values() if run.attrs["T"] == T]
            _panel(axes, runs, looks)
            always, promised = np.max([run["always"] for run in runs]), max(run.attrs["enough"] for run in runs)
            title = f"({letter}) $T = {T}$: all feasible from $d = {always:.0f}$, promised from {promised}"
            axes.set(xlabel="dimension $d$", title=title)
        panels[0].set_ylabel("share of feasible problems")
        panels[-1].legend(loc="lower right", title="95 % intervals")
        page.note(
            figure,
            f"{counts['attempted']:,} problems, {min(run.attrs['seeds'] for run in summaries.values())} per point: "
            f"{counts['kept']:,} with a certified solution, {counts['infeasible']:,} certified infeasible, "
            f"{counts['unsolved']:,} unsolved, which count as not feasible. Bars above 1: the dimensions "
            "for which the theorem promises a share of 1.",
        )
    return figure


def _panel(axes: Axes, runs: list[xarray.Dataset], looks: dict[int, tuple[str, str]]) -> None:
    first, last = float(runs[0]["d"].min()), float(runs[0]["d"].max())
    for k, run in enumerate(runs):
        colour, marker = looks[run.attrs["n"]]
        enough, shares = float(run.attrs["enough"]), (run[f"feasible{part}"].values for part in ("", "_low", "_high"))
        label = f"$n = {run.attrs['n']}$"
        page.bars(axes, run["d"].values, *shares, color=colour, marker=marker, label=label)
        if enough <= last:
            height = 1.07 + 0.05 * k
            axes.plot([enough, last + 0.4], [height, height], color=colour, linewidth=3)
            axes.plot(enough, height, color=colour, marker=marker, markersize=5)
    axes.set(ylim=(-0.03, 1.1 + 0.05 * len(runs)), xlim=(first - 0.4, last + 0.4))
    axes.set_yticks(np.linspace(0, 1, 6))


EXPERIMENT = Experiment(measure, claims=(_theorem,), estimate=estimate, draw=draw)
