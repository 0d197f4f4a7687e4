"""How large the Lipschitz constant of the gradient is, beside the paper's and one that is proved (causal LM)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

from jaxattn import language, svm
from jaxattn.experiments.smoothness import bends
from jaxattn.parallel import batch
from jaxattn.study.claims import Claim, Verdict, concluded, counts_of, read, too_few
from jaxattn.study.statistics import bootstrap, variables

_SOURCE = (
    "withdrawn ICLR 2024 submission on attention and SVM in causal language modelling, lemma on the Lipschitz constant "
    "of the gradient (recalled)"
)
# What all norms are bounded by, from where on the paper asks for it, the weights drawn for each, and the shortest.
RADII, ASKED = np.array([0.5, 1.0, 2.0, 4.0, 8.0]), 4.0
_DRAWS, _SHORTEST = 64, 1 / 64


def paper(R: Float[np.ndarray, "..."], n: int) -> Float[np.ndarray, "..."]:
    """Return the decimal logarithm of `M = 3 n^3 R^7 exp(13 R^2)`, which itself has no floating-point number."""
    return np.log10(3) + 3 * np.log10(n) + 7 * np.log10(R) + 13 * R**2 / np.log(10)


def _logistic_bound(choices: language.Choices) -> Float[Array, ""]:
    return language.score_bound(bends.tied(choices))


def _of_lane(
    choices: language.Choices,
    words: UInt32[Array, " words"],
    W: Float[Array, "draws d d"],
    function: Callable[..., Array],
    bound: Callable[..., Array],
) -> tuple[Array, ...]:
    """Return the largest curvature found at W and at 0, its residual, the largest ratio between W, and the bound."""
    places = jnp.concatenate([W, jnp.zeros_like(W[:1])])
    values, residuals = bends.largest_at(partial(function, choices=choices), places, words)
    slopes = jax.vmap(jax.grad(function), in_axes=(0, None))(W, choices)
    # Free ones with free ones, ties with ties.
    rise, run = (jnp.linalg.norm(X - jnp.roll(X, 2, axis=0), axis=(1, 2)) for X in (slopes, W))
    # The first that is no number, if there is one.
    widest = jnp.argmax(values)
    return values[widest], residuals[widest], jnp.max(rise / run), bound(choices)


# One object each, so that they compile once.
_DRAWN = partial(bends.drawn, count=_DRAWS)
_RISKS = {
    "cross entropy": partial(_of_lane, function=language.risk, bound=language.cross_entropy_bound),
    "logistic": partial(_of_lane, function=bends.logistic, bound=_logistic_bound),
    "squared": partial(_of_lane, function=language.squared_risk, bound=language.squared_bound),
}


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Find how much three risks of each text bend, where all norms are at most R.

    Args:
        record: of `texts.Texts`.
        solver: not used: nothing is separated.

    Returns:
        For every kept seed, risk and radius: `bend`, the size of the largest eigenvalue of the second derivative found
        at drawn W and at 0, a lower bound of the Lipschitz constant; its `residual`; `ratio`, the largest of
        `||grad L(W) - grad L(W')|| / ||W - W'||` between drawn W; `bound`, of `language.smoothness`.
    """
    del solver
    choices = bends.texts(record)
    # From here on the spectral norm of the embeddings is the scale.
    unit = choices._replace(E=choices.E / np.linalg.norm(choices.E, ord=2, axis=(1, 2))[:, None, None])
    lanes, words, R = bends.scaled(unit, record["draw_key"].values, RADII)
    W = batch.over_seeds(_DRAWN, lanes, words, _SHORTEST * R, R)
    of_risk = [batch.over_seeds(look, lanes, words, W) for look in _RISKS.values()]
    arrays = [np.stack(each, axis=1).reshape(-1, len(RADII), len(_RISKS)) for each in zip(*of_risk, strict=True)]
    kept = np.asarray(np.isfinite(arrays).all(axis=(0, 2, 3)))
    dims = ("seed", "radius", "risk")
    config = json.loads(record.attrs["config"])["data"]
    attempted = len(kept)
    return xarray.Dataset(
        {name: (dims, each[kept]) for name, each in zip(("bend", "residual", "ratio", "bound"), arrays, strict=True)},
        {"seed": record["seed"].values[kept], "risk": np.array(list(_RISKS), dtype=object), "radius": RADII},
        {
            "attempted": attempted,
            "kept": int(kept.sum()),
            "diverged": attempted - int(kept.sum()),
            "run": "texts",
            "n": int(config["n"]),
            "draws": _DRAWS,
        },
    )


def summarize(
    datasets: Mapping[str, xarray.Dataset], key: PRNGKeyArray
) -> tuple[dict[str, xarray.Dataset], list[Claim]]:
    """Estimate the constants over the radius, and judge how far the paper's is from them.

    Args:
        datasets: of `measure`; one run.
        key: of the bootstrap.

    Returns:
        A dataset over risks and radii of decimal logarithms; the claims.

    Raises:
        ValueError: no seed was kept.
    """
    ((run, one),) = datasets.items()
    if not one.sizes["seed"]:
        raise ValueError(f"lipschitz: expected a kept seed, found counts {counts_of(datasets)}")
    summary = _estimated(one, key)
    return {run: summary}, [_bound_claim(summary), _growth_claim(summary), _derived_claim(summary)]


