"""`python -m reports PATH...` rebuilds the reports of sweeps; `python -m reports COMMAND ...` looks at what they left.

Exit status 0: all is well; 1: a report could not be written; 2: it cannot be done as typed; 130: ended by Ctrl-C.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from gradsweep.cli import command_names
from gradsweep.cli.arguments import Parser, Version
from gradsweep.disk import disk_errors
from gradsweep.errors import UsageError
from gradsweep.options.hints import did_you_mean

BUILD = "build"  # the command where none is named
COMMANDS = {
    "list": "every sweep: when, how its runs stand, and the best of them",
    "show": "one run: its config, result, attempts and files",
    "diff": "two runs side by side",
    "logs": "the end of a run's output",
    "watch": "follow a sweep in the terminal, with its tables so far",
    "serve": "a page that follows a sweep, for a browser",
    "network": "what a probe of a network has found",
    "advise": "which compressors are worth it for a model, without a sweep",
    "scaling": "predict other networks and more workers from a sweep's runs",
    "simulate": "steps of thousands of workers: stragglers, parameter servers, nodes, gossip",
    "prune": "delete checkpoints, or what failed attempts have left",
    "export": "write runs that have ended for TensorBoard or MLflow",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status; an error is printed in one line."""
    typed = sys.argv[1:] if arguments is None else arguments
    if sys.stdout is None:  # it was closed before the start; the reports are files anyway
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    # A log's or a terminal's encoding may lack the signs that names and tables have.
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    command = typed[0] if typed and typed[0] in COMMANDS else None
    parser = build_parser(command)
    program = command_names.NAME if command_names.is_typed() else "reports"
    try:
        options = parser.parse_intermixed_args(typed[command is not None :])
        status = int(_import_command(command).run(options))
        sys.stdout.flush()
        return status
    except UsageError as error:
        is_mistyped = bool(typed) and command is None and not os.path.exists(typed[0])
        meant = f"; {did_you_mean(typed[0], COMMANDS)}".removesuffix("; ").rstrip() if is_mistyped else ""
        print(command_names.adapt_commands(f"{program}: {error}{meant}"), file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        print(f"{program}: {disk_errors.describe(error) or _describe_error(error)}", file=sys.stderr)
        return 1


def build_parser(command: str | None) -> Parser:
    """Return the parser of a command's arguments; None: of the paths whose reports are built."""
    module = _import_command(command)
    parser = Parser(
        prog=f"python -m reports {command}" if command else "python -m reports",
        description=module.__doc__,
        epilog=None if command else _describe_commands(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if not command:
        parser.add_argument("--version", action=Version)
    module.add_arguments(parser)
    return parser


def _import_command(command: str | None) -> ModuleType:
    return importlib.import_module(f"reports.commands.{command or BUILD}")


def _describe_error(error: OSError) -> str:
    """Return a line on the file that a report cannot replace, or else the system's message."""
    in_the_way = isinstance(error, (FileExistsError, IsADirectoryError, NotADirectoryError))
    where = error.filename2 or error.filename
    return f"{os.fsdecode(where)}: {error.strerror}; valid is to remove it" if where and in_the_way else str(error)


def _describe_commands() -> str:
    lines = [f"  {command:8} {summary}" for command, summary in COMMANDS.items()]
    head = "commands (python -m reports COMMAND --help tells more; a path that is called so is written ./list):"
    return "\n".join([head, *lines])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
