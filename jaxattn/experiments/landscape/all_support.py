"""Is any start good enough if all tokens are support vectors? One instance in the plane says no, and why."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import checks, svm
from jaxattn.data import draws
from jaxattn.descent import smoothness
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.study.claims import TRAINED, Datasets, Experiment, Judgement, Judgements, Setting, Source, claim, too_few
from jaxattn.study.claims.criteria import Number, above, below, between
from jaxattn.study.estimates import estimated, exact, mean, number, quantiles, share, undefined
from jaxattn.study.measuring.optimum import optimum
from jaxattn.study.style import page, palette

_THEOREM = Source(
    "withdrawn ICLR 2024 submission on attention and SVM in causal language modelling",
    "Theorem 3.14, Assumption 3.10 (all tokens are support vectors; Assumption B of 2308.16898)",
    Setting.PROXY,
)
_LAW = Source("jaxattn", "which starts leave an input behind", Setting.OURS)
_PLAIN, _EXACT = "plain", "exact direction"
# Fixed beforehand: the exponent of the pull with its tolerance, the share of starts that the law must predict, and the
# largest 1 - cos and fewest starts in front.
_EXPONENT, _AROUND, _PREDICTED, _CLOSE, _FEW = -2.0, 0.2, 0.95, 0.02, 8
# The law is derived for inputs whose margins are large; it is tested where both are at least this at the start.
_LARGE = 2.0


def opposed(key: PRNGKeyArray) -> Problem:
    """Return two inputs of two tokens with the query e_1, optimal tokens (-2, 1) and (1, 0), others 0, and v = (1, 5).

    Both tokens are support vectors of the solution, whose first column is (1, 3). Nothing is random.
    """
    del key
    X = jnp.array([[[-2.0, 1.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]]])
    return Problem(X=X, Z=jnp.tile(jnp.array([1.0, 0.0]), (2, 1)), Y=jnp.ones(2), v=jnp.array([1.0, 5.0]))


def in_square(key: PRNGKeyArray, d: int, reach: float = 4.0) -> Float[Array, "d d"]:
    """Draw the first column of W from uniform(-reach, reach); the others, which no query reads, are 0.

    Raises:
        ValueError: a reach that is not positive and finite.
    """
    w = draws.uniform(key, d, 1, bound=checks.positive("reach", reach))
    return jnp.pad(w, ((0, 0), (0, d - 1)))


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Measure the margins of the two inputs of a `Training` of W, and how strongly each pulls on W.

    Returns:
        For every kept seed: `start`, the first column of W; the `margin_start` of each input, and `margin` at the
        snapshots; `pull_start` and `pull`, the logarithm of the size of its part of the gradient over that of its
        token's difference and query; `off`, 1 - cos of W and the solution; `gram`, the inner products of the rows of
        the max-margin problem; and `bound`, the smoothness constant L.
    """
    optima = optimum(record, solver)
    X, Z, Y, v = (optima.of(record[name]) for name in ("X", "Z", "Y", "v"))
    seeds, inputs = np.arange(len(X))[:, None], np.arange(X.shape[1])
    optimal = np.asarray(optima.alpha)
    best, other = X[seeds, inputs, optimal], X[seeds, inputs, 1 - optimal]
    rows = np.einsum("sid,sie->side", best - other, Z)
    score, gap = np.einsum("sid,sd->si", other, v), np.einsum("sid,sd->si", best - other, v)
    W = {"_start": optima.of(record["W_initial"])[:, None], "": optima.of(record["W_snapshots"])}
    margin = {part: np.einsum("side,skde->ski", rows, of) for part, of in W.items()}
    pull = {part: _pull(a, *(each[:, None] for each in (score, gap, Y))) for part, a in margin.items()}
    lengths = np.linalg.norm(W[""], axis=(2, 3)) * np.linalg.norm(optima.W, axis=(1, 2))[:, None]
    off = 1 - np.einsum("skde,sde->sk", W[""], optima.W) / lengths
    return xarray.Dataset(
        {
            "start": (("seed", "coordinate"), W["_start"][:, 0, :, 0]),
            "margin_start": (("seed", "input"), margin["_start"][:, 0]),
            "margin": (("seed", "snapshot", "input"), margin[""]),
            "pull_start": (("seed", "input"), pull["_start"][:, 0]),
            "pull": (("seed", "snapshot", "input"), pull[""]),
            "off": (("seed", "snapshot"), off),
            "gram": (("seed", "input", "second"), np.einsum("side,sjde->sij", rows, rows)),
            "bound": (("seed",), batch.over_seeds(smoothness.bound, optima.problems)),
        },
        {"seed": optima.of(record["seed"]), "snapshot": record["snapshot"].values},
        optima.counts,
    )


