"""Texts that several modules of these tests share."""

import pytest

from tests.language import texts


@pytest.fixture(scope="module", params=texts.CANDIDATES)
def choices(request):
    """A text of the shared shape, with either kind of candidates."""
    return texts.drawn(request.param)
