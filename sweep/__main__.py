"""`python -m sweep COMMAND [DIR] ...`: look at a sweep and steer it, from any shell, also while it runs.

Exit status 0: all is well (of `watch` and `resume`: all runs are done); 1: some runs are not done; 2: it cannot be
done as typed, or for want of a disk; 128 + n: ended by signal n.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from gradsweep.cli.arguments import Parser
from gradsweep.cli.command_names import adapt_commands
from gradsweep.cli.version import version
from gradsweep.disk import disk_errors
from gradsweep.errors import UsageError
from gradsweep.options.hints import did_you_mean

COMMANDS = {
    "status": "how the runs of a sweep stand",
    "watch": "follow a sweep until it ends",
    "cancel": "end a sweep, or some of its runs",
    "resume": "compute what is missing, or what failed",
    "logs": "the end of a run's output",
    "probe": "measure the network that training would use",
}
DIRECTORY = """
DIR is the directory of a sweep, output/<date>/<time>; `last`, and nothing, is the one below output/ that was started or
resumed last. A RUN is its name, the beginning of one, a pattern such as 'compressor=qsgd*', or its signature;
DIR/RUN names both."""


def main(arguments: Sequence[str]) -> int:
    """Run a command and return the exit status; an error in the command line is printed in one line."""
    command = arguments[0] if arguments else "--help"
    if command in ("-h", "--help", "help"):
        print(_format_help())
        return 0
    if command == "--version":
        print(version())
        return 0
    if command not in COMMANDS:
        meant = did_you_mean(command, COMMANDS)
        print(f"python -m sweep: {command}: {meant}valid is one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    options = build_parser(command).parse_intermixed_args(arguments[1:])
    if sys.stdout is not None:  # None where standard output is closed
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        status = int(_import_command(command).run(options))
        sys.stdout.flush()
        return status
    except UsageError as error:
        print(adapt_commands(str(error)), file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        line = disk_errors.describe(error)
        if line is None and error.filename is None:
            raise
        print(line or f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 2


def build_parser(command: str) -> Parser:
    """Return the parser of a command's arguments."""
    module = _import_command(command)
    parser = Parser(
        prog=f"python -m sweep {command}",
        description="\n".join([(module.__doc__ or "").strip(), *([DIRECTORY] if command != "probe" else [])]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    return parser


def _import_command(command: str) -> ModuleType:
    return importlib.import_module(f"sweep.commands.{command}")


def _format_help() -> str:
    lines = [f"  {command:8} {summary}" for command, summary in COMMANDS.items()]
    last = "COMMAND --help tells the rest; --version prints what is installed."
    return "\n".join(["usage: python -m sweep COMMAND [DIR] ...", "", *lines, DIRECTORY, "", last])


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
