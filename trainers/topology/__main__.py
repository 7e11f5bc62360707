"""Topologies for decentralised training: what their mixing matrices promise, what a step sends, and a picture.

Of one topology its facts; of several, or without a name of all that so many workers can have, a table to choose by.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradsweep.cli import arguments, markdown_sections, picture_files
from gradsweep.cli.arguments import Parser
from gradsweep.cli.exit_status import run_command
from gradsweep.cli.tables import format_markdown, print_table
from gradsweep.errors import UsageError
from trainers.options.topologies import TOPOLOGIES, Edges, NoTopology
from trainers.topology import build, tables
from trainers.topology.arguments import NAMES, parse_topologies, parse_workers
from trainers.topology.mixing import Mixing

PART = "topologies"
"""The part of docs/guide/topologies.md that the table stands in."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return exit status 0, or that of the error (`gradsweep/cli/exit_status.py`)."""
    parser = build_parser()
    given = parser.parse_intermixed_args(arguments)  # options may stand between words
    return run_command(parser.prog, lambda: _answer(given))


def _answer(given: argparse.Namespace) -> int:
    picture_files.check(given.picture)
    payload = None
    if given.parameters is not None:
        payload = tables.measure_payload(given.parameters, given.compressor or "none")
    elif given.compressor is not None:
        raise UsageError("--compressor: valid is together with --parameters, how many the model has")
    chosen = parse_topologies(given.words)
    refusals: list[str] = []
    if chosen:
        topologies = [(options, build(options, given.workers)) for options in chosen]
    else:
        topologies, refusals = _try_all(given.workers)
    if given.into:
        table = format_markdown(tables.compare(topologies, payload))
        markdown_sections.fill(given.into, PART, f"{tables.build_heading(topologies, payload)}:\n\n{table}")
    elif len(chosen) == 1:
        print_table(tables.list_facts(*topologies[0], payload))
    else:
        print(tables.build_heading(topologies, payload))
        print_table(tables.compare(topologies, payload))
        for line in refusals:
            print(line)
    if given.picture:
        from trainers.topology import picture  # loads matplotlib

        with picture_files.refuse_write_errors("--picture", given.picture):
            picture.draw(topologies, given.picture)
    return 0


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the arguments; `command` makes no difference."""
    parser = Parser(
        prog="python -m trainers.topology",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n"
        "  python -m trainers.topology --workers 16\n"
        "  python -m trainers.topology ring --workers 16 --picture ring.png\n"
        "  python -m trainers.topology torus topology.rows=2 --workers 16 --parameters 11.2e6 --compressor sign_norm\n"
        "  python -m trainers.topology edges topology.file=links.txt --workers 8\n",
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="NAME | topology.OPTION=VALUE",
        help=f"{', '.join(NAMES)}; their options as in a run (conf/topology)",
    )
    parser.add_argument(
        "--workers", type=parse_workers, default=16, metavar="N", help="how many (default: %(default)s)"
    )
    parser.add_argument(
        "--parameters", type=arguments.parse_elements, metavar="N", help="of the model: a step's bytes are counted, too"
    )
    parser.add_argument(
        "--compressor", metavar="NAME[,option=value...]", help="what these are sent with (default: none, 32 bits each)"
    )
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put the table between the comments in this page")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the graphs: .png, .svg or .pdf")
    return parser


def _try_all(workers: int) -> tuple[list[tuple[Any, Mixing]], list[str]]:
    """Build all topologies that need no file, with their default options.

    Returns:
        The topologies that this number of workers can have, and error messages about the others.
    """
    possible: list[tuple[Any, Mixing]] = []
    refusals: list[str] = []
    for options in (cls() for cls in TOPOLOGIES.values() if cls not in (NoTopology, Edges)):
        try:
            possible.append((options, build(options, workers)))
        except UsageError as error:
            refusals.append(str(error))
    return possible, refusals


if __name__ == "__main__":
    sys.exit(main())
