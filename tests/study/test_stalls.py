"""What `jaxattn train` and `jaxattn figures` say of seeds that stalled, from the record."""

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import numpy as np
import pytest

from jaxattn import records
from jaxattn.descent.stalling import NEVER
from jaxattn.study import command, runs, stalls
from jaxattn.study.configuration import composition

SMALL = ["seeds=3", "steps=300", "data.n=3", "data.T=4", "data.d=5", "weights=factored"]


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """The configurations of a run by the published rule and one by the exact one, and what the command said of each."""
    folder, found = tmp_path_factory.mktemp("runs"), {}
    for name, more in (("published", []), ("exact", ["optimizer=scale_free_gd"])):
        line = [*SMALL, *more, f"runs={folder}"]
        out, beside = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(beside):
            command.main(["train", *line])
        found[name] = composition.compose(line), out.getvalue(), beside.getvalue()
    return found


@pytest.mark.slow
def test_the_published_rule_is_said_to_stall(said):
    config, out, beside = said["published"]
    stalled = records.load(runs.record_path(config))["stalled"]
    assert stalled.dims == ("seed",)
    since = np.sort(stalled.values)
    assert since.shape == (3,)
    assert since[0] > 50
    assert out == f"{runs.record_path(config)}\n"
    assert beside.endswith(
        f"{runs.folder(config).name}: 3 of 3 seeds stalled: the gradient was lost to rounding, floor or penalty from "
        f"step {since[0]} on at the earliest, {since[1]} in the median; "
        "descent.normalized_gd(step, floor=0, penalty=0) does not stall\n"
    )


def test_the_exact_rule_is_not(said):
    config, out, beside = said["exact"]
    assert (records.load(runs.record_path(config))["stalled"] == NEVER).all()
    assert out == f"{runs.record_path(config)}\n"
    assert "stalled" not in beside
    both = stalls.line([config, said["published"][0]])
    assert both is not None
    assert both.startswith("3 of 6 seeds stalled, in 1 of 2 runs: ")
