"""The launcher of a sweep that is laid out, without Hydra, data, calibration, reports: `python launcher.py SWEEP_DIR`.

What `python multirun.py` does from the open directory on, in a tenth of the time, so that it can be killed often.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import yaml

from gradsweep import run_directory
from gradsweep.run_directory import runs_of
from sweep.console.console import Output
from sweep.console.messages import show_failures
from sweep.directory.sweep_directory import Sweep
from sweep.executors.local import SlotExecutor
from sweep.launch import opening
from sweep.launch.session import Session
from sweep.launch.take_to_end import take_to_end
from sweep.settings.resolved_point import parse_point
from sweep.system.signals import raise_on_signals


def main(directory: Path) -> int:
    sweep = Sweep(directory, fresh=False)
    points = {
        run: parse_point(yaml.safe_load(run.path(run_directory.CONFIG).read_text())) for run in runs_of(directory)
    }
    session = Session()
    try:
        take_to_end(session, sweep, points)
    finally:
        sweep.close()
    failed = [run for run in points if run.status() != run_directory.DONE]
    show_failures(failed, Output(), session.build_resume_command(directory))
    return int(bool(failed))


if __name__ == "__main__":
    opening.calibrate = dict  # nothing was measured
    if "GRACE_S" in os.environ:  # how long a run that is cancelled may take to end by itself
        SlotExecutor.cancel.__defaults__ = (float(os.environ["GRACE_S"]),)
    with raise_on_signals():
        sys.exit(main(Path(sys.argv[1])))
