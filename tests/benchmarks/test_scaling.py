"""The scaling figures: what is kept of the rounds, and what is drawn with and without their spread."""

import itertools

import numpy as np
import pytest

from benchmarks import scaling, timing
from jaxattn.study.style import fitting, page

SIZES = (2, 4, 8, 16)


def rounds_of(power: float) -> list[list[float]]:
    """Times of five rounds that grow with this power of the size, each round by its own factor."""
    return [[factor * size**power for factor in (1.0, 1.1, 1.2, 1.4, 3.0)] for size in SIZES]


def line(of: str, size: str, power: float = 1.0, **changes):
    kept = timing.curve(SIZES, rounds_of(power)) | {"processor": "a processor, 2 cores"}
    return {"of": of, "size": size, "middle": {"n": 6, "T": 8, "d": 10, "batch": 128}, **kept, **changes}


def test_medians_and_quartiles_are_kept():
    kept = timing.curve(SIZES, rounds_of(1.5))
    scale = np.array(SIZES) ** 1.5
    np.testing.assert_allclose(kept["times"], 1.2 * scale)
    np.testing.assert_allclose(kept["quartiles"], [1.1 * scale, 1.4 * scale])
    assert kept["rounds"] == 5
    assert kept["exponent"] == pytest.approx(1.5)
    np.testing.assert_allclose(kept["exponent quartiles"], [1.5, 1.5])
    assert kept["processor"] == timing.processor()
    assert "cores" in kept["processor"]


def test_a_round_with_a_negative_difference_gives_no_exponent():
    times = rounds_of(1.0)
    times[-1][0] = -1.0
    kept = timing.curve(SIZES, times)
    np.testing.assert_allclose(kept["exponent quartiles"], [1, 1])
    with pytest.raises(RuntimeError, match="expected positive times"):
        timing.curve(SIZES, [[1.0], [1.0], [1.0], [-1.0]])


def test_runs_take_turns():
    calls = []
    seconds = timing.rounds(lambda: calls.append("a"), lambda: calls.append("b"))
    assert seconds.shape == (timing.ROUNDS, 2)
    assert calls == ["a", "b"] * (1 + timing.ROUNDS)


def both(**changes):
    powers = {("frobenius", "n"): 1.0, ("nuclear", "n"): 2.0, ("frobenius", "batch"): -1.0, ("nuclear", "batch"): 0.5}
    order = itertools.product(("frobenius", "nuclear"), ("n", "batch"))
    return [line(of, size, powers[of, size], **changes) for of, size in order]


def test_the_spread_and_the_processor_are_drawn_where_they_are_known():
    lines = both()
    drawn = scaling.draw(lines, "milliseconds a problem")
    n, batch = drawn.axes
    for panel, size in ((n, "n"), (batch, "batch")):
        for bars, one in zip(panel.containers, (one for one in lines if one["size"] == size), strict=True):
            np.testing.assert_allclose(np.asarray(bars[0].get_ydata(), float), one["times"])
            ends = np.array([segment[:, 1] for segment in bars[2][0].get_segments()]).T
            np.testing.assert_allclose(ends, one["quartiles"])
    assert "a processor, 2 cores" in drawn.get_supxlabel()


def test_lines_without_a_spread_are_drawn_without_bars():
    late = {"quartiles", "exponent quartiles", "rounds", "processor"}
    old = [{name: value for name, value in one.items() if name not in late} for one in both()]
    drawn = scaling.draw(old, "ms")
    assert all(not bars[2] for panel in drawn.axes for bars in panel.containers)
    assert fitting.smallest_text(drawn) >= page.SMALLEST
