"""Where does training converge with attention to a whole sequence, and with causal attention (2308.16898)?"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import svm, tokens
from jaxattn.parallel import batch
from jaxattn.problem import of_arrays
from jaxattn.statistics import LEAST_SEEDS, bootstrap, proportion, variables
from jaxattn.study.claims import Datasets, Experiment, Judgement, Judgements, claim
from jaxattn.study.claims.claim import TRAINED, Claim, Kind, Needs, Setting, Source
from jaxattn.study.claims.criteria import Criterion, Number, above, below
from jaxattn.study.estimates import estimated, geometric_mean, number
from jaxattn.study.measuring import paths
from jaxattn.study.measuring.comparison import NORMS, compare
from jaxattn.study.measuring.curves import at_steps, curves, named
from jaxattn.study.measuring.growth import AT_REST, growth, lengths
from jaxattn.study.measuring.optimum import optimum
from jaxattn.study.style import page, palette
from jaxattn.study.style.curves import direction_error

_SOURCE = Source("arXiv 2308.16898", "section 7, extension to sequence-to-sequence and causal attention", Setting.OURS)
# W for longer than published, (K, Q) also for longer and with decreasing steps, and the path of W. The runs with causal
# attention have the same names after a prefix.
LONG, FALLING, PATH = "W, exact direction", "KQ, exact direction", "W, regularization path"
PREFIXES = {"sequence": "", "causal": "causal "}
# Folded into the key of a run, which its curves split in two.
_GROWTH, _MARGIN, _LENGTH = 2, 3, 4
# Fixed beforehand: thresholds for a mean correlation, and for a mean probability or a share of seeds; paths that end at
# smaller radii decide nothing.
_CLOSE, _SATURATED, _FAR = 0.99, 0.999, 300.0
# The published optimizer; all others follow the exact gradient direction.
PUBLISHED = "normalized_gd"
_KEPT = ("margin_ratio", "status", "gap", "violation", "correlation", "rank", "probability", "optimal_share", "length")


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run with the SVMs that select its tokens, or a path with those of the optimal tokens.

    The SVMs have a constraint set for each input and position. The record is of a `Training` on `data.sequence` or
    `data.causal`, or of a `Regularization` on them, which has an axis `radius`. A run along the exact gradient
    direction is compared only with the solution of its own norm.

    Returns:
        Of a path what `measuring.paths.measure` does; of a run what `compare` does without its paths and solutions, the
        share of the positions with a choice that select their optimal token, `optimal_share`, and the Frobenius norm of
        the paths, `length`. Attributes: the positions, `inputs`, and the numbers of problems whose optimal tokens one
        SVM separates, `optimal_kept`, or does not, `optimal_infeasible`.
    """
    if "radius" in record.dims:
        return paths.measure(record, solver)
    own = svm.frobenius if "W" in record else svm.nuclear
    compared = compare(record, NORMS if record.attrs["optimizer"] == PUBLISHED else (own,), solver)
    kept = np.isin(record["seed"].values, compared["seed"].values)
    arrays = {str(name): record[name].values for name in record.data_vars}
    right = compared["selected"].values == batch.over_seeds(tokens.optimal, of_arrays(arrays))[kept]
    chooses = record["present"].values[kept].sum(axis=2) > 1 if "present" in record else np.ones_like(right)
    compared["optimal_share"] = (("seed",), (right & chooses).sum(axis=1) / chooses.sum(axis=1))
    compared["length"] = lengths(compared)
    of_optimal = optimum(record, solver).counts
    counts = {f"optimal_{name}": of_optimal[name] for name in ("kept", "infeasible")}
    return compared[list(_KEPT)].assign_attrs(counts, inputs=record.sizes["input"])


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Estimate the curves of all runs over the kept seeds, and what the claims need of their ends.

    The published runs also have the shares of seeds whose SVM is certified, `separated`, or not certified infeasible,
    `separable`, and `optimal_share`; those of (K, Q) have what `growth.growth` returns, and `length`, the geometric
    mean of ||K Q^T Z||; and the one with decreasing steps has `margin`, the final margin ratio.
    """
    summaries = {}
    for attention, attention_key in zip(PREFIXES, jax.random.split(key, len(PREFIXES)), strict=True):
        own = {name: run for name, run in runs.items() if run.attrs["data"] == attention}
        *keys, share_key = jax.random.split(attention_key, len(own) + 1)
        for (name, run), run_key in zip(own.items(), keys, strict=True):
            summaries[name] = _along_path(run, run_key) if "radius" in run.dims else _of_run(run, run_key, share_key)
    return summaries


def _of_run(run: xarray.Dataset, key: PRNGKeyArray, share_key: PRNGKeyArray) -> xarray.Dataset:
    is_factored, is_published = run.attrs["weights"] == "factored", run.attrs["optimizer"] == PUBLISHED
    summary = curves(run, key)
    if is_published:
        status, share_key = run["status"].values, jax.random.fold_in(share_key, int(is_factored))
        shares = {
            "separated": ((), proportion((status == svm.Status.OPTIMAL).all(axis=1))),
            "optimal_share": ((), bootstrap(run["optimal_share"].values, share_key)),
        }
        separable = 1 - (status == svm.Status.INFEASIBLE).any(axis=1).mean()
        summary = summary.assign(variables(shares)).assign(separable=separable)
    if is_factored:
        length = estimated(run, jax.random.fold_in(key, _LENGTH), length=geometric_mean(run["length"]))
        summary = summary.assign(growth(run["length"], jax.random.fold_in(key, _GROWTH))).assign(length)
    if is_factored and not is_published:
        ends = run["margin_ratio"].sel(norm="nuclear").values[:, -1]
        summary = summary.assign(variables({"margin": ((), bootstrap(ends, jax.random.fold_in(key, _MARGIN)))}))
    return summary


def _along_path(path: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate the correlations along a path, and the share of seeds that select all optimal tokens."""
    selected = path["selected"].values.astype(bool)
    estimates = {
        "correlation": (("norm", "radius"), bootstrap(1 - path["off"].values, key)),
        "selected": (("radius",), proportion(selected)),
    }
    missed = {"missed": (("radius",), (~selected).sum(axis=0))}
    return xarray.Dataset(variables(estimates) | missed, path[["norm", "radius"]].coords, path.attrs)


