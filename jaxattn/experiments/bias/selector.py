"""Does a selector with an entropy penalty, Gumbel samples, heads or positions obey the SVM that attention obeys?

A machine-made summary ascribes this selector to 2308.16898. The rules below were fixed before training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol, cast

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import bias, models, svm, tokens
from jaxattn.experiments.bias import ratios
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.claims import TRAINED, Claim, Datasets, Experiment, Judgement, Judgements, counts_of
from jaxattn.study.claims.claim import Setting, Source
from jaxattn.study.claims.criteria import above
from jaxattn.study.estimates import estimated, exact, mean, number
from jaxattn.study.measuring.ranked import alone, model_of, ranked, to_dataset
from jaxattn.study.settings.parameters import weights_of
from jaxattn.study.style import page, palette

_SOURCE = Source("a machine-made summary of arXiv 2308.16898", "not in the paper", Setting.OURS)
# The selectors, and for every changed run the one from the same start without the change.
_ENTROPY, _GUMBEL = ("entropy 0.01", "entropy 0.1", "entropy 1"), ("Gumbel",)
_PLAIN, _RANDOM, _HEADS = "plain", "random start", "two heads"
_ROTARY, _ONE_HOT = "rotary", "one-hot positions"
_BASES = dict.fromkeys((*_ENTROPY, *_GUMBEL, _ROTARY, _ONE_HOT), _PLAIN) | {_HEADS: _RANDOM}
# The mean share of inputs with equal tokens that counts as the same tokens; the step from which the margin ratios of
# two runs are compared, snapshot by snapshot (eight per decade); and the difference of log10(1 - ratio) by which a run
# must be nearer to the SVM solution, which is a tenth.
_SAME, _SINCE, _NEARER = 0.95, 100, math.log10(1.1)
# The accuracy of 1 - ratio, given the certified gaps.
_CERTIFIED = 1e-6


class _Linear(Protocol):
    def seen(self, problem: Problem) -> Problem: ...

    def matrix(self, weights: Any) -> Any: ...


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Read the tokens that a selector selects, and compare W with the max-margin problems of these tokens.

    At inference it selects the argmax of its scores, so these are the tokens of largest logit at the end, without
    noise.

    Returns:
        For the kept seeds `margin_ratio`, (seed, norm, snapshot), and `probability`, the smallest over inputs of the
        largest one, (seed, snapshot), as `bias.rank` returns them; `selected`, (seed, input), and `optimal`, the share
        of inputs that select the token of the best score, (seed,). With several heads each is compared with its own
        problem, and the ratios are means over heads; `joint` is the ratio in the joint problem of all, (seed,
        snapshot), in the Frobenius norm, and the inputs of all heads are concatenated.

    Raises:
        ValueError: a solver; else as `ranked`.
    """
    ratios.native(solver)
    model = model_of(record)
    run = _of_heads(record, model.count) if isinstance(model, models.Heads) else _ranked(ranked(record), record)
    selected, optimal = _tokens(record, cast(_Linear, model))
    kept = np.isin(record["seed"].values, run["seed"].values)
    run["selected"] = (("seed", "input"), selected[kept])
    run["optimal"] = (("seed",), (selected == optimal).mean(axis=1)[kept])
    return run


def _ranked(ranking: bias.Ranking, record: xarray.Dataset) -> xarray.Dataset:
    """Return the ratios and probabilities of a ranking at the seeds of a record, with its counts."""
    run = to_dataset(ranking)[ratios.KEPT].assign_coords(seed=record["seed"].values[ranking.seeds])
    run.attrs = ratios.counts(to_dataset(ranking).attrs)
    return run


def _of_heads(record: xarray.Dataset, count: int) -> xarray.Dataset:
    """Return the mean ratios over heads, each for its own problem, and those of the joint problem."""
    joint = _ranked(ranked(record, ("frobenius",)), record)
    parts = [_ranked(ranked(alone(record, str(head))), record) for head in range(count)]
    # Every problem of a seed must be certified; those of single heads are feasible if the joint one is.
    kept = sorted(set.intersection(*(set(part["seed"].values.tolist()) for part in (joint, *parts))))
    heads = [part.sel(seed=kept) for part in parts]
    run = heads[0].assign({name: sum(head[name] for head in heads) / count for name in heads[0].data_vars})
    run["joint"] = joint["margin_ratio"].sel(seed=kept, norm="frobenius", drop=True)
    lost = joint.attrs["kept"] - len(kept)
    return run.assign_attrs(joint.attrs | {"kept": len(kept), "unsolved": joint.attrs["unsolved"] + lost})


