"""Averaging consensus, simulated: how quickly workers agree over a topology with a compressor, and with which stepsize.

Every worker starts with a vector of normal numbers, and all go to their mean by messages to neighbours, as parameters
do in decentralised training between the gradients.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from compressors import Compressor, Key
from compressors.base import Cooperative
from compressors.commands import method_specs
from gradsweep.cli import picture_files
from gradsweep.cli.arguments import Parser, make_integer_type
from gradsweep.cli.exit_status import run_command
from gradsweep.cli.tables import print_table
from gradsweep.errors import UsageError, bad_value
from trainers.consensus import tables
from trainers.consensus.simulate import SCHEMES, Channel, Course, draw_start_vectors, run
from trainers.consensus.stepsize_tuning import tune_stepsize
from trainers.topology import build
from trainers.topology.arguments import parse_topologies, parse_workers
from trainers.topology.mixing import Mixing

_TUNED = ("choco", "deep_squeeze")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return exit status 0, or that of the error (`gradsweep/cli/exit_status.py`)."""
    parser = _parser()
    given = parser.parse_intermixed_args(arguments)  # options may stand between words
    return run_command(parser.prog, lambda: _answer(given))


def _answer(given: argparse.Namespace) -> int:
    picture_files.check(given.picture)
    topologies = parse_topologies(given.topology)
    if len(topologies) != 1:
        raise bad_value("topology", " ".join(given.topology), "one topology")
    mixing = build(topologies[0], given.workers)
    compressor = _compressor(given.compressor)
    courses = {}
    for scheme in given.schemes:
        stepsize = _stepsize(scheme, given, mixing, compressor)
        courses[scheme] = stepsize, _course(scheme, stepsize, given, mixing, compressor)
    print(
        f"{' '.join(given.topology)} of {given.workers} workers: spectral gap {mixing.gap:.4g}; "
        f"{given.dimension} elements, compressor={method_specs.format_spec(compressor)}"
    )
    print_table(tables.build_table(courses, mixing))
    print(tables.NOTE)
    if given.csv is not None:
        with picture_files.refuse_write_errors("--csv", given.csv):
            tables.write(courses, given.csv)
    if given.picture is not None:
        from trainers.consensus import picture  # loads matplotlib

        title = f"{' '.join(given.topology)}, {method_specs.format_spec(compressor)}"
        lines = {scheme: (f"{scheme}, {stepsize:.3g}", course) for scheme, (stepsize, course) in courses.items()}
        with picture_files.refuse_write_errors("--picture", given.picture):
            picture.draw(title, lines, given.picture)
    return 0


def _stepsizes(text: str) -> float | None:
    """Parse a stepsize; None means the search."""
    value = None if text == "tune" else float(text)
    if value is not None and not 0 < value <= 1:
        raise ValueError(text)
    return value


def _schemes(text: str) -> list[str]:
    schemes = text.split(",")
    if not set(schemes) <= set(SCHEMES) or len(set(schemes)) < len(schemes):
        raise ValueError(text)
    return schemes


_at_most = make_integer_type(f"integer from 1 to {10**7}", 1, 10**7)
_stepsizes.__name__ = "stepsize (a number above 0 up to 1, or tune)"  # in the line of an error
_schemes.__name__ = f"list (with commas, of {', '.join(SCHEMES)}, each once)"


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m trainers.consensus",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n"
        "  python -m trainers.consensus ring --workers 16 --compressor topk,ratio=0.01\n"
        "  python -m trainers.consensus torus topology.rows=2 --workers 16 --compressor qsgd --scheme choco,q2,exact "
        "--picture agree.png\n",
    )
    add = parser.add_argument
    add("topology", nargs="+", metavar="TOPOLOGY [topology.OPTION=VALUE]", help="as in a run (conf/topology)")
    add("--workers", type=parse_workers, default=16, metavar="N", help="how many (default: %(default)s)")
    add("--compressor", default="topk,ratio=0.01", metavar="NAME[,option=value...]", help="default: %(default)s")
    add(
        "--scheme",
        dest="schemes",
        type=_schemes,
        default=["choco"],
        metavar="NAME[,NAME...]",
        help=f"{', '.join(SCHEMES)} (default: choco)",
    )
    add(
        "--stepsize",
        type=_stepsizes,
        default=None,
        metavar="NUMBER|tune",
        help="gamma; tune searches for that of choco and deep_squeeze, and takes 1 for the others (default: tune)",
    )
    add("--dimension", type=_at_most, default=2000, metavar="D", help="elements of a vector (default: %(default)s)")
    add("--iterations", type=_at_most, default=1000, metavar="N", help="default: %(default)s")
    add("--seed", type=int, default=0, metavar="N", help="of the vectors and the messages (default: %(default)s)")
    add("--picture", type=Path, metavar="FILE", help="error against iterations and bits: .png, .svg or .pdf")
    add("--csv", type=Path, metavar="FILE", help="the same numbers, a line an iteration")
    return parser


def _compressor(text: str) -> Compressor:
    """Parse a compressor, and refuse it unless a neighbour can decode its payloads alone."""
    compressor = method_specs.parse(text, "--compressor")
    if (
        isinstance(compressor, Cooperative)
        or compressor.needs_movement
        or compressor.follows_mean
        or compressor.needs_agreement(Key(0, 0, 1, 0))
        or compressor.scale_free
    ):
        valid = "a compressor that one worker can use without the others, and that keeps the size of a vector"
        raise bad_value("--compressor", text, f"{valid}, as sign_norm does")
    return compressor


def _stepsize(scheme: str, given: argparse.Namespace, mixing: Mixing, compressor: Compressor) -> float:
    if given.stepsize is not None or scheme not in _TUNED:
        return given.stepsize or 1.0
    try:
        return tune_stepsize(None, mixing, compressor, [(given.dimension,)], given.seed, scheme)
    except ValueError as error:
        raise _unfit(scheme, error) from error


def _course(scheme: str, stepsize: float, given: argparse.Namespace, mixing: Mixing, compressor: Compressor) -> Course:
    start = draw_start_vectors(given.workers, given.dimension, given.seed)
    channel = Channel(compressor, [(given.dimension,)], given.workers, given.seed)
    try:
        return run(SCHEMES[scheme](start, mixing, channel, stepsize), given.iterations)
    except ValueError as error:
        raise _unfit(scheme, error) from error


def _unfit(scheme: str, error: ValueError) -> UsageError:
    return bad_value("--scheme", scheme, f"with a topology that has {error}")


if __name__ == "__main__":
    sys.exit(main())
