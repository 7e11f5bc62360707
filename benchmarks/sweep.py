"""Measure what sweeps cost: one part, or several.

    python benchmarks/sweep.py PART [options of the part]
    python benchmarks/sweep.py PART PART ... | all [--into docs/design/benchmarks.md]

Each figure stands beside what is asked of it. `python benchmarks/sweep.py PART --help` says what a part measures.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # not benchmarks/, where `import sweep` would find this file

from benchmarks.measuring import add_page_option, fill_with_findings, make_parser, print_findings  # noqa: E402
from benchmarks.sweeps import added, large, pack, slots  # noqa: E402

PARTS = {
    part.__name__.removeprefix("measure_"): part
    for part in (large.plan, large.compose, large.resume, large.memory, large.status)
    + (added.measure_added, slots.slots, pack.pack)
}
"""The functions that measure a part, by the name of the part; their parameters are its options."""


def measure(part: str, words: list[str]) -> list[list[str]]:
    """Measure a part with its options and print each finding at once; return the rows of the table of all parts."""
    parser = make_parser(inspect.getdoc(PARTS[part]))
    parser.prog = f"benchmarks/sweep.py {part}"
    for name, parameter in inspect.signature(PARTS[part]).parameters.items():
        several = isinstance(parameter.default, tuple)
        kind = str if several else type(parameter.default)
        nargs = "+" if several else None
        parser.add_argument(f"--{name}", type=kind, nargs=nargs, default=parameter.default, help="default: %(default)s")
    return print_findings(PARTS[part](**vars(parser.parse_args(words))), part)


def main() -> None:
    words = sys.argv[1:]
    if words and words[0] in PARTS and (len(words) == 1 or words[1].startswith("-")):
        measure(words[0], words[1:])
        return
    parser = make_parser(__doc__)
    about = "; ".join(f"{name}: {(part.__doc__ or '').splitlines()[0]}" for name, part in PARTS.items())
    parser.add_argument("parts", nargs="+", metavar="PART", choices=[*PARTS, "all"], help=f"{about}; all")
    add_page_option(parser)
    arguments = parser.parse_args()
    rows = [row for part in (PARTS if "all" in arguments.parts else arguments.parts) for row in measure(part, [])]
    fill_with_findings(arguments.into, "sweeps", rows)


if __name__ == "__main__":
    main()