_WITH = {"sequence": "With attention to the whole sequence", "causal": "With causal attention"}
_IDS = {"sequence": "", "causal": "causal-"}


def _on_both(
    name: str, statement: str, needs: Needs = TRAINED, kind: Kind = Kind.FINDING
) -> Callable[[Callable[..., Judgement]], list[Claim]]:
    """Make a rule, of the runs and the prefix of their names, into a claim on each attention."""
    return lambda rule: [
        claim(f"sequence:{_IDS[attention]}{name}", _SOURCE, f"{_WITH[attention]}, {statement}", needs, kind)(
            partial(rule, prefix=prefix)
        )
        for attention, prefix in PREFIXES.items()
    ]


# A check: weights that rank the selected tokens first satisfy the constraints up to scaling.
@_on_both(
    "selection",
    "every position selects one token, and one SVM with a constraint set for each input and position separates the "
    "selected tokens.",
    kind=Kind.CHECK,
)
def _selection(runs: Datasets, prefix: str) -> Judgement:
    numbers, expected = {}, {}
    stated: list[Criterion] = []
    for weights in ("W", "KQ"):
        run = runs[prefix + weights]
        last, probability = int(run["snapshot"][-1]), number(run, "probability", at=-1)
        label = f"{weights}, mean largest probability at step {last}"
        feasible = f"{weights}, share of seeds with a certified SVM of the selected tokens"
        share = f"{weights}, share of positions with a choice that select their optimal token"
        numbers |= {label: probability, feasible: number(run, "separated"), share: number(run, "optimal_share")}
        expected |= {label: 1.0, feasible: 1.0}
        # An SVM that is neither solved nor certified infeasible leaves open whether the tokens can be separated.
        certified = Number(*(float(run[name]) for name in ("separated", "separated", "separable")))
        stated += [above(f"{label},", probability, _SATURATED), above(feasible, certified, _SATURATED)]
    of_W, of_KQ = (float(runs[prefix + weights]["optimal_share"]) for weights in ("W", "KQ"))
    counts = runs[f"{prefix}W"].attrs
    return Judgement(
        stated,
        numbers=numbers,
        expected=expected,
        remark="Final weights that rank the selected tokens first satisfy the constraints up to scaling, so the "
        "selected tokens can always be separated, except for ties. Training W selects the optimal token at "
        f"{of_W:.0%} of the positions with a choice, and training (K, Q) at {of_KQ:.0%}. The optimal tokens of all "
        f"{counts['inputs']} positions can be separated in {counts['optimal_kept']} of {counts['attempted']} problems "
        f"({counts['optimal_infeasible']} certified infeasible).",
    )