def _estimated(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    keys = jax.random.split(key, 5)
    bend, ratio, bound = (np.log10(one[name].values) for name in ("bend", "ratio", "bound"))
    radius = one["radius"].values
    log_paper = paper(radius, int(one.attrs["n"]))
    over = ("radius", "risk")
    estimates = {
        "bend": (over, bootstrap(bend, keys[0])),
        "ratio": (over, bootstrap(ratio, keys[1])),
        "bound": (over, bootstrap(bound, keys[2])),
        "tightness": (over, bootstrap(10 ** (bend - bound), keys[3])),
        "power": (("risk",), bootstrap(_power(radius, bend), keys[4])),
    }
    arrays = variables(estimates)
    arrays |= {
        "steepest": (over, bend.max(axis=0)),
        "loosest": (over, bound.max(axis=0)),
        "tightest": (over, (bend - bound).max(axis=0)),
        "residual": (over, (one["residual"] / one["bend"]).values.max(axis=0)),
        "paper": (("radius",), log_paper),
        "paper_power": ((), _power(radius, log_paper[None, :, None])[0, 0]),
    }
    return xarray.Dataset(arrays, {"risk": one["risk"].values, "radius": radius}, one.attrs)


def _power(radius: np.ndarray, logarithm: np.ndarray) -> np.ndarray:
    """Return the slope of the least squares line of every seed and risk in the logarithm of the radius."""
    x = np.log10(radius) - np.log10(radius).mean()
    return np.einsum("srk,r->sk", logarithm, x / (x @ x))


def _bound_claim(summary: xarray.Dataset) -> Claim:
    asked = summary.sel(radius=summary["radius"] >= ASKED)
    first = asked.isel(radius=0)
    least = float((asked["paper"] - asked["steepest"]).min())
    R = float(first["radius"])
    measured = {f"log10 M at R = {R:g}": _exactly(float(first["paper"]))}
    for risk in summary["risk"].values:
        mean, low, high = read(first.sel(risk=risk), "bend")
        log_paper = float(first["paper"])
        measured[f"decades from the largest found to M at R = {R:g}, {risk}"] = (
            log_paper - mean,
            log_paper - high,
            log_paper - low,
        )
    proved = float((asked["paper"] - asked["loosest"]).min())
    measured[f"decades from the derived bound to M, least of all at R >= {ASKED:g}"] = _exactly(proved)
    return _claim(
        "bound",
        "The gradient is Lipschitz with M = 3 n^3 R^7 exp(13 R^2) where all norms are at most R, R >= 4.",
        {},
        measured,
        summary,
        Verdict.HOLDS if least >= 0 else Verdict.FAILS,
        f"Holds if no second derivative found at R >= {ASKED:g} exceeds M. It holds, and says nothing: M is at least "
        f"{least:.0f} decades larger than any of them, and {proved:.0f} larger than a bound that is proved, see "
        f"lipschitz:derived. n is read as the {summary.attrs['n']} words of a sequence, R as a bound on the spectral "
        "norm of the embeddings and the Frobenius norm of W; other readings move M by some decades.",
    )


def _growth_claim(summary: xarray.Dataset) -> Claim:
    of_paper = float(summary["paper_power"])
    label = {str(risk): f"power of R that the largest found grows with, {risk}" for risk in summary["risk"].values}
    reaches = bool((summary["power_high"] >= of_paper / 2).any())
    return _claim(
        "exponential",
        "A Lipschitz constant of the gradient must grow with R like M, exponentially in R^2.",
        dict.fromkeys(label.values(), of_paper),
        {name: read(summary.sel(risk=risk), "power") for risk, name in label.items()},
        summary,
        Verdict.HOLDS if reaches else Verdict.FAILS,
        f"Slopes of lines on double logarithmic axes over R = {RADII[0]:g}..{RADII[-1]:g}; that of M is "
        f"{of_paper:.0f}. Holds if the interval of one reaches half of that. The derived bounds are of degree 4, 6 "
        "and 8 in the embeddings and know no norm of W: a softmax that saturates bends less, not more.",
    )


def _derived_claim(summary: xarray.Dataset) -> Claim:
    asked = summary.sel(radius=ASKED)
    over = float(10 ** summary["tightest"].max())
    measured = {
        f"largest found over the bound at R = {ASKED:g}, {risk}": read(asked.sel(risk=risk), "tightness")
        for risk in summary["risk"].values
    }
    measured["the same, largest of all texts and R"] = _exactly(over)
    measured["residual of an eigenvalue over its size, largest"] = _exactly(float(summary["residual"].max()))
    return _claim(
        "derived",
        "A Lipschitz constant is lambda_max(sum_i w_i c_i e_last e_last^T) sigma_max(E - mean)^2 for every W.",
        {},
        measured,
        summary,
        Verdict.HOLDS if over <= 1 + 1e-9 else Verdict.FAILS,
        "Not of the paper: derived in jaxattn.language.smoothness, with c = 1/2 for cross entropy, D^2 / 32 + D / 4 "
        "for the logistic loss of scores in an interval of length D, 3 D^2 / 8 for the squared loss of embeddings at "
        "most D apart. Holds if no second derivative found at any R exceeds it. What is found is from below, at "
        f"{summary.attrs['draws']} drawn W and at 0 for each text and R.",
        "jaxattn.language.smoothness",
    )


def _exactly(number: float) -> tuple[float, float, float]:
    """Return a number that has no interval."""
    return number, number, number


def _claim(
    name: str,
    statement: str,
    expected: Mapping[str, float],
    measured: Mapping[str, tuple[float, float, float]],
    summary: xarray.Dataset,
    verdict: Verdict,
    note: str,
    source: str = _SOURCE,
) -> Claim:
    """Return a claim; not decided by few texts."""
    undecided = too_few(int(summary.attrs["kept"]))
    return concluded(
        f"lipschitz:{name}",
        source,
        statement,
        expected,
        measured,
        counts_of({summary.attrs["run"]: summary}),
        verdict,
        undecided,
        note,
    )
