"""Fixtures of all tests of compressors."""

from __future__ import annotations

import pytest

from compressors import Compressor, build
from compressors.conformance.conftest import one_torch_thread

__all__ = ["compressor", "one_torch_thread"]


@pytest.fixture
def compressor(request: pytest.FixtureRequest) -> Compressor:
    """The case (name, options), built."""
    name, options = request.param
    return build(name, **options)
