"""Lines that are printed for people who copy from them."""

from __future__ import annotations

import pytest

from sweep.console.console import Verbosity
from sweep.console.messages import print_line


def test_a_line_is_printed_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    text = "out/a:b:/[red]x[/red] " + "long " * 50 + "end"
    print_line(Verbosity().info(), text)
    assert capsys.readouterr().out == f"{text}\n"
