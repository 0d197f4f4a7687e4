"""The second paper's lemmas on its loss: gradient, slope of the logistic function, basic bounds, on recorded texts.

The letters are the paper's: rows `A_t` of the block `A_j0` of `A1 kron A2`, x the weights, `f = softmax(A_j0 x)`, `h =
A3 y`, g the logistic function, b a label, `alpha = <exp(A_j0 x), 1>`.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, PRNGKeyArray, UInt32
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import svm
from jaxattn.experiments.language import PAPER
from jaxattn.parallel import batch
from jaxattn.study.claims import Datasets, Experiment, Judgement, Judgements, Kind, Setting, Source, claim
from jaxattn.study.claims.criteria import Number, below
from jaxattn.study.estimates import estimated, exact
from jaxattn.study.style import page, palette
from jaxattn.study.style.labels import beside

# The lemma is about any real label.
LABELS = np.array([1.0, -1.0, 0.5, 2.0])
# Distances between two arguments of g', and the number drawn at each distance.
DISTANCES = np.geomspace(1e-3, 30.0, 10)
_CENTRES = 400
# The bounds on all norms, at least 4, and the number of pairs of weights drawn for each.
RADII = np.array([4.0, 6.0])
_PAIRS = 64
# The basic functions, in the order of section 3.3, and how they are written in the figure.
_WRITTEN = {
    "exp(A x)": r"$\exp(Ax)$",
    "alpha": r"$\alpha$",
    "1 / alpha": r"$1/\alpha$",
    "f": "$f$",
    "c": "$c$",
    "diag f": r"$\mathrm{diag}\,f$",
    "f f^T": r"$f f^\top$",
}
BOUNDS = tuple(_WRITTEN)
# Fixed beforehand: what counts as rounding, in relative differences of two forms of a gradient, and in ratios beyond 1.
_SAME, _ROUNDING = 1e-10, 1e-9
# The largest second derivative of the logistic function, hence the sharp constant of Lemma 3.12.
SHARP = 1 / (6 * np.sqrt(3))


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Check the lemmas on sequences of `Texts` of `data.n` words each, at drawn weights and labels; no solver is used.

    Returns:
        For every seed `printed` and `mended`, by label: the relative difference of the gradient from automatic
        differentiation, as printed and with the label inside g'; `slope`, by distance: the largest `|g'(x) - g'(x')| /
        |x - x'|`; `share`, by radius and basic function: the decimal logarithm of the largest ratio of a difference to
        its bound. Sequences of a single repeated word, for which every gradient is zero, count as `labels`.

    Raises:
        ValueError: there is no sequence of several words.
    """
    del solver
    n = record.attrs["data.n"]
    words = np.concatenate([record["last"].values[:, : n - 1], record["next"].values[:, n - 2 : n - 1]], axis=1)
    several = np.asarray(np.any(words != words[:, :1], axis=1))
    if not several.any():
        raise ValueError(f"lm-lemmas: expected a sequence of several words, found none of {several.size}")
    A = np.take_along_axis(record["E"].values, words[:, :, None], axis=1)[several]
    printed, mended, slope, share = batch.over_seeds(_of_one, A, record["draw_key"].values[several])
    return xarray.Dataset(
        {
            "printed": (("seed", "label"), printed),
            "mended": (("seed", "label"), mended),
            "slope": (("seed", "distance"), slope),
            "share": (("seed", "radius", "bound"), share),
        },
        {"seed": record["seed"].values[several], "label": LABELS, "distance": DISTANCES, "radius": RADII}
        | {"bound": np.array(BOUNDS, dtype=object)},
        {"attempted": several.size, "kept": len(A), "labels": int((~several).sum())},
    )


def _of_one(A: Float[Array, "n d"], words: UInt32[Array, " words"]) -> tuple[Array, ...]:
    """Return what `measure` does for one seed, in its order, from the embeddings of one sequence."""
    of_gradient, of_slope, of_bounds = jax.random.split(jax.random.wrap_key_data(words), 3)
    printed, mended = _gradients(A, of_gradient)
    return printed, mended, _slopes(of_slope), jnp.stack([_shares(A, R, of_bounds) for R in RADII])


