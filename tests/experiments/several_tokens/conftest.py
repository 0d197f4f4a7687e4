"""A screening of a few runs, trained once for all tests that look at it."""

import pytest

from jaxattn import records
from jaxattn.study.settings import recording
from jaxattn.study.settings.training import Screening
from tests.experiments.several_tokens.runs import setting


@pytest.fixture(scope="session")
def record(tmp_path_factory):
    """So few steps that most runs are excluded, and some kept."""
    path = tmp_path_factory.mktemp("runs") / "record.zarr"
    recording.run(setting(Screening, 40, 2000, 500), path, {})
    return records.load(path)
