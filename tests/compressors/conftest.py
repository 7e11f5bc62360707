"""Fixtures of all tests of compressors."""

from __future__ import annotations

import pytest

from compressors import Compressor, build
from compressors.conformance.conftest import limit_torch_threads

__all__ = ["compressor", "limit_torch_threads"]


@pytest.fixture
def compressor(request: pytest.FixtureRequest) -> Compressor:
    """The case (name, options), built."""
    name, options = request.param
    return build(name, **options)
