"""The pictures that commands write: check their file names, and save them. Loads no matplotlib."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradsweep.errors import bad_value

SUFFIXES = (".png", ".svg", ".pdf")
TEXT = "#222222"
SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "gradsweep"}
"""Of matplotlib: letters of an SVG stay text, and the same picture is the same bytes again."""


def check(path: Path | None) -> None:
    """Raise UsageError if a `--picture` has none of the suffixes in SUFFIXES."""
    if path is not None and path.suffix.lower() not in SUFFIXES:
        raise bad_value("--picture", path, f"a file that ends in {', '.join(SUFFIXES)}")


@contextlib.contextmanager
def refuse_write_errors(option: str, path: Path) -> Iterator[None]:
    """Raise UsageError if the file that `option` asks for cannot be written within the block."""
    try:
        yield
    except OSError as error:
        raise bad_value(option, path, f"a file that can be written: {error.strerror}") from error


def save(figure: Any, path: Path, dpi: int) -> None:
    """Write a matplotlib.figure.Figure without the date, which matplotlib writes into SVGs by default.

    Raises:
        OSError: the file cannot be written.
    """
    figure.savefig(path, dpi=dpi, metadata={"Date": None} if path.suffix.lower() == ".svg" else {})
