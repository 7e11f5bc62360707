"""The option --compressor of the conformance suite; garbage collection of all tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

pytest_plugins = ["compressors.conformance.options"]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector from what stays for the whole session: thousands of tests and what they import."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result
