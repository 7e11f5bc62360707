"""The launcher of a sweep that is laid out, without Hydra, data, calibration, reports: `python launcher.py SWEEP_DIR`.

What `python multirun.py` does from the open directory on, in a tenth of the time, so that it can be killed often.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import yaml

from sweep import launch
from sweep import run as names
from sweep.directory import Sweep
from sweep.ending import show_failures
from sweep.local import SlotExecutor
from sweep.progress import Output
from sweep.run import runs_of
from sweep.signals import interruptible


def main(directory: Path) -> int:
    sweep = Sweep(directory, fresh=False)
    configs = {run: yaml.safe_load(run.path(names.CONFIG).read_text()) for run in runs_of(directory)}
    try:
        launch.take_to_end(directory, configs)
    finally:
        sweep.close()
    failed = [run for run in configs if run.status() != names.DONE]
    show_failures(failed, directory, Output())
    return int(bool(failed))


if __name__ == "__main__":
    launch.calibrate = dict  # nothing was measured
    if "GRACE_S" in os.environ:  # how long a run that is cancelled may take to end by itself
        SlotExecutor.cancel.__defaults__ = (float(os.environ["GRACE_S"]),)
    with interruptible():
        sys.exit(main(Path(sys.argv[1])))
