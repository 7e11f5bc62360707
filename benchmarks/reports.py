"""What reports of large sweeps cost: time, memory and the size of the page.

    python benchmarks/reports.py [--runs 1000 10000] [--into docs/design/benchmarks.md]

Makes sweeps of so many runs of 1,000 steps (benchmarks/fabricated.py; 0.3 MB a run), reports on each, adds one more
run and reports again. Memory is that of all processes of the command together, what they share counted once, at its
highest.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # not benchmarks/, where `import reports` finds this file

from benchmarks.measuring import (  # noqa: E402
    ROOT,
    Finding,
    add_page_option,
    fill_with_findings,
    make_parser,
    measure_children_cpu,
    print_findings,
    read_memory,
    run_python,
)

MB = 1e6
ASKED_S = {1_000: 10.0, 10_000: 90.0}
MAKE = """
import sys
from pathlib import Path
from benchmarks import fabricated
getattr(fabricated, sys.argv[1])(Path(sys.argv[2]), *map(int, sys.argv[3:]))
"""
COLLECT = """
import sys, time
began = time.perf_counter()
import reports
found = reports.load(sys.argv[1])
found.runs, found.epochs, found.profile
print(time.perf_counter() - began)
"""


def measure(runs: int, steps: int, folder: Path) -> Iterator[Finding]:
    """Measure the reports of one sweep, which is written into `folder`, in an empty date."""
    sweep = folder / "2026-11-20" / str(runs)
    run_python(MAKE, "write_sweep", sweep, runs, steps)
    report = [sys.executable, "-m", "reports", str(sweep), "--quiet"]
    what = f"{runs:,} runs of {steps:,} steps"
    seconds, more, peak = observe(report)
    yield Finding(f"{what}: report", seconds, "s", ASKED_S.get(runs), more)
    yield Finding(f"{what}: memory", peak / MB, "MB", 2_000.0 if runs >= 10_000 else None)
    yield Finding(f"{what}: report.html", (sweep / "report.html").stat().st_size / MB, "MB", 20.0)
    run_python(MAKE, "add_run", sweep, runs)
    seconds, more, _ = observe(report)
    yield Finding(f"{what}: report again after one more run", seconds, "s", 3.0, more)
    yield Finding(f"{what}: in Python, all but `steps`, again", float(run_python(COLLECT, sweep)), "s")
    kept = sum(path.stat().st_size for path in (sweep / ".report-cache").iterdir())
    yield Finding(f"{what}: what is kept for the next time", kept / MB, "MB")


def observe(command: list[str]) -> tuple[float, str, int]:
    """Run a command that has to succeed; return seconds, CPU time in words, peak memory of its processes in bytes."""
    before, began = measure_children_cpu(), time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(_measure_memory, _list_family(process.pid))))
        time.sleep(0.25)
    seconds = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(f"failed: {' '.join(command)}")
    return seconds, f"cpu {measure_children_cpu() - before:.1f} s", peak


def _list_family(pid: int) -> list[int]:
    """Return the process and all below it."""
    try:
        texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        texts = []
    return [pid, *(below for text in texts for child in text.split() for below in _list_family(int(child)))]


def _measure_memory(pid: int) -> int:
    """Return the proportional set size of a process in bytes."""
    try:
        return read_memory(pid, "smaps_rollup").get("Pss", 0)
    except OSError:
        return 0


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--runs", type=int, nargs="+", default=[1_000, 10_000], metavar="RUNS", help="of a sweep")
    parser.add_argument("--steps", type=int, default=1_000, help="of a run")
    parser.add_argument("--folder", type=Path, help="where to make the sweeps, which stay there; else they are removed")
    add_page_option(parser)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        findings = (measure(runs, given.steps, given.folder or Path(folder)) for runs in given.runs)
        rows = print_findings(itertools.chain.from_iterable(findings))
    fill_with_findings(given.into, "reports", rows)


if __name__ == "__main__":
    main()
