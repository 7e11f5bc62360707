"""Measure how far repeated ratios of throughput differ on a machine with neighbours, raced and trained in sequence.

    python benchmarks/race.py
    python benchmarks/race.py --neighbours 0 1 --repeats 3 --into docs/design/benchmarks.md

The same sweep is raced (`race=only`) and trained (`race=off`) several times in turn, while so many loops of other
programs are busy. The spread is the largest ratio over the smallest one, less 1.
"""

from __future__ import annotations

import argparse
import csv
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measuring import PROGRAM, keep_busy, make_parser, print_tables  # noqa: E402
from gradsweep.run_directory import SUMMARY  # noqa: E402

METHODS = ("qsgd", "svd")
WAYS = {"raced": ["race=only"], "trained": ["race=off", "max_steps=300"]}


def measure_ratios(words: Sequence[str]) -> dict[str, float]:
    """Run the sweep and return how many times as fast each method is as `none`."""
    with tempfile.TemporaryDirectory() as folder:
        sweep = Path(folder) / "sweep"
        grid = ["-m", f"compressor=none,{','.join(METHODS)}", f"hydra.sweep.dir={sweep}", *words]
        subprocess.run([*PROGRAM, "--quiet", *grid], check=True, stdout=subprocess.DEVNULL)
        with (sweep / SUMMARY).open() as file:
            rates = {row["compressor"]: float(row["iterations_per_second"]) for row in csv.DictReader(file)}
    return {name: rates[name] / rates["none"] for name in METHODS}


def compare(arguments: argparse.Namespace) -> Iterator[Sequence[str]]:
    """Yield the rows of the table."""
    repeats = range(arguments.repeats)
    yield ["busy loops", "throughput", "method", *(f"ratio {number + 1}" for number in repeats), "spread"]
    for loops in arguments.neighbours:
        found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        with keep_busy(loops):
            for _ in repeats:
                for way, words in WAYS.items():
                    found[way].append(measure_ratios([*words, *shlex.split(arguments.words)]))
        for way, ratios in found.items():
            for name in METHODS:
                values = [each[name] for each in ratios]
                spread = f"{100 * (max(values) / min(values) - 1):.1f} %"
                yield [str(loops), way, name, *(f"{value:.3f}" for value in values), spread]


def main(given: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="of each sweep (3)")
    parser.add_argument("--neighbours", type=int, nargs="+", default=[0, 1], help="busy loops beside the sweeps (0 1)")
    parser.add_argument("--words", default="workers=2", help="more overrides of the sweep (workers=2)")
    print_tables(parser, "race", {"ratios": compare}, given)


if __name__ == "__main__":
    main()