def _gradients(A: Float[Array, "n d"], key: Array) -> tuple[Float[Array, " labels"], Float[Array, " labels"]]:
    d, keys = A.shape[1], jax.random.split(key, 2)
    block, g = _block(A), jax.nn.sigmoid
    x, y = 2 * jax.random.normal(keys[0], (d * d,)), 2 * jax.random.normal(keys[1], (d,))
    h = A @ y

    def apart(b: Array) -> tuple[Array, Array]:
        f = jax.nn.softmax(block @ x)
        s = f @ h
        inner = b * ((f * h) @ block - s * (f @ block))
        true = jax.grad(lambda x: g((jax.nn.softmax(block @ x) @ h) * b))(x)
        forms = (g(at) * (1 - g(at)) * inner for at in (s, s * b))
        first, second = (jnp.linalg.norm(form - true) / jnp.linalg.norm(true) for form in forms)
        return first, second

    return jax.vmap(apart)(jnp.asarray(LABELS))


def _slopes(key: Array) -> Float[Array, " distances"]:
    slope = jax.vmap(jax.vmap(jax.grad(jax.nn.sigmoid)))
    centre = jax.random.uniform(key, (1, _CENTRES), minval=-8.0, maxval=8.0)
    half = jnp.asarray(DISTANCES)[:, None] / 2
    return jnp.max(jnp.abs(slope(centre + half) - slope(centre - half)), axis=1) / DISTANCES


def _block(A: Float[Array, "n d"]) -> Float[Array, "n dd"]:
    """Return the block of `A1 kron A2` for the last word, with row t `a_last kron a_t`."""
    return jnp.einsum("i,tj->tij", A[-1], A).reshape(len(A), -1)


def _shares(A: Float[Array, "n d"], R: float, key: Array) -> Float[Array, " bounds"]:
    """Return the logarithms of the largest ratios over pairs of weights with `||A_j0 x|| <= R`, and `||A_j0|| = R`.

    Every other pair consists of close weights. beta is the smaller alpha of the pair: smaller values make all bounds
    larger. `||A3|| = R`, `||y|| = R`.
    """
    n, keys = len(A), jax.random.split(key, 4)
    block = _block(A)
    block = R * block / jnp.linalg.norm(block, ord=2)
    y = jax.random.normal(keys[0], A.shape[1:])
    h = (R * A / jnp.linalg.norm(A, ord=2)) @ (R * y / jnp.linalg.norm(y))
    first, second = jax.random.normal(keys[1], (2, _PAIRS, block.shape[1]))
    close = jnp.where(jnp.arange(_PAIRS)[:, None] % 2 == 0, 1.0, 1e-2)
    second = first + close * (second - first)
    longest = jax.random.uniform(keys[2], (_PAIRS, 1), minval=0.2) * R
    reach = jnp.maximum(*(jnp.linalg.norm(one @ block.T, axis=1) for one in (first, second)))[:, None]
    ratios = jax.vmap(partial(_ratios, block, h, R, n))(longest * first / reach, longest * second / reach)
    return jnp.max(ratios, axis=0)


