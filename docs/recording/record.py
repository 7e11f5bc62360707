"""Record the first sweep in a terminal: first_sweep.cast, first_sweep.svg and report.png beside this file.

    python docs/recording/record.py

The commands of `make sweep` run in the checkout. The recording is in the format of asciinema (version 2):
`asciinema play docs/recording/first_sweep.cast`. The SVG is the last screen. report.png is the top of the report, if
chromium is installed.
"""

from __future__ import annotations

import codecs
import fcntl
import io
import itertools
import json
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COLUMNS, LINES = 120, 64
FRAME_S = 2.0
PAGE = (1300, 900)
"""Pixels of the picture of the report."""


def read_commands() -> list[str]:
    """Return the commands of the Makefile's target `sweep`, as a user types them."""
    recipe = re.search(r"^sweep:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    lines = re.sub(r"\\\n\s*", "", recipe[1]).splitlines()
    return [line.replace("$(VENV)/bin/", "").replace("$(ARGS)", "").strip() for line in lines]


def record(command: str) -> list[tuple[float, str]]:
    """Run a command in the checkout, in a terminal; return what it writes, with the seconds since its start.

    Raises:
        RuntimeError: it failed.
    """
    began, written = time.monotonic(), []
    words = [sys.executable, *shlex.split(command)[1:]]
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(ROOT)
        os.execve(words[0], words, {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # Linux's end of a terminal
            break
        if not piece:
            break
        written.append((time.monotonic() - began, decoder.decode(piece)))
    if os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]):
        raise RuntimeError(f"{command}: failed\n{''.join(text for _, text in written)}")
    return written


def draw_screen(text: str) -> str:
    """Return the last screen of a terminal that got this text, as SVG."""
    screen = pyte.Screen(COLUMNS, LINES)
    pyte.Stream(screen).feed(text)
    lines = [_read_line(screen, line) for line in range(LINES)]
    while lines and not lines[-1].plain:
        lines.pop()
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in lines:
        console.print(line, no_wrap=True, overflow="crop")
    return console.export_svg(title="make sweep")


def _read_line(screen: pyte.Screen, number: int) -> Text:
    cells = [screen.buffer[number][column] for column in range(COLUMNS)]
    line = Text()
    for (colour, is_bold), group in itertools.groupby(cells, lambda cell: (cell.fg, cell.bold)):
        named = colour.replace("brown", "yellow") if not re.fullmatch("[0-9a-f]{6}", colour) else f"#{colour}"
        line.append("".join(cell.data for cell in group), Style(color=named, bold=is_bold))
    line.rstrip()
    return line


def _draw_line(screen: pyte.Screen, number: int) -> str:
    """Return the characters that draw a line anew."""
    text = f"\x1b[{number + 1};1H\x1b[2K"
    for segment in _read_line(screen, number).render(Console(force_terminal=True)):
        style = segment.style or Style()
        text += style.render(segment.text.rstrip("\n"))
    return text


def draw_frames(events: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return events at least FRAME_S apart, each of which draws the lines that have changed."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream, frames = pyte.Stream(screen), []
    for number, (seconds, text) in enumerate(events):
        stream.feed(text)
        is_last = number == len(events) - 1
        if is_last or not frames or events[number + 1][0] - frames[-1][0] >= FRAME_S:
            frames.append((seconds, "".join(_draw_line(screen, line) for line in sorted(screen.dirty))))
            screen.dirty.clear()
    return frames


def main() -> None:
    before = set(ROOT.glob("output/*/*/report.html"))
    events: list[tuple[float, str]] = []
    for command in read_commands():
        start = events[-1][0] + 1 if events else 0.0
        events.append((start, f"\x1b[1m$ {command}\x1b[0m\r\n"))
        events += [(start + seconds, text) for seconds, text in record(command)]
    header = {"version": 2, "width": COLUMNS, "height": LINES, "title": "make sweep"}
    lines = [json.dumps(header), *(json.dumps([round(seconds, 2), "o", text]) for seconds, text in draw_frames(events))]
    (HERE / "first_sweep.cast").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (HERE / "first_sweep.svg").write_text(draw_screen("".join(text for _, text in events)), encoding="utf-8")
    (page,) = set(ROOT.glob("output/*/*/report.html")) - before
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser:
        words = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={PAGE[0]},{PAGE[1]}"]
        picture = f"--screenshot={HERE / 'report.png'}"
        subprocess.run([browser, *words, picture, page.as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    main()
