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
from trainers.topology import build, check, tables
from trainers.topology.arguments import NAMES, parse_topologies, parse_workers
from trainers.topology.mixing import Mixing

PART = "topologies"
"""The part of docs/guide/decentralised.md that the table stands in."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0, or that of what kept it from an answer (`gradsweep/cli/exit_status.py`)."""
    parser = _build_parser()
    given = parser.parse_intermixed_args(arguments)  # options may stand between words
    return run_command(parser.prog, lambda: _answer(given), UsageError)


def _answer(given: argparse.Namespace) -> int:
    picture_files.check(given.picture)
    payload = None
    if given.parameters is not None:
        payload = tables.measure_payload(given.parameters, given.compressor or "none")
    elif given.compressor is not None:
        raise UsageError("--compressor: valid is together with --parameters, how many the model has")
    chosen = parse_topologies(given.words)
    found = [(one, build(one, given.workers)) for one in chosen] or _build_possible(given.workers)
    if given.into:
        table = format_markdown(tables.compare(found, payload))
        markdown_sections.fill(given.into, PART, f"{tables.build_heading(found, payload)}:\n\n{table}")
    elif len(chosen) == 1:
        print_table(tables.list_facts(*found[0], payload))
    else:
        print(tables.build_heading(found, payload))
        print_table(tables.compare(found, payload))
        for line in [] if chosen else _explain_refusals(given.workers):
            print(line)
    if given.picture:
        _draw(found, given.picture)
    return 0


def _build_parser() -> argparse.ArgumentParser:
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


def _list_all() -> list[Any]:
    """All topologies that need no file, with their defaults."""
    return [cls() for cls in TOPOLOGIES.values() if cls not in (NoTopology, Edges)]


def _build_possible(workers: int) -> list[tuple[Any, Mixing]]:
    """Those of them that so many workers can have."""
    return [(options, build(options, workers)) for options in _list_all() if not _explain_refusal(options, workers)]


def _explain_refusals(workers: int) -> list[str]:
    """Why they cannot have the others, and what there is instead."""
    return [why for options in _list_all() if (why := _explain_refusal(options, workers))]


def _explain_refusal(options: Any, workers: int) -> str | None:
    try:
        check(options, workers)
    except UsageError as error:
        return str(error)
    return None


def _draw(found: Sequence[tuple[Any, Mixing]], path: Path) -> None:
    from trainers.topology import picture  # loads matplotlib

    with picture_files.refuse_write_errors("--picture", path):
        picture.draw([picture.Panel(options, mixing) for options, mixing in found], path)


if __name__ == "__main__":
    sys.exit(main())