def _ratios(
    block: Float[Array, "n dd"], h: Float[Array, " n"], R: float, n: int, x: Float[Array, " dd"], y: Float[Array, " dd"]
) -> Float[Array, " bounds"]:
    """Return the decimal logarithms of each difference over its bound, for one pair of weights."""
    u, v = jnp.exp(block @ x), jnp.exp(block @ y)
    alpha, other = jnp.sum(u), jnp.sum(v)
    f, k = u / alpha, v / other
    log_beta, log_n, log_far = jnp.log(jnp.minimum(alpha, other)), jnp.log(n), jnp.log(jnp.linalg.norm(x - y))
    apart = jnp.linalg.norm(u - v)
    # Differences that are zero never exceed a bound.
    least = jnp.finfo(u.dtype).tiny
    of_f = -2 * log_beta + log_n + 3 * R**2 + log_far
    squares = jnp.linalg.norm(jnp.outer(f, f) - jnp.outer(k, k), ord="fro")
    pairs = (
        (apart, jnp.log(R) + R**2 + log_far),
        (jnp.abs(alpha - other), log_n / 2 + jnp.log(apart)),
        (jnp.abs(1 / alpha - 1 / other), -2 * log_beta + jnp.log(jnp.abs(alpha - other))),
        (jnp.linalg.norm(f - k), of_f),
        (jnp.abs(f @ h - k @ h), 2 * jnp.log(R) - 2 * log_beta + log_n + 3 * R**2 + log_far),
        (jnp.max(jnp.abs(f - k)), of_f),
        (squares, jnp.log(2.0) - 3 * log_beta + 2 * log_n + 5 * R**2 + log_far),
    )
    return jnp.stack([jnp.log(jnp.maximum(size, least)) - bound for size, bound in pairs]) / jnp.log(10.0)


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Return the largest differences, slopes and ratios over all seeds, and the means of the ratios' logarithms."""
    most = {f"{part}_most": exact(run[part].max("seed")) for part in ("printed", "mended", "slope", "share")}
    return estimated(run, key, share=exact(run["share"].mean("seed")), **most)


@claim(
    "lm-lemmas:gradient",
    Source(PAPER, "Lemma 3.11, Definition 3.6", Setting.EXACT),
    "For every real label b the gradient of g(<f, h> b) is g(s) (1 - g(s)) b (<f o A_i, h> - <f, h> <f, A_i>), "
    "with s = <f, h>.",
)
def _gradient(runs: Datasets) -> Judgement:
    printed, mended = (runs["texts"][f"{form}_most"] for form in ("printed", "mended"))
    unit = np.abs(printed["label"].values) == 1
    what = "largest relative difference from the gradient"
    numbers = {
        f"{what} {form}, b = {float(b):g}": float(errors.sel(label=b))
        for form, errors in (("as printed", printed), ("with b inside g'", mended))
        for b in errors["label"]
    }
    return Judgement(
        stated=[below(f"{what}, as printed, all labels,", Number.exact(float(printed.max())), _SAME)],
        corrected=[
            below(f"{what}, with b inside g', all labels,", Number.exact(float(mended.max())), _SAME),
            below(f"{what}, as printed, labels +-1,", Number.exact(float(printed.values[unit].max())), _SAME),
        ],
        correction="with g(s b) (1 - g(s b)) in place of g(s) (1 - g(s)). The printed form is right for labels +-1, "
        "since g' is even.",
        numbers=numbers,
        expected=dict.fromkeys(numbers, 0.0),
    )


@claim(
    "lm-lemmas:slope",
    Source(PAPER, "Lemma 3.12", Setting.EXACT),
    "The derivative of the logistic function has the Lipschitz constant 1.",
    kind=Kind.CHECK,
)
def _slope(runs: Datasets) -> Judgement:
    what, largest = "largest |g'(x) - g'(x')| / |x - x'|", float(runs["texts"]["slope_most"].max())
    return Judgement(
        stated=[below(what, Number.exact(largest), 1.0)],
        remark=f"The sharp constant is the largest |g''|, 1 / (6 sqrt 3) = {SHARP:.4g}.",
        expected={what: 1.0},
    )


@claim(
    "lm-lemmas:bounds",
    Source(PAPER, "section 3.3", Setting.PROXY),
    "If all norms are at most R, R >= 4, each of the seven basic functions has its listed Lipschitz constant.",
    kind=Kind.CHECK,
)
def _bounds(runs: Datasets) -> Judgement:
    summary = runs["texts"]
    largest = {str(name): float(10 ** summary["share_most"].sel(bound=name).max()) for name in summary["bound"].values}
    average = summary["share"].mean("radius")
    slack = ", ".join(f"{-float(average.sel(bound=name)):.2g} ({name})" for name in largest)
    return Judgement(
        stated=[
            below(f"largest difference over its bound, {name},", Number.exact(share), 1 + _ROUNDING)
            for name, share in largest.items()
        ],
        remark="Three letters of the list are not defined in the paper: we take beta as the smaller alpha of the "
        "two, the smallest choice that makes the bounds true, R_f as that of the paper's own diag f, and c as "
        f"<f, h> - b. Mean decades between the largest difference of a text and its bound: {slack}.",
        numbers={f"largest difference over its bound, {name}": share for name, share in largest.items()},
    )


