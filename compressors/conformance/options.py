"""A plugin of pytest: the option --compressor of the conformance suite. Loads no torch."""

from __future__ import annotations

import pytest

chosen: list[str] = []
"""The methods that the command names; empty: all."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("gradsweep").addoption(
        "--compressor",
        action="append",
        default=[],
        metavar="NAME[,option=value...]",
        help="of compressors.conformance: test this method, such as mine:Chunk,chunk=7; several: give it again",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Hand the methods over to cases.py.

    Raises:
        pytest.UsageError: one of them cannot be built.
    """
    chosen[:] = config.getoption("--compressor")
    if chosen:
        from compressors.commands.method_specs import parse_all
        from gradsweep.errors import UsageError

        try:
            parse_all(chosen)
        except UsageError as error:
            raise pytest.UsageError(f"--compressor: {error}") from error
