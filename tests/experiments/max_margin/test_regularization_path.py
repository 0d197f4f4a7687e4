"""The experiment on regularization paths: its record, what is measured of it, and the verdicts."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
import xarray

from jaxattn import data, heads, losses, records
from jaxattn import regularization as paths
from jaxattn.experiments.max_margin.regularization_path import claims as regularization_claims
from jaxattn.experiments.max_margin.regularization_path import figure
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import paths as regularization
from jaxattn.study.settings import recording

from .instances import drawn_lines

KEY = jax.random.key(0)
RADII = np.geomspace(1.0, 1000.0, 13)


def setting(seeds=5, ball=paths.FROBENIUS, last=300.0, count=5):
    law = functools.partial(data.sphere, n=2, T=3, d=3)
    radii = regularization.Radii(1.0, last, count)
    return regularization.Regularization(law, ball, losses.logistic, heads.linear, seeds, 7, radii)


@pytest.mark.slow
@pytest.mark.parametrize("ball", [paths.FROBENIUS, paths.NUCLEAR])
def test_a_record_is_measured_and_every_seed_is_counted(tmp_path, ball):
    one = setting(ball=ball)
    recording.run(one, tmp_path / "record.zarr", {})
    record = records.load(tmp_path / "record.zarr")
    assert record.attrs["kept"] + record.attrs["unsolved"] == 5
    np.testing.assert_allclose(record["radius"], one.radii())
    measured = regularization.measure(record)
    counts = measured.attrs
    assert counts["attempted"] == 5 == counts["kept"] + counts["infeasible"] + counts["unsolved"]
    assert counts["run"] == ("KQ" if ball is paths.NUCLEAR else "W")
    assert measured.sizes["seed"] == counts["kept"] > 0
    own = measured["distance"].sel(norm=ball.name).values
    assert np.all(own[:, -1] < own[:, 0])
    assert np.all(measured["residual"] <= 1e-6)
    names = {"K", "Q"} if ball is paths.NUCLEAR else {"W"}
    assert names == {"W", "K", "Q"} & set(record.data_vars)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: setting(seeds=0), "seeds: expected at least 1"),
        (lambda: setting(count=1), "radii.count: expected at least 2"),
        (lambda: setting(last=0.5), "0 < first < last"),
        (lambda: setting(last=float("nan")), "0 < first < last"),
    ],
)
def test_a_setting_that_cannot_be_run_is_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


def test_problems_of_several_dimensions_are_refused():
    several = functools.partial(dataclasses.replace, setting(), law=data.Spheres(2, 3, (2, 3)))
    with pytest.raises(TypeError, match="one dimension"):
        several()


def made(run, exponent=-1.0, size=5.0, other=0.4, selected=True, kept=30, radii=RADII):
    """What `measure` would return of paths that approach their solution like a power of R."""
    rng = np.random.default_rng(3)
    own = np.minimum(1.0, size * radii**exponent)[None] * 10 ** rng.normal(0, 0.1, (kept, 1))
    distance = np.stack([own, np.full_like(own, other)], axis=1)
    norms = ["frobenius", "nuclear"] if run == "W" else ["nuclear", "frobenius"]
    flat = np.full((kept, radii.size), 1e-9)
    variables = {
        "distance": (("seed", "norm", "radius"), distance),
        "off": (("seed", "norm", "radius"), np.minimum(1.0, distance**2)),
        "selected": (("seed", "radius"), np.full(flat.shape, selected)),
        "apart": (("seed", "radius"), np.where(np.arange(kept)[:, None] % 3, flat, np.inf)),
        "residual": (("seed", "radius"), flat),
        "solved": (("attempt", "radius"), np.ones((kept + 2, radii.size), bool)),
    }
    attrs = {"run": run, "attempted": kept + 2, "kept": kept, "infeasible": 0, "unsolved": 2}
    return xarray.Dataset(variables, {"norm": norms, "radius": radii}, attrs)


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, Verdict.HOLDS),
        ({"exponent": -0.5, "size": 0.3}, Verdict.FAILS),
        ({"size": 50.0}, Verdict.FAILS),
        ({"other": 1e-3}, Verdict.FAILS),
        ({"selected": False}, Verdict.FAILS),
        ({"kept": 8}, Verdict.OPEN),
        ({"radii": RADII[:6]}, Verdict.OPEN),
    ],
)
def test_the_verdicts_follow_the_paths(changed, verdict):
    summaries, claims = regularization_claims.summarize({run: made(run, **changed) for run in ("W", "KQ")}, KEY)
    assert {claim.verdict for claim in claims} == {verdict}
    for claim, summary in zip(claims, summaries.values(), strict=True):
        (counts,) = claim.counts.values()
        assert counts["attempted"] == counts["kept"] + counts["infeasible"] + counts["unsolved"]
        assert float(summary["one_way"][0]) == pytest.approx(1 / 3, abs=0.05)
        assert float(summary["apart"][0]) == 0


def test_the_exponent_is_that_of_the_power_and_the_figure_draws_the_estimates():
    summaries, _ = regularization_claims.summarize({run: made(run, exponent=-0.8) for run in ("W", "KQ")}, KEY)
    np.testing.assert_allclose(summaries["W"]["exponent_mean"].sel(norm="frobenius"), -0.8, atol=1e-6)
    panels = figure.draw(summaries).axes
    assert len(panels) == 3
    drawn = drawn_lines(panels[0])[0]
    np.testing.assert_allclose(drawn[1], summaries["W"]["distance"].sel(norm="frobenius"))


def test_a_path_without_a_kept_seed_is_named():
    measured = {"W": made("W"), "KQ": made("KQ").isel(seed=slice(0))}
    with pytest.raises(ValueError, match="expected a kept seed of each path"):
        regularization_claims.summarize(measured, KEY)
