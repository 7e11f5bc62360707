"""The end of a command: its exit status, and one line if the command cannot work."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable

from gradsweep.cli.command_names import adapt_commands
from gradsweep.errors import UsageError

MEANINGS = {
    "0": "success; of a command that computes or follows runs: all of them are `done` or `pruned`",
    "1": "some runs are not `done` or `pruned`; or a report could not be written; or `--fail-on` applies",
    "2": "the command could not work; one line says why, and nothing was started",
    "128 + n": "signal n ended the command: 130 for Ctrl-C, 143 for SIGTERM, 129 for a closed terminal",
}
"""The exit statuses of all commands; docs/reference/exit-statuses.md is generated from here."""


def run_command(program: str, ask: Callable[[], int], *refusals: type[Exception]) -> int:
    """Run a command by calling `ask`, and return the command's exit status; print one line to stderr if it fails.

    Args:
        program: the command's name, as typed with `python`; the line begins with it (see command_names.py).
        ask: does the command's work, and returns the exit status.
        refusals: besides UsageError, exceptions whose text says in one line why the command cannot work.

    Returns:
        The result of `ask`; 2 if the command cannot work or its output cannot be written; 128 + n if signal n ends
        it: SIGINT after Ctrl-C, SIGPIPE if a reader such as `head` has closed the pipe.
    """
    program = adapt_commands(program)
    refused: tuple[type[Exception], ...] = (UsageError, *refusals)
    try:
        if sys.stdout is None:
            raise UsageError("standard output is closed")
        status = ask()
        sys.stdout.flush()
        return status
    except refused as error:
        print(f"{program}: {adapt_commands(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        _drop_output()
        return 128 + signal.SIGPIPE
    except OSError as error:  # one without a name is that of a full disk behind the output
        print(f"{program}: {error.filename or 'standard output'}: {error.strerror}", file=sys.stderr)
        _drop_output()
        return 2


def _drop_output() -> None:
    """Discard output that is not written yet: Python would try to write it again at the end."""
    with contextlib.suppress(OSError):  # a stream that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
