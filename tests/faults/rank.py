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

from sweep import run as names  # noqa: E402


def main(rank: int, rows: int, seconds: float, directory: Path) -> None:
    steps, result = directory / names.STEPS, directory / names.RESULT
    if rank:
        time.sleep(rows * seconds)
        return
    if result.exists():
        note(directory / "begun-again")
    saved = names.read_json(directory / names.CHECKPOINT / "step") or {"step": 0}
    if os.environ.get("FAKE_CHECKPOINT"):
        signal.signal(signal.SIGUSR1, lambda *_: save(directory))
    names.keep_rows(steps, saved["step"])
    for step in range(saved["step"] + 1, rows + 1):
        row = {"step": step, "epoch": 1, "time_s": step * seconds, "loss": "1.5" * 40}
        names.append_rows(steps, names.STEP_COLUMNS, [row])
        time.sleep(seconds)
    names.write_json(result, {"format": names.FORMAT, "status": names.DONE, "accuracy": 0.5, "steps": rows})
    note(directory / "completed")


def save(directory: Path) -> None:
    """What a rank does about SIGUSR1: a checkpoint and a word about it."""
    last = names.last_row(directory / names.STEPS) or {"step": 0}
    (directory / names.CHECKPOINT / "step-1").mkdir(parents=True, exist_ok=True)
    names.write_json(directory / names.CHECKPOINT / "step", {"step": int(last["step"])})
    attempt = Path(os.environ["GRADSWEEP_ATTEMPT"])
    reason = f"saved at step {last['step']}"
    names.write_json(attempt / names.STOPPED, {"status": names.PREEMPTED, "reason": reason})
    os._exit(0)


def note(path: Path) -> None:
    with path.open("a") as file:
        file.write("once\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]))
