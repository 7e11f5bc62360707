"""`python -m compressors`: what the methods promise, whether they keep it, and what they cost here."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compressors import registry
from gradsweep.cli.arguments import (
    Command,
    Parser,
    Version,
    parse_draws,
    parse_elements,
    parse_positive,
    parse_probability,
    parse_threads,
)
from gradsweep.cli.exit_status import run_command
from gradsweep.errors import UsageError
from gradsweep.plugins import load

_ELEMENTS = 11_200_000
_METHOD = "NAME[,option=value...]"
_NAMES = "NAME is that of a method, or of a class of your own, such as mine:Chunk or ./mine.py:Chunk."


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0; 1 if `check` finds a broken promise; 2 if the command cannot work; 128 + n if
    signal n ends it, such as Ctrl-C or a reader (`head`) that has read enough."""
    options = vars(build_parser().parse_args(arguments))
    return run_command("python -m compressors", lambda: _run(**options))


def _run(command: str, plugins: Sequence[str], **options: Any) -> int:
    registry()  # before plug-ins: those without a compressor are refused
    load(text for texts in plugins for text in texts.split(","))
    if command == "check" and options.pop("everything") == bool(options["names"]):
        raise UsageError("check: give names, or --all")
    if command == "bench":
        if options["elements"] and options["model"] != "flat":
            raise UsageError(
                f"--elements {options['elements']}: valid with --model flat, which is one tensor of that size"
            )
        options["elements"] = options["elements"] or _ELEMENTS
    status: int = importlib.import_module(f"compressors.commands.{command}").run(**options)
    return status


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of all commands; `command` makes no difference."""
    parser = Parser(prog="python -m compressors", description=__doc__)
    parser.add_argument("--version", action=Version)
    commands = parser.add_subparsers(
        dest="command", required=True, parser_class=Command, metavar="list|show|check|bench"
    )

    def add(name: str, summary: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}. {_NAMES}")
        words = (
            "load this file or module with methods first, such as ./mine.py (docs/guide/plugins.md); several: a comma"
        )
        one.add_argument("--plugins", action="append", default=[], metavar="FILE", help=words)
        return one

    one = add("list", "all methods: names, laws, bits per element, papers")
    one.add_argument("names", nargs="*", metavar=_METHOD, help="only these")
    one.add_argument("--into", type=Path, metavar="PAGE", help="fill the part 'methods' of a Markdown page instead")

    one = add("show", "one method: what it does, options, laws, payloads, kernels")
    one.add_argument("name", metavar=_METHOD, help="the method")

    one = add("check", "measure whether methods keep what they promise")
    one.add_argument("names", nargs="*", metavar=_METHOD, help="the methods, or --all")
    one.add_argument("--all", dest="everything", action="store_true", help="every method with its defaults")
    one.add_argument("--draws", type=parse_draws, default=300, help="of Q(x) for each input (default: %(default)s)")
    one.add_argument(
        "--error-level",
        type=parse_probability,
        default=1e-6,
        help="probability of a false alarm, over everything in the call (default: %(default)s)",
    )

    one = add("bench", "time, bytes and error, and the bandwidth below which a method pays")
    one.add_argument("names", nargs="*", metavar=_METHOD, help="default: all")
    one.add_argument(
        "--model",
        choices=("flat", "resnet18"),
        default="flat",
        help="one flat tensor, or ResNet-18's layers, which methods that need matrices always get (default: flat)",
    )
    one.add_argument("--elements", type=parse_elements, help=f"of the flat tensor (default: {_ELEMENTS})")
    one.add_argument("--threads", type=parse_threads, default=1, help="for torch (default: %(default)s)")
    one.add_argument("--repeats", type=parse_positive, default=9, help="counted repetitions (default: %(default)s)")
    one.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where (default: %(default)s)")
    one.add_argument(
        "--kernels",
        choices=("auto", "numba", "triton", "torch"),
        default="auto",
        help="which implementation; auto: what suits the device (default: %(default)s)",
    )
    where = one.add_mutually_exclusive_group()
    where.add_argument(
        "--output", type=Path, metavar="DIR", help="for bench.csv and bench.png (default: output/bench/<date-time>)"
    )
    where.add_argument("--into", type=Path, metavar="PAGE", help="fill the part 'bench' of a Markdown page instead")
    return parser


if __name__ == "__main__":
    sys.exit(main())
