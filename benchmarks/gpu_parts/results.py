"""The results of the parts of benchmarks/gpu.py: each is written as soon as it is there."""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]
"""A result: `part` and `case` name it; what else it has depends on the part."""

ROOT = Path(__file__).resolve().parent.parent.parent

LINES, SUMMARY = "gpu.jsonl", "gpu.json"


@dataclasses.dataclass
class Context:
    """The name of a part, the folder of its results, and its deadline.

    Attributes:
        device: "cuda", or "cpu" in a dry run.
        dry: measure tiny sizes, to see that everything works.
        full: measure more, without regard to time.
        end: of the part, by time.monotonic().
    """

    part: str
    folder: Path
    device: str
    dry: bool
    full: bool
    end: float
    begun: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def seconds_left(self) -> float:
        return self.end - time.monotonic()

    def write(self, case: str, text: str, **values: Any) -> None:
        """Write a result to the file, and print it as a line."""
        at = round(time.monotonic() - self.begun, 1)
        record = {"part": self.part, "case": case, "at_s": at, **values}
        with (self.folder / LINES).open("a") as lines:
            lines.write(json.dumps(record) + "\n")
        print(f"{at:6.1f} s {self.part:9} {case:30} {text}", flush=True)

    def has_time(self, rest: Sequence[object] | int) -> bool:
        """Tell whether there is time for another case; if not, write which ones are left out."""
        if self.seconds_left > 0:
            return True
        left = rest if isinstance(rest, int) else len(rest)
        self.write("left out", f"{left} cases: no time left", left_out=left)
        return False


def build_environment(**variables: str) -> dict[str, str]:
    """Return the environment of a process that imports from this checkout; by default with one thread."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **variables}


def read_lines(path: Path) -> list[Record]:
    """Return the results in a file of JSON lines; the last may have been cut short."""
    records = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return records


def compute_spread(values: Iterable[float]) -> float:
    """Return the relative distance of the quartiles of repeated measurements."""
    values = sorted(values)
    if len(values) < 3:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / middle if middle else 0.0


COMPARED = ("copies", "step_ms")
"""The figures that later runs are compared with; `spread` beside them has their relative noise."""
_LEAST = 0.05


def compare(old: Iterable[Record], new: Iterable[Record]) -> list[str]:
    """Return a line for each figure that differs by more than both spreads."""
    before = {(one["part"], one["case"]): one for one in old}
    lines = []
    for record in new:
        earlier = before.get((record["part"], record["case"]), {})
        for figure in COMPARED:
            if not earlier.get(figure) or not record.get(figure):
                continue
            ratio = record[figure] / earlier[figure]
            noise = max(_LEAST, earlier.get("spread", 0.0) + record.get("spread", 0.0))
            if abs(ratio - 1) > noise:
                verb = "slower" if ratio > 1 else "faster"
                change = f"{earlier[figure]:.3g} -> {record[figure]:.3g} {figure}"
                lines.append(f"{record['part']}: {record['case']}: {verb}: {change} ({100 * (ratio - 1):+.0f} %)")
    return lines