@_on_both(
    "W",
    "normalized gradient descent on W converges in direction to the Frobenius solution of the SVM that separates the "
    "selected tokens of every input and position.",
)
def _W(runs: Datasets, prefix: str) -> Judgement:
    published, long = runs[prefix + "W"], runs[prefix + LONG]
    name = f"frobenius, along the exact gradient direction at step {int(long['snapshot'][-1])}"
    end = number(long, "correlation", at=-1, norm="frobenius")
    return Judgement(
        [_ahead(published, "frobenius", "nuclear"), above(f"{name}, correlation", end, _CLOSE)],
        numbers=_correlations(published, "frobenius", "nuclear") | {name: end},
        expected={name: 1.0},
    )


@_on_both(
    "KQ",
    "normalized gradient descent on (K, Q) converges in direction to the nuclear solution of the SVM that separates "
    "the selected tokens of every input and position.",
)
def _KQ(runs: Datasets, prefix: str) -> Judgement:
    published = runs[prefix + "KQ"]
    last = int(published["snapshot"][-1])
    end = number(published, "correlation", at=-1, norm="nuclear")
    return Judgement(
        [_ahead(published, "nuclear", "frobenius"), above(f"nuclear correlation at step {last},", end, _CLOSE)],
        remark=f"This is the direction at step {last}. See the claims on the norm of K Q^T, which a limit requires to "
        "grow, and on descent without a penalty.",
        numbers=_correlations(published, "nuclear", "frobenius"),
        expected={f"nuclear at step {last}": 1.0},
    )


@_on_both(
    "norm-KQ",
    "the norm of K Q^T still grows at the end of normalized gradient descent on (K, Q), as convergence in direction "
    "requires.",
)
def _norm(runs: Datasets, prefix: str) -> Judgement:
    published, long = runs[prefix + "KQ"], runs[prefix + FALLING]
    return Judgement(
        [_grows("published", published)],
        [_grows("decreasing steps", long)],
        correction="it does without a penalty, along the exact gradient direction and with steps that fall like "
        f"k^-1/2, where ||K Q^T Z|| grows like k^{float(long['growth']):.2g}. In the published run it goes like "
        f"k^{float(published['growth']):.2g}, since the penalty on ||K||^2 + ||Q||^2, with coefficient 2.2e-16, "
        "balances the risk (see kq-penalty).",
    )


@_on_both(
    "limit-KQ",
    "descent on (K, Q) without a penalty, along the exact gradient direction and with steps that fall like k^-1/2, "
    "converges in direction to the nuclear solution of the SVM that separates the selected tokens of every input and "
    "position.",
)
def _limit(runs: Datasets, prefix: str) -> Judgement:
    long = runs[prefix + FALLING]
    after = int(long["snapshot"][-1])
    name, margin = f"nuclear correlation at step {after},", f"margin ratio at step {after},"
    close = number(long, "correlation", at=-1, norm="nuclear"), number(long, "margin")
    stated = [above(name, close[0], _CLOSE), above(margin, close[1], _CLOSE), _grows("decreasing steps", long)]
    return Judgement(stated, expected={name: 1.0, margin: 1.0})


def _grows(name: str, run: xarray.Dataset) -> Criterion:
    steps = f"from step {int(run['since'])} to {int(run['until'])}"
    return above(f"p in ||K Q^T Z|| ~ k^p {steps}, {name},", number(run, "growth"), AT_REST)


def _correlations(run: xarray.Dataset, *norms: str) -> dict[str, Number]:
    steps = (200, 1000, int(run["snapshot"][-1]))
    return named({norm: at_steps(run, "correlation", steps, norm=norm) for norm in norms})


def _ahead(run: xarray.Dataset, own: str, other: str) -> Criterion:
    """Ask that a run ends nearer to its own solution than to the other."""
    end, of_other = (number(run, "correlation", at=-1, norm=norm) for norm in (own, other))
    return above(f"{own} minus {other} correlation at step {int(run['snapshot'][-1])},", end.minus(of_other), 0)


@_on_both(
    "path",
    "the regularization path of W converges in direction to the Frobenius solution of the SVM that selects the optimal "
    "token of every input and position.",
    needs=Needs(LEAST_SEEDS),
)
def _path(runs: Datasets, prefix: str) -> Judgement:
    path = runs[prefix + PATH]
    last = float(path["radius"][-1])
    frobenius, nuclear = (number(path, "correlation", norm=norm, radius=last) for norm in ("frobenius", "nuclear"))
    at, missed = f"at R = {last:g}", Number.exact(int(path["missed"][-1]))
    selected = f"share of seeds that select all optimal tokens {at}"
    few = f"Radii up to {last:g} are too small to decide; the published ones end at 1000." if last < _FAR else ""
    return Judgement(
        [
            above(f"frobenius correlation {at}", frobenius, _CLOSE),
            above(f"frobenius minus nuclear correlation {at}", frobenius.minus(nuclear), 0),
            below(f"paths that do not select all optimal tokens {at}", missed, 0),
        ],
        numbers={f"frobenius {at}": frobenius, f"nuclear {at}": nuclear}
        | {selected: number(path, "selected", radius=last)},
        expected={f"frobenius {at}": 1.0, selected: 1.0},
        undecided=few,
        remark="The path of (K, Q) is not followed here: see regularization-path.",
    )


