"""The first stage without descent: problems, and the keys of the weights at which their risk is looked at."""

from functools import partial

import numpy as np
import pytest

from jaxattn import data, records
from jaxattn.study.settings import landscape, recording
from tests.instances import T, d, n


def recorded(path, draws):
    law = partial(data.spread_scores, n=n, T=T, d=d, spread=1.0)
    recording.run(landscape.Landscape(law, seeds=5, key=5, draws=draws), path, {})
    return records.load(path)


def test_a_draw_is_the_same_however_many_there_are(tmp_path):
    few, many = (recorded(tmp_path / f"{draws}.zarr", draws) for draws in (3, 7))
    np.testing.assert_array_equal(few["draw_keys"], many["draw_keys"][:, :3])
    np.testing.assert_array_equal(few["X"], many["X"])
    assert len(np.unique(many["draw_keys"].values.reshape(35, -1), axis=0)) == 35


@pytest.mark.parametrize(("field", "value"), [("seeds", 0), ("draws", 0)])
def test_an_empty_landscape_is_refused(field, value):
    sizes = {"seeds": 1, "draws": 1} | {field: value}
    with pytest.raises(ValueError, match=f"{field}: expected at least 1, found 0"):
        landscape.Landscape(data.three_tokens, key=0, **sizes)
    with pytest.raises(TypeError, match="data: expected a law of one dimension"):
        landscape.Landscape(data.Spheres(2, 2, [2]), key=0, seeds=1, draws=1)  # pyright: ignore[reportArgumentType]
