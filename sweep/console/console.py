"""Standard output: for people; with `--quiet` only errors, with `--json` JSON lines for machines."""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any, TextIO

from rich.console import Console


class Stream:
    """A stream that reports all its errors (full disk, closed terminal) to rich as a broken pipe."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except UnicodeEncodeError:  # a log or a terminal whose encoding lacks a sign
            encoding = self._stream.encoding or "ascii"
            return self.write(text.encode(encoding, "replace").decode(encoding))
        except (OSError, ValueError) as error:
            raise BrokenPipeError from error

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError) as error:
            raise BrokenPipeError from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Output(Console):
    """A rich console on standard output; if the reader has ended (`| head`), the sweep continues without output.

    Live displays need a terminal; FORCE_COLOR=1, as in the log of a CI, turns on colours only.
    """

    def __init__(self, stderr: bool = False, quiet: bool = False) -> None:
        stream: Any = sys.stderr if stderr else sys.stdout
        stream = getattr(stream, "rich_proxied_file", stream)  # while rich shows something live, it stands in between
        self._number = 2 if stderr else 1
        on_terminal = stream is not None and stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
        super().__init__(
            file=None if stream is None else Stream(stream),  # type: ignore[arg-type]
            quiet=quiet or stream is None,
            force_interactive=on_terminal,
        )

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._number)


@dataclasses.dataclass(frozen=True)
class Verbosity:
    """How much a sweep prints, and in which form."""

    quiet: bool = False
    json: bool = False

    @property
    def is_terse(self) -> bool:
        """Whether progress is not printed."""
        return self.quiet or self.json

    def info(self) -> Output:
        """Return the console for progress."""
        return Output(quiet=self.is_terse)

    def errors(self) -> Output:
        """Return the console for failures and the resume command: standard error if standard output has JSON lines."""
        return Output(stderr=self.json)
