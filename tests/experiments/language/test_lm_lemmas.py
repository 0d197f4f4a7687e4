"""The second paper's lemmas: synthetic measurements, and what is measured of a text."""

from functools import partial

import numpy as np
import pytest

from jaxattn import data
from jaxattn.experiments.language.lm_lemmas import BOUNDS, DISTANCES, LABELS, RADII, SHARP, measure
from jaxattn.study.settings.texts import Texts
from tests.experiments.language.text_records import in_memory
from tests.experiments.synthetic import synthetic

SIZES = {"m": 1, "n": 4, "d": 3, "V": 5, "entropy": 1.0}
SEEDS = 20
VERDICTS = {"lm-lemmas:gradient": "holds with a correction"}


def measured():
    """The printed gradient is wrong for labels other than +-1, the slope is below its bound, and so is all else."""
    spread = 1 - 0.01 * np.linspace(0, 1, SEEDS)[:, None]
    share = np.tile(-3.0 - np.arange(len(BOUNDS)), (len(RADII), 1))
    run = synthetic(
        SEEDS,
        {"labels": 0},
        {"label": LABELS, "distance": DISTANCES, "radius": RADII, "bound": np.array(BOUNDS, dtype=object)},
        printed=(("seed", "label"), spread * np.where(np.abs(LABELS) == 1, 1e-15, 0.3)),
        mended=(("seed", "label"), spread * np.full(len(LABELS), 1e-15)),
        slope=(("seed", "distance"), spread * 0.09 / (1 + DISTANCES)),
        share=(("seed", "radius", "bound"), spread[..., None] * share),
    )
    return {"texts": run}


@pytest.fixture(scope="module")
def small():
    setting = Texts(law=partial(data.language, **SIZES), seeds=3, key=5)
    return measure(in_memory(setting, **{"data.n": SIZES["n"]}))


def test_the_gradient_with_the_label_inside_is_right_and_the_printed_one_for_labels_of_size_one(small):
    unit = np.abs(LABELS) == 1
    assert np.all(small["mended"] < 1e-13)
    assert np.all(small["printed"].values[:, unit] < 1e-13)
    assert np.all(small["printed"].values[:, ~unit] > 1e-6)


def test_slopes_reach_the_sharp_constant_and_bounds_are_not_reached(small):
    near = small["slope"].values[:, 0]
    assert np.all((near > 0.99 * SHARP) & (near < 1.0001 * SHARP))
    # Half the range of g', 1/4, over the distance.
    assert np.all(small["slope"].values[:, -1] <= 0.25 / small["distance"].values[-1])
    assert np.all(small["share"] <= 1e-9)
    # By Cauchy and Schwarz, and by algebra: the two bounds that have no slack of their own.
    tight = small["share"].sel(bound=["alpha", "1 / alpha"])
    assert np.all(tight > -3)
    assert np.all(small["share"].sel(bound=["f", "f f^T"]) < -10)
