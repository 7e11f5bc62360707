"""`python without.py data,report WORD...`: `python multirun.py WORD...` without the data prepared or without a report.

Each is a process of its own which loads torch, or matplotlib: two thirds of the time of a sweep whose ranks are
played by a shell. What they do has tests of its own, and tests/test_multirun.py sees them done.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent.parent / "multirun.py"


def main() -> None:
    _, left_out, *words = sys.argv
    sys.path[0] = str(PROGRAM.parent)
    from sweep.launch import conclude, execute

    for what in left_out.split(","):
        if what == "data":
            execute.prepare_data = lambda configs: None
        elif what == "report":
            conclude.write_report = lambda directory, verbosity: True
        else:
            raise SystemExit(f"without: {what}: valid is data or report")
    sys.argv = [str(PROGRAM), *words]
    sys.orig_argv[1:] = sys.argv  # which is what a sweep says it was started with
    runpy.run_path(str(PROGRAM), run_name="__main__")


if __name__ == "__main__":
    main()
