"""A step that takes long says how far it is."""

from __future__ import annotations

import io
import sys

import pytest

from sweep.console import step_counter
from sweep.console.flags import Flags


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock on which every look takes as long as the first element says."""
    step, now = [1.0], [0.0]

    def look() -> float:
        now[0] += step[0]
        return now[0]

    monkeypatch.setattr(step_counter.time, "monotonic", look)
    return step


def said(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, count: int, silent: bool = False) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(step_counter.count_through("points checked", range(count), silent=silent)) == list(range(count))
    return stream.getvalue()


def test_a_long_step_says_how_far_it_is_in_a_line_that_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    out = said(monkeypatch, Terminal(), 5000)
    assert "\rpoints checked: 4,999 of 5,000\x1b[K" in out and "\n" not in out and out.endswith("\r\x1b[K")


def test_in_a_pipe_there_are_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = said(monkeypatch, io.StringIO(), 40).splitlines()
    assert lines[0] == "points checked: 10 of 40" and 3 <= len(lines) <= 4


def test_a_short_step_says_nothing(monkeypatch: pytest.MonkeyPatch, seconds: list[float]) -> None:
    seconds[0] = 0.001
    assert said(monkeypatch, Terminal(), 1000) == ""


@pytest.mark.parametrize("flags", [Flags(quiet=True), Flags(json=True)])
def test_nobody_is_told_who_does_not_want_to_be(monkeypatch: pytest.MonkeyPatch, flags: Flags) -> None:
    assert said(monkeypatch, Terminal(), 5000, flags.is_terse) == ""


def test_a_step_goes_on_where_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    assert said(monkeypatch, Gone(), 100) == ""


def test_a_step_that_fails_leaves_the_terminal_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    with pytest.raises(ZeroDivisionError):
        for number in (items := step_counter.count_through("points checked", range(9))):
            1 // (number - 8)
    items.close()
    assert stream.getvalue().endswith("\r\x1b[K")