def _pull(margin: np.ndarray, score: np.ndarray, gap: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Return log(-loss'(m) gap p (1 - p)) for the logistic loss, where p is the optimal token's probability."""
    p = np.exp(-np.logaddexp(0, -margin))
    return -np.logaddexp(0, Y * (score + gap * p)) + np.log(gap) - np.logaddexp(0, margin) - np.logaddexp(0, -margin)


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate which starts leave an input behind, whether the law foretells it, and how the pull falls.

    A start leaves an input behind if the margin of one is negative at the end, and less than a decade of steps before.
    The law applies if one margin is at least 2 and the other at most -2. It says that an input stays behind if the sum
    of the two pulls, each times its row's inner product with the sum of the rows, is negative, and this inner product
    is negative for the input in front.

    Returns:
        Whether each start is `behind`, in `front` (both margins positive at the start), `told` (the law applies) and
        `foretold` (it says behind); the share of right predictions, `predicted`; the `exponent` of the pull of the
        input left behind and quantiles of `fall`, the logarithm of this pull over its first value; `close`, the mean of
        1 - cos at the end of the starts in front; the step size `within` 1 / L; and counts.
    """
    steps, last = run["snapshot"].values, run["margin"].isel(snapshot=-1, drop=True)
    decade = int(np.flatnonzero(steps * 10 >= steps[-1])[0])
    worst = last.argmin("input")
    end, before = (run["margin"].isel(snapshot=k, input=worst, drop=True) for k in (-1, decade))
    behind = (end < 0) & (end < before)
    front = (run["margin_start"] > 0).all("input")
    ahead, late = run["margin_start"].max("input"), run["margin_start"].min("input")
    told = (ahead >= _LARGE) & (late <= -_LARGE)
    grown = run["gram"].sum("second")
    relative = grown.copy(data=np.exp(run["pull_start"] - run["pull_start"].max("input")))
    of_ahead = grown.isel(input=run["margin_start"].argmax("input"), drop=True)
    foretold = ((relative * grown).sum("input") < 0) & (of_ahead < 0)
    # In logarithms, as pulls along the exact direction are too small for a number.
    fall = run["pull"].isel(input=worst, drop=True) - run["pull_start"].isel(input=worst, drop=True)
    slope = np.polyfit(np.log(steps[decade:]), fall.values[:, decade:].T, 1)[0]
    left, ready = (int(those.sum()) for those in (behind, front))
    estimates = estimated(
        run,
        key,
        predicted=share((behind == foretold).isel(seed=told.values)) if told.any() else undefined(),
        exponent=mean(end.copy(data=slope).isel(seed=behind.values)) if left > 1 else undefined(),
        close=mean(run["off"].isel(seed=front.values, snapshot=-1, drop=True)) if ready > 1 else undefined(),
        within=exact(run.attrs["optimizer.step_size"] * run["bound"].max()),
        left=exact(left),
        ready=exact(ready),
        failed=exact((behind & front).sum()),
        tested=exact(told.sum()),
    )
    if left > 1:
        curves = estimated(run, key, fall=quantiles(fall.isel(seed=behind.values), 10, 50, 90))
        estimates = estimates.assign(curves.data_vars)
    of_seed = {"behind": behind, "front": front, "told": told, "foretold": foretold, "start": run["start"]}
    return estimates.assign({name: (values.dims, values.values) for name, values in of_seed.items()})


@claim(
    "all-support:any",
    _THEOREM,
    "If all tokens are support vectors, descent with a step of at most 1 / L converges in direction to the hard-margin "
    "solution from any start.",
    needs=TRAINED,
)
def _any(runs: Datasets) -> Judgement:
    plain, direction = runs[_PLAIN], runs[_EXACT]
    within = float(plain["within"])
    left = {f"starts that leave an input behind, {name}": number(run, "left") for name, run in runs.items()}
    return Judgement(
        [below(label, count, 0) for label, count in left.items()],
        remark=f"Of {int(plain.attrs['kept'])} starts. The margin of the input left behind is negative at the end and "
        f"still falls. Plain steps are {within:.2g} / L; {int(direction.attrs['steps'])} steps along the exact "
        "gradient direction take the same path further. Both tokens are support vectors: the solution has margin 1 at "
        "each.",
        numbers=left,
        expected=dict.fromkeys(left, 0.0),
        undecided=f"A plain step is {within:.3g} / L, but the claim is about 1 / L." if within > 1 else "",
    )


@claim(
    "all-support:pull",
    _LAW,
    "The pull of an input that is left behind falls like t^-2, so that all its pulls together move W by a finite "
    "amount.",
    needs=TRAINED,
)
def _falls(runs: Datasets) -> Judgement:
    plain = runs[_PLAIN]
    label = "exponent of t in the pull of the input left behind, last decade, plain steps"
    return Judgement(
        [between(label, number(plain, "exponent"), _EXPONENT - _AROUND, _EXPONENT + _AROUND)],
        remark="The input in front has margin log t, so that its pull falls like 1 / t. Its row (1, 0) has the inner "
        "product -2 with the row (-2, 1) of the other, whose margin therefore falls like -2 log t.",
        expected={label: _EXPONENT},
        undecided=too_few(int(plain["left"]), _FEW),
    )


@claim(
    "all-support:law",
    _LAW,
    "With two inputs, one in front and one behind, the latter stays behind just where its pull, at the start, is too "
    "small beside that of the former (here below a third of it).",
    needs=TRAINED,
)
def _foretold(runs: Datasets) -> Judgement:
    direction = runs[_EXACT]
    label = "share of starts whose end the law foretells, exact direction"
    return Judgement(
        [above(label, number(direction, "predicted"), _PREDICTED)],
        remark="Let G be the inner products of the rows, and r the pull of the input behind over that of the other. "
        "While the margins are large, log r grows at a rate proportional to r (G11 + G12) + G22 + G12, where 1 is the "
        "input behind. If this is negative at the start, and G22 + G12 too, r falls for ever. If neither row has a "
        "negative inner product with the sum of both, this never happens, and any start is good enough. The law is "
        f"tested at the {int(direction['tested'])} starts with one margin of at least {_LARGE:g} and one of at most "
        f"-{_LARGE:g}.",
        expected={label: 1.0},
        undecided=too_few(int(direction["tested"])),
    )


@claim(
    "all-support:front",
    _LAW,
    "From starts at which no optimal token is behind, W converges in direction to the hard-margin solution.",
    needs=TRAINED,
)
def _front(runs: Datasets) -> Judgement:
    direction = runs[_EXACT]
    failed = "starts in front that leave an input behind, exact direction"
    label = "1 - cos at the end, starts in front, exact direction"
    return Judgement(
        [below(failed, Number.exact(float(direction["failed"])), 0), below(label, number(direction, "close"), _CLOSE)],
        remark=f"{int(direction['ready'])} starts have positive margins only.",
        expected={label: 0.0},
        undecided=too_few(int(direction["ready"]), _FEW),
    )


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw which starts leave an input behind, and how the pull of this input falls."""
    plain, direction = summaries[_PLAIN], summaries[_EXACT]
    with page.style():
        figure = page.full(3.3)
        left, right = figure.subplots(1, 2)
        _starts(left, direction)
        left.set_title(f"(a) {int(direction['left'])} of {direction.sizes['seed']} starts leave an input behind")
        if "fall_50" in plain:
            steps = plain["snapshot"].values
            band = (np.exp(plain[f"fall_{q}"].values) for q in (50, 10, 90))
            page.band(right, steps, *band, color=palette.WINE, label="median, 10th to 90th percentile")
            late = steps * 10 >= steps[-1]
            guide = np.exp(float(plain["fall_50"][-1])) * (steps[late] / steps[-1]) ** _EXPONENT
            right.plot(steps[late], 3 * guide, color=palette.INK, linewidth=0.7, linestyle=":", label="$k^{-2}$")
            right.legend(loc="lower left")
        right.set(xscale="log", yscale="log", xlabel="plain steps $k$", ylabel="pull of that input / its first pull")
        right.set_title(f"(b) its pull falls like $k^{{{float(plain['exponent']):.2f}}}$")
        verdict = judgements["all-support:any"].verdict
        figure.suptitle(f"Convergence from any start if all tokens are support vectors: {verdict}")
        page.add_counts(figure, summaries, "(a): $w = W z$ at the start; arrow: the solution.", "starts")
    return figure


def _starts(axes: Axes, run: xarray.Dataset) -> None:
    x, y = run["start"].values.T
    told, behind = run["told"].values, run["behind"].values
    wrong = told & (run["foretold"].values != behind)
    for there, marker, label, look in (
        (behind, "x", "one is left behind", {"color": palette.WINE, "markersize": 2.5}),
        (~behind, "o", "both are served", {"color": palette.TEAL, "markersize": 2.5}),
        (told, ".", "the law applies", {"color": palette.INK, "markersize": 0.8}),
        (wrong, "s", "and is wrong", {"color": palette.INK, "markersize": 5, "markerfacecolor": "none"}),
    ):
        axes.plot(x[there], y[there], marker, linewidth=0, label=label, **look)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handletextpad=0.1)
    reach = float(np.abs(run["start"]).max())
    arrow = {"arrowstyle": "-|>", "color": palette.INK, "linewidth": 0.9}
    axes.annotate("", (reach / 3, reach), (0, 0), arrowprops=arrow)
    axes.set(xlabel="$w_1$ at the start", ylabel="$w_2$ at the start", aspect="equal")
    axes.set(xlim=(-1.1 * reach, 1.1 * reach), ylim=(-1.1 * reach, 1.1 * reach))


EXPERIMENT = Experiment(measure, claims=(_any, _falls, _foretold, _front), estimate=estimate, draw=draw)
