"""Measure what sweeps cost: one part, or several.

    python benchmarks/sweep.py PART [options of the part]
    python benchmarks/sweep.py PART PART ... | all [--into docs/design/benchmarks.md]

Each figure stands beside what is asked of it. `python benchmarks/sweep.py PART --help` says what a part measures.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # not benchmarks/, where `import sweep` would find this file

from benchmarks.sweeps.measuring import HEADINGS, markdown  # noqa: E402
from gradsweep.cli import markdown_sections  # noqa: E402

PARTS = {
    "plan": "a dry run of 1,000 points",
    "compose": "Hydra composing points one by one, and the launcher all of them",
    "resume": "the same command again when its 1,000 runs are finished",
    "memory": "the launcher's peak with 10,000 points",
    "status": "`python -m sweep status` of 10,000 runs",
    "added": "what a run costs beyond its mpirun; the command line",
    "slots": "how much of two slots 100 short runs use",
    "pack": "the main sweep with sweep.pack=true, and without",
}
PAGE_PART = "sweeps"


def parser_of(part: str) -> argparse.ArgumentParser:
    """What a part can be told."""
    module = importlib.import_module(f"benchmarks.sweeps.{part}")
    parser = argparse.ArgumentParser(
        prog=f"benchmarks/sweep.py {part}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.options(parser)
    return parser


def measure(part: str, options: list[str]) -> list[list[str]]:
    """Measure a part, print each finding at once, and return the rows of the table of all parts."""
    rows = []
    for found in importlib.import_module(f"benchmarks.sweeps.{part}").measure(parser_of(part).parse_args(options)):
        rows.append([f"`{part}`: {found.what}", found.seen, found.asked])
        print(f"{part}: {found.what}: {found.seen}{f'; asked: {found.asked}' if found.asked else ''}", flush=True)
    return rows


def main() -> None:
    words = sys.argv[1:]
    first = next((number for number, word in enumerate(words) if word.startswith("-")), len(words))
    parts, options = words[:first], words[first:]
    if len(parts) == 1 and parts[0] in PARTS:
        measure(parts[0], options)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    about = "; ".join(f"{name}: {what}" for name, what in PARTS.items())
    parser.add_argument("parts", nargs="+", metavar="PART", choices=[*PARTS, "all"], help=f"{about}; all")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put the tables between the comments in this page")
    arguments = parser.parse_args()
    rows = [row for part in (PARTS if "all" in arguments.parts else arguments.parts) for row in measure(part, [])]
    text = markdown(HEADINGS, rows)
    if arguments.into:
        markdown_sections.fill(arguments.into, PAGE_PART, text)


if __name__ == "__main__":
    main()