CLAIMS = tuple(itertools.chain(*zip(_selection, _W, _KQ, _norm, _limit, _path, strict=True)))

_DASHES = {"sequence": "-", "causal": "--"}
_WRITTEN = {"sequence": "whole sequence", "causal": "causal"}
_RULES = {"KQ": ("published", palette.GUIDE), FALLING: ("falling steps", palette.TEAL)}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw four panels: training W, (K, Q) as published, (K, Q) with falling steps, and the norms of K Q^T."""
    with page.style():
        figure = page.full(5.2)
        body = page.body(figure)
        ((of_W, of_KQ), (falling, norm)) = body.subplots(2, 2)
        _errors(of_W, summaries, "W", *page.NORMS)
        _errors(of_KQ, summaries, "KQ", *page.NORMS)
        _errors(falling, summaries, FALLING, "nuclear")
        _norms(norm, summaries)
        grows = ", ".join(
            f"$k^{{{float(summaries[prefix + 'KQ']['growth']):z.2f}}}$"
            for prefix in PREFIXES.values()
            if prefix + "KQ" in summaries
        )
        of_W.set_title(f"(a) training $W$: {_verdicts(judgements, 'W')}")
        of_KQ.set_title(f"(b) training $(K, Q)$ as published, nuclear: {_verdicts(judgements, 'KQ')}")
        falling.set_title(f"(c) $(K, Q)$, no penalty, falling steps: {_verdicts(judgements, 'limit-KQ')}")
        norm.set_title(f"(d) the published norm goes like {grows or '-'}: growth {_verdicts(judgements, 'norm-KQ')}")
        of_W.set_ylim(*of_KQ.get_ylim())
        colours = {label: palette.COLOURS[norm] for norm, label in page.NORMS.items()}
        dashes = {_WRITTEN[attention]: dash for attention, dash in _DASHES.items()}
        page.key(body, colours, dashes, loc="outside upper center", ncols=4, title="mean, 95 % interval")
        figure.suptitle(
            f"With a query at every position, $W$ converges to the Frobenius SVM: {_verdicts(judgements, 'W')}; "
            f"$(K, Q)$, without a penalty, to the nuclear SVM: {_verdicts(judgements, 'limit-KQ')}"
        )
        page.add_counts(figure, summaries, "Means over seeds, (d) geometric; bands: 95 % intervals of the mean.")
    return figure


def _verdicts(judgements: Judgements, name: str) -> str:
    """Return the verdicts with attention to the whole sequence and with causal attention, once if they are the same."""
    found = dict.fromkeys(str(judgements[f"sequence:{prefix}{name}"].verdict) for prefix in ("", "causal-"))
    return " / ".join(found)


def _errors(axes: Axes, summaries: Datasets, name: str, *norms: str) -> None:
    """Draw the direction errors of a run with each attention, from the solutions in some norms."""
    for attention, prefix in PREFIXES.items():
        # At size=small there are only some runs.
        if prefix + name in summaries:
            for norm in norms:
                direction_error(axes, summaries[prefix + name], norm, linestyle=_DASHES[attention])
    axes.set(xscale="log", yscale="log", xlabel="step", ylabel="direction error, 1 - cos")


def _norms(axes: Axes, summaries: Datasets) -> None:
    for name, (label, colour) in _RULES.items():
        for attention, prefix in PREFIXES.items():
            if prefix + name in summaries:
                run = summaries[prefix + name]
                curve = (run[part].values for part in ("snapshot", "length", "length_low", "length_high"))
                own = label if attention == "sequence" else None
                page.band(axes, *curve, color=colour, linestyle=_DASHES[attention], label=own)
    axes.set(xscale="log", yscale="log", xlabel="step", ylabel=r"$\|KQ^\top Z\|_F$")
    axes.legend(loc="upper left")


EXPERIMENT = Experiment(measure, claims=CLAIMS, summarize=summarize, draw=draw)
