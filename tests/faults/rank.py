"""Stands in for a rank: writes the files of a run, quickly, and counts what must happen once only.

    python -S rank.py RANK ROWS SECONDS RUN_DIR

SECONDS pass with every row. Rank 0 writes; the others are there to be killed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gradsweep import (
    csv_columns,  # noqa: E402
    files,
    run_directory,
)


def main(rank: int, rows: int, seconds: float, directory: Path) -> None:
    steps, result = directory / run_directory.STEPS, directory / run_directory.RESULT
    if rank:
        time.sleep(rows * seconds)
        return
    if result.exists():
        note(directory / "begun-again")
    saved = files.read_json(directory / run_directory.CHECKPOINT / "step") or {"step": 0}
    if os.environ.get("FAKE_CHECKPOINT"):
        signal.signal(signal.SIGUSR1, lambda *_: save(directory))
    files.keep_rows(steps, saved["step"])
    for step in range(saved["step"] + 1, rows + 1):
        row = {"step": step, "epoch": 1, "time_s": step * seconds, "loss": "1.5" * 40}
        files.append_rows(steps, csv_columns.STEP_COLUMNS, [row])
        time.sleep(seconds)
    files.write_json(
        result, {"format": run_directory.FORMAT, "status": run_directory.DONE, "accuracy": 0.5, "steps": rows}
    )
    note(directory / "completed")


def save(directory: Path) -> None:
    """What a rank does about SIGUSR1: a checkpoint and a word about it."""
    last = files.last_row(directory / run_directory.STEPS) or {"step": 0}
    (directory / run_directory.CHECKPOINT / "step-1").mkdir(parents=True, exist_ok=True)
    files.write_json(directory / run_directory.CHECKPOINT / "step", {"step": int(last["step"])})
    attempt = Path(os.environ["GRADSWEEP_ATTEMPT"])
    reason = f"saved at step {last['step']}"
    files.write_json(attempt / run_directory.STOPPED, {"status": run_directory.PREEMPTED, "reason": reason})
    os._exit(0)


def note(path: Path) -> None:
    with path.open("a") as file:
        file.write("once\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]))
