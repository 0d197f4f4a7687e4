"""Labels beside the ends of curves: in order, apart, and where their curves end if there is room."""

import numpy as np
import pytest
from matplotlib.text import Annotation

from jaxattn.study.style import labels, page


@pytest.mark.parametrize("places", [[0.1, 0.5, 0.9], [0.5, 0.5, 0.5], [0.52, 0.1, 0.5, 0.51], [], [0.3]])
def test_labels_keep_their_order_and_distance(places):
    found = labels.apart(np.array(places), 0.1)
    order = np.argsort(places, kind="stable")
    assert (np.diff(found[order]) >= 0.1 - 1e-12).all()
    assert np.mean(found) == pytest.approx(np.mean(places)) if places else True
    # Those with room stand at their points.
    np.testing.assert_allclose(labels.apart(np.array([0.8, 0.2]), 0.1), [0.8, 0.2])


def test_a_label_stands_where_the_curve_ends_and_none_where_there_is_no_end():
    axes = page.column(2.0).subplots()
    axes.plot([1, 10], [1e-3, 1.0])
    axes.set(yscale="log", ylim=(1e-4, 1.0))
    labels.beside_ends(axes, [labels.End("a", 10, 1e-2, "red"), labels.End("b", 10, np.nan, "blue")])
    (text,) = (text for text in axes.texts if isinstance(text, Annotation))
    assert text.get_text() == "a"
    np.testing.assert_allclose(text.xy, [10, 0.5])