_FORMS = (("printed", palette.WINE, "o", "as printed"), ("mended", palette.TEAL, "s", "$b$ inside $g'$"))
_ALLOWED = {"color": palette.GUIDE, "linestyle": ":", "linewidth": 0.9}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the errors of the gradient by label, the slopes by distance, and the shares of the bounds."""
    summary = summaries["texts"]
    with page.style():
        figure = page.full(3.1)
        gradient, slope, bounds = figure.subplots(1, 3, width_ratios=(1.1, 1, 1.3))
        _draw_gradient(gradient, summary)
        _draw_slope(slope, summary)
        _draw_bounds(bounds, summary)
        page.add_counts(
            figure,
            summaries,
            "Every mark is the largest of all texts. Excluded: sequences of one word alone, whose gradient is zero. "
            "Dotted: what the claims allow.",
            counted="texts",
        )
    return figure


def _draw_gradient(axes: Axes, summary: xarray.Dataset) -> None:
    at, rounding = np.arange(summary.sizes["label"]), np.finfo(float).eps / 2
    for name, colour, marker, label in _FORMS:
        # Rounding is drawn where it is largest, so that zeros stay on the axis.
        size = np.maximum(summary[f"{name}_most"].values, rounding)
        axes.plot(at, size, marker, color=colour, markerfacecolor="none", label=label)
    axes.axhline(_SAME, **_ALLOWED)
    largest = page.at_most(float(summary["printed_most"].max()))
    axes.set_title(f"(a) gradient as printed:\noff by up to {largest} times its norm")
    axes.set(xlabel="label $b$", ylabel="relative difference\nfrom the gradient", yscale="log")
    axes.set(ylim=(1e-17, 1e7), xlim=(-0.5, len(at) - 0.5))
    axes.set_xticks(at, [f"{float(b):g}" for b in summary["label"].values])
    axes.legend(loc="upper left")


def _draw_slope(axes: Axes, summary: xarray.Dataset) -> None:
    axes.plot(summary["distance"].values, summary["slope_most"].values, "o-", color=palette.TEAL, markersize=3)
    axes.axhline(SHARP, color=palette.INK, linestyle="--", linewidth=0.8)
    axes.axhline(1, **_ALLOWED)
    for height, text in ((1, "allowed: 1"), (SHARP, r"sharp: $1 / (6 \sqrt{3})$")):
        beside(axes, text, (0.05, height), (0, 3), xycoords=axes.get_yaxis_transform())
    axes.set_title(f"(b) largest slope {float(summary['slope_most'].max()):.2g},\nLemma 3.12 allows 1")
    axes.set(xlabel="$|x - x'|$", ylabel="$|g'(x) - g'(x')|\\,/\\,|x - x'|$")
    axes.set(xscale="log", yscale="log", ylim=(1e-3, 10))


def _draw_bounds(axes: Axes, summary: xarray.Dataset) -> None:
    rows = np.arange(len(BOUNDS))[::-1]
    for radius, marker in zip(summary["radius"].values, ("o", "^"), strict=True):
        shares = summary["share_most"].sel(radius=radius).values
        axes.plot(shares, rows, marker, color=palette.TEAL, markerfacecolor="none", markersize=4)
        beside(axes, f"$R = {radius:g}$", (float(shares[-1]), rows[-1]), (5, 0), va="center")
    axes.axvline(0, **_ALLOWED)
    largest = page.power(10 ** float(summary["share_most"].max()))
    axes.set_title(f"(c) largest difference:\n{largest} times its bound")
    axes.set(xlabel=r"$\log_{10}$ (largest difference / bound)", ylim=(-0.6, len(BOUNDS) - 0.4))
    axes.set_yticks(rows, [*_WRITTEN.values()])


EXPERIMENT = Experiment(measure, (_gradient, _slope, _bounds), estimate=estimate, draw=draw)