def _tokens(record: xarray.Dataset, model: _Linear) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens that the final weights select, and those with the best score, (seed, input) each."""
    arrays = {str(name): record[name].values for name in record.data_vars}
    problems = of_arrays(arrays)
    matrices = np.asarray(model.matrix(weights_of(arrays)))
    selected = np.asarray(batch.over_seeds(tokens.selected, matrices, batch.over_seeds(model.seen, problems)))
    optimal = np.asarray(batch.over_seeds(tokens.optimal, problems))
    return selected, np.tile(optimal, (1, selected.shape[1] // optimal.shape[1]))


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Estimate what each run selects, and which norm it obeys.

    Returns:
        For each run `ratio`, the margin ratio, (norm, snapshot); at the end `probability`, `optimal`, the share of
        inputs that select their optimal token, `joint`, the ratio in the joint problem of several heads, and `lead`,
        the Frobenius ratio minus the largest other one, that of the norm `rival`; `off`, the mean of log10(1 - ratio),
        (snapshot,), in the Frobenius norm. In comparison with the unchanged run from the same start, paired by seed:
        `ahead`, its `off` minus that of this run, (snapshot,), and `gain`, the mean of this from step 100 on; `same`,
        the share of inputs that select the same token. Attributes: `norms`, which `bias.rank` names, and `reason`, why
        it names none.

    Raises:
        ValueError: two runs to compare without a common seed.
    """
    return {name: _estimate(name, runs, jax.random.fold_in(key, k)) for k, name in enumerate(runs)}


