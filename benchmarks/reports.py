"""What reports of large sweeps cost: time, memory and the size of the page.

    python benchmarks/reports.py [--runs 1000 10000] [--into docs/design/benchmarks.md]

Makes sweeps of so many runs of 1,000 steps (benchmarks/fabricated.py; 0.33 MB a run), reports on each, adds one more
run and reports again. Memory is that of all processes of the command together, what they share counted once, at its
highest.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # not benchmarks/, where `import reports` would find this file

from benchmarks.sweeps.measuring import HEADINGS, Finding, markdown  # noqa: E402
from gradsweep.cli import markdown_sections  # noqa: E402

PART = "reports"
MB = 1e6
ASKED_S = {1_000: 10.0, 10_000: 90.0}
ASKED_AGAIN_S = 3.0
ASKED_MEMORY_MB, ASKED_PAGE_MB = 2_000.0, 20.0

MAKE = "from pathlib import Path; from benchmarks import fabricated; import sys; fabricated.{call}"
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
    asked = ASKED_S.get(runs)
    large = runs >= 10_000
    _run_python(
        MAKE.format(call="write_sweep(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))"), sweep, runs, steps
    )
    report = [sys.executable, "-m", "reports", str(sweep), "--quiet"]
    what = f"{runs:,} runs of {steps:,} steps"
    seconds, more, peak = observe(report)
    yield Finding(f"{what}: report", seconds, "s", asked, more)
    yield Finding(f"{what}: memory", peak / MB, "MB", ASKED_MEMORY_MB if large else None)
    yield Finding(f"{what}: report.html", (sweep / "report.html").stat().st_size / MB, "MB", ASKED_PAGE_MB)
    _run_python(MAKE.format(call="add_run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))"), sweep, runs, steps)
    seconds, more, _ = observe(report)
    yield Finding(f"{what}: report again after one more run", seconds, "s", ASKED_AGAIN_S, more)
    yield Finding(f"{what}: in Python, all but `steps`, again", float(_run_python(COLLECT, sweep)), "s")
    kept = sum(path.stat().st_size for path in (sweep / ".report-cache").iterdir())
    yield Finding(f"{what}: what is kept for the next time", kept / MB, "MB")


def observe(command: list[str]) -> tuple[float, str, int]:
    """Run a command that has to succeed; returns seconds, CPU time in words, peak memory of its processes in bytes."""
    before = os.times()
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(_read_memory, _list_family(process.pid))))
        time.sleep(0.25)
    seconds = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(f"failed: {' '.join(command)}")
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, f"cpu {cpu:.1f} s", peak


def _list_family(pid: int) -> list[int]:
    """Return the process and all below it."""
    try:
        texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        texts = []
    return [pid, *(one for text in texts for child in text.split() for one in _list_family(int(child)))]


def _read_memory(pid: int) -> int:
    """Return the proportional set size of a process in bytes."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def _run_python(code: str, *words: object) -> str:
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return done.stdout.decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, nargs="+", default=[1_000, 10_000], metavar="RUNS", help="of a sweep")
    parser.add_argument("--steps", type=int, default=1_000, help="of a run")
    parser.add_argument("--folder", type=Path, help="where to make the sweeps, which stay there; else they are removed")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put the table between the comments in this page")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for runs in given.runs:
            for found in measure(runs, given.steps, given.folder or Path(folder)):
                rows.append([found.what, found.seen, found.asked])
                print(f"{found.what}: {found.seen}{f'; asked: {found.asked}' if found.asked else ''}", flush=True)
    if given.into:
        markdown_sections.fill(given.into, PART, markdown(HEADINGS, rows))


if __name__ == "__main__":
    main()
