"""Regularization paths from the setting to what is measured of them: every seed is counted, distances fall."""

import numpy as np
import pytest

from jaxattn import records
from jaxattn import regularization as paths
from jaxattn.study.measuring.paths import measure
from jaxattn.study.settings import recording
from tests.study.settings.test_paths import setting


@pytest.mark.slow
@pytest.mark.parametrize("ball", [paths.FROBENIUS, paths.NUCLEAR])
def test_a_record_is_measured_and_every_seed_is_counted(tmp_path, ball):
    one = setting(ball=ball)
    recording.run(one, tmp_path / "record.zarr", {})
    record = records.load(tmp_path / "record.zarr")
    assert record.attrs["kept"] + record.attrs["unsolved"] == 5
    np.testing.assert_allclose(record["radius"], one.radii())
    measured = measure(record)
    counts = measured.attrs
    assert counts["attempted"] == 5 == counts["kept"] + counts["infeasible"] + counts["unsolved"]
    assert counts["run"] == ("KQ" if ball is paths.NUCLEAR else "W")
    assert measured.sizes["seed"] == counts["kept"] > 0
    own = measured["distance"].sel(norm=ball.name).values
    assert np.all(own[:, -1] < own[:, 0])
    assert np.all(measured["residual"] <= 1e-6)
    names = {"K", "Q"} if ball is paths.NUCLEAR else {"W"}
    assert names == {"W", "K", "Q"} & set(record.data_vars)