def _estimate(name: str, runs: Datasets, key: PRNGKeyArray) -> xarray.Dataset:
    run, last = runs[name], runs[name].isel(snapshot=-1, drop=True)
    ratio = last["margin_ratio"]
    leads = ratio.sel(norm="frobenius", drop=True) - ratio.drop_sel(norm="frobenius")
    rival = str(leads["norm"].values[leads.mean("seed").values.argmin()])
    changed, base = _paired(name, runs)
    ahead = _off(base) - _off(changed)
    since = min(_SINCE, int(run["snapshot"][-1]))
    # Several heads select a token each.
    others = np.tile(base["selected"].values, (1, changed.sizes["input"] // base.sizes["input"]))
    estimates = estimated(
        run,
        key,
        ratio=mean(run["margin_ratio"]),
        probability=mean(last["probability"]),
        lead=mean(leads.sel(norm=rival, drop=True)),
        same=mean((changed["selected"] == others).mean("input")),
        off=mean(_off(run)),
        gain=mean(ahead.sel(snapshot=slice(since, None)).mean("snapshot")),
        optimal=mean(run["optimal"]),
        ahead=exact(ahead.mean("seed")),
        **({"joint": mean(last["joint"])} if "joint" in run else {}),
    )
    decision = ratios.estimate(run, key)
    names = " and ".join(map(str, decision["norm"].values[decision["named"].values]))
    return estimates.assign_attrs(norms=names, reason=decision.attrs["reason"], rival=rival)


def _off(run: xarray.Dataset) -> xarray.DataArray:
    """Return log10(1 - ratio) for the Frobenius margin ratio, (seed, snapshot)."""
    missing = 1 - run["margin_ratio"].sel(norm="frobenius", drop=True)
    return missing.copy(data=np.log10(np.maximum(missing.values, _CERTIFIED)))


def _paired(name: str, runs: Datasets) -> tuple[xarray.Dataset, xarray.Dataset]:
    """Return a run and its unchanged one, itself if there is none, on the seeds that both kept.

    A seed draws the same problem in all runs.
    """
    base = _BASES.get(name, name)
    base = base if base in runs else name
    shared = np.intersect1d(runs[name]["seed"].values, runs[base]["seed"].values)
    if not shared.size:
        raise ValueError(f"selector: expected a seed that {name} and {base} both kept, found none")
    return runs[name].sel(seed=shared), runs[base].sel(seed=shared)


def _same_tokens(names: tuple[str, ...], runs: Datasets) -> Judgement:
    """Nearly all inputs must get the token that training W selects, with a saturated attention."""
    optimal = ", ".join(f"{float(runs[name]['optimal']):.0%} ({name})" for name in (_PLAIN, *names))
    shares, stated = {}, []
    for name in names:
        label = f"{name}: share of inputs with the token that plain training selects"
        shares[label] = number(runs[name], "same")
        stated.append(above(label, shares[label], _SAME))
        # If the softmax is spread out, an argmax is no selection.
        largest = number(runs[name], "probability")
        stated.append(
            above(f"{name}: mean largest probability of the worst input at the end", largest, tokens.SATURATED)
        )
    several, smallest = len(names) > 1, stated[0].value.mean
    return Judgement(
        stated,
        stated[:2] if several else (),
        correction=f"only with the smallest weight, {names[0]}: there {smallest:.1%} of the inputs get the token that "
        "training W without a penalty selects."
        if several
        else "",
        remark="At inference the selector takes the argmax of its scores, x_t^T W z. Each seed has the same problem "
        "as training W from zero without penalty and samples. The token with the best score is selected for "
        f"{optimal} of the inputs.",
        numbers=shares,
        expected=dict.fromkeys(shares, 1.0),
        counts=counts_of({name: runs[name] for name in names}),
    )


def _obeys_frobenius(names: tuple[str, ...], runs: Datasets) -> Judgement:
    """`bias.rank` must name only the Frobenius norm, for every weight."""
    family = {name: runs[name] for name in names}
    ends = {f"{name}: margin ratio, frobenius": _end(run) for name, run in family.items()}
    leads = {f"{name}: frobenius minus {run.attrs['rival']}": number(run, "lead") for name, run in family.items()}
    unsure = {name: reason for name, run in family.items() if (reason := _unsure(run))}
    # One weight for which another norm is obeyed, or none, refutes it, whatever the others leave open.
    refuted = any(run.attrs["norms"] != "frobenius" for name, run in family.items() if name not in unsure)
    verdicts = ", ".join(
        f"{run.attrs['norms'] or run.attrs['reason'] or 'none'} ({name})" for name, run in family.items()
    )
    gains = ", ".join(f"{float(run['gain']):.2g} ({name})" for name, run in family.items())
    return Judgement(
        [
            *(above(f"{label}, at the end", end, bias.CLOSE) for label, end in ends.items()),
            *(above(f"{label}, margin ratios at the end", lead, 0) for label, lead in leads.items()),
        ],
        remark=f"According to bias.rank, among {', '.join(bias.NORMS)}: {verdicts}. Each run is compared with the "
        "problem of the tokens that it selects itself. Decades of 1 - ratio by which it is nearer than plain "
        f"training, at equal steps: {gains}.",
        numbers=ends | leads,
        expected=dict.fromkeys(ends, 1.0),
        undecided="" if refuted else "; ".join(f"{name}: {reason}" for name, reason in unsure.items()),
    )


def _end(run: xarray.Dataset) -> Any:
    return number(run, "ratio", at=-1, norm="frobenius")


def _unsure(run: xarray.Dataset) -> str:
    """Return why it is open whether a run obeys only the Frobenius norm, or nothing if it is decided."""
    norms = run.attrs["norms"].split(" and ")
    tied = "frobenius" in norms and len(norms) > 1
    return run.attrs["reason"] or (f"{run.attrs['norms']} cannot be distinguished" if tied else "")


def _nearer(name: str, changed: str, runs: Datasets) -> Judgement:
    """Compare 1 - margin ratio at equal steps with that without the change, which does not test the statement."""
    run, base = runs[name], _BASES[name]
    ends = {f"margin ratio at the end, {each}": _end(runs[each]) for each in (name, base)}
    if "joint" in run:
        ends[f"margin ratio at the end, {name}, joint problem"] = number(run, "joint")
    label = f"decades of 1 - margin ratio, {base} minus {name}, mean over the snapshots from step {_SINCE}"
    ahead = ", ".join(
        f"{float(run['ahead'].sel(snapshot=step, method='nearest')):+.2g} (step {step})" for step in (100, 1000, 10000)
    )
    return Judgement(
        [above(label, number(run, "gain"), _NEARER)],
        undecided=f"Not testable as stated: {changed}, so the two runs approach the solutions of different problems, "
        "and how fast they do depends on these. A control would be the same change of the problem by random vectors. "
        f"Decades nearer to 1, each for its own problem: {ahead}; a tenth is {_NEARER:.2g}.",
        numbers={label: number(run, "gain"), **ends},
    )


def _claims() -> Iterator[Claim]:
    same = "and read by its argmax at inference, selects the same tokens as gradient descent on the attention weights."
    obeys = "W obeys the Frobenius Att-SVM of its selected tokens."
    selectors = (
        ("entropy", "A softmax selector trained with an entropy penalty", _ENTROPY, "for any weight of the penalty, "),
        ("gumbel", "A selector trained on straight-through Gumbel samples", _GUMBEL, ""),
    )
    for name, training, runs, _ in selectors:
        yield _claim(f"{name}-tokens", f"{training}, {same}", partial(_same_tokens, runs))
    for name, training, runs, weights in selectors:
        statement = f"{training} selects the tokens of an SVM solution: {weights}{obeys}"
        yield _claim(f"{name}-norm", statement, partial(_obeys_frobenius, runs))
    for name, run, what, remark, changed in (
        ("heads", _HEADS, "Several heads", "", "every head has a problem of its own"),
        ("rotary", _ROTARY, "Positions", " (here rotary ones)", "positions turn the keys"),
        (
            "positions",
            _ONE_HOT,
            "Positions",
            " (here unit vectors added to the keys, one per position)",
            "added unit vectors move the keys apart",
        ),
    ):
        statement = f"{what} push attention towards the SVM solution{remark}."
        yield _claim(name, statement, partial(_nearer, run, changed))


def _claim(name: str, statement: str, rule: Callable[[Datasets], Judgement]) -> Claim:
    return Claim(f"selector:{name}", _SOURCE, statement, rule, TRAINED)


# The entropy penalties from light to dark as their weights grow.
_LIGHT, _MIDDLE, _DARK, _ = palette.ramp(4)
_LOOKS: dict[str, dict[str, Any]] = {
    "entropy 0.01": {"color": _LIGHT, "linestyle": (0, (1, 1)), "label": "entropy 0.01"},
    "entropy 0.1": {"color": _MIDDLE, "linestyle": (0, (3, 1)), "label": "entropy 0.1"},
    "entropy 1": {"color": _DARK, "linestyle": (0, (6, 2)), "label": "entropy 1"},
    _PLAIN: {"color": palette.INK, "linestyle": "-", "label": "plain, $W = 0$"},
    "Gumbel": {"color": palette.AMBER, "linestyle": (0, (4, 1, 1, 1)), "label": "Gumbel"},
    _RANDOM: {"color": palette.GUIDE, "linestyle": "--", "label": "plain, random start"},
    _HEADS: {"color": palette.WINE, "linestyle": ":", "label": "two heads, random"},
    _ROTARY: {"color": palette.TEAL, "linestyle": "-.", "label": "rotary, $W = 0$"},
    _ONE_HOT: {"color": palette.ROSE, "linestyle": (0, (5, 1)), "label": "added positions, $W = 0$"},
}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the shares of inputs with the token of plain training, and the margin ratios against the steps."""
    selectors = {name: summaries[name] for name in (*_ENTROPY, *_GUMBEL) if name in summaries}
    with page.style():
        figure = page.full(3.5)
        left, middle, right = figure.subplots(1, 3, width_ratios=(0.8, 1, 1))
        _draw_shares(left, selectors)
        named = sum(run.attrs["norms"] == "frobenius" for run in selectors.values())
        _draw_ratios(middle, (_PLAIN, *selectors), summaries)
        middle.set_title(f"(b) {named} of {len(selectors)} obey\nthe Frobenius SVM")
        _draw_ratios(right, (_PLAIN, _ROTARY, _ONE_HOT, _RANDOM, _HEADS), summaries)
        right.set_title("(c) changed problems,\neach against its own SVM")
        lowest = min(axes.get_ylim()[0] for axes in (middle, right))
        for axes in (middle, right):
            axes.set_ylim(lowest, 3)
        middle.set_ylabel("1 - Frobenius margin ratio")
        page.add_counts(
            figure,
            summaries,
            "Means over the seeds, (b) and (c) of the logarithm, with 95 % intervals. Grey: (a) the share asked for, "
            f"{_SAME:g}; (b), (c) a margin ratio of {bias.CLOSE}. Each ratio is of the run's own tokens and keys; of "
            "two heads it is the mean of each one's own.",
        )
    return figure


def _draw_shares(axes: Axes, selectors: Datasets) -> None:
    """Draw in which share of the inputs each selector selects the token of plain training."""
    for k, (name, run) in enumerate(selectors.items()):
        mean, low, high = number(run, "same")
        bars = [[max(mean - low, 0)], [max(high - mean, 0)]]
        axes.errorbar([k], [mean], bars, fmt="o", color=_LOOKS[name]["color"], markersize=4, capsize=2)
        axes.annotate(f"{mean:.0%}", (k, low), (0, -10), textcoords="offset points", ha="center", fontsize=7)
    axes.axhline(_SAME, color=palette.GUIDE, linewidth=0.8)
    axes.set_xticks(range(len(selectors)), [name.removeprefix("entropy ") for name in selectors], fontsize=7)
    axes.set_xlabel("weight of the entropy penalty")
    axes.set(xlim=(-0.6, len(selectors) - 0.4), ylim=(0, 1.05))
    axes.set_ylabel("inputs with the token of plain training")
    axes.set_title("(a) selectors: the same\ntokens as plain training?")


def _draw_ratios(axes: Axes, names: tuple[str, ...], summaries: Datasets) -> None:
    """Draw how far the margin ratios are from 1."""
    for name in names:
        if name in summaries:
            run = summaries[name]
            off = (10 ** run[part].values for part in ("off", "off_low", "off_high"))
            page.band(axes, run["snapshot"].values, *off, linewidth=1.2, **_LOOKS[name])
    axes.axhline(1 - bias.CLOSE, color=palette.GUIDE, linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="step")
    axes.legend(loc="lower left", handlelength=2.6)


EXPERIMENT = Experiment(measure, claims=tuple(_claims()), summarize=summarize, draw=draw)
