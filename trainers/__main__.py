"""`mpirun -n W python -m trainers RUN_DIR`: one rank of a run.

Reads RUN_DIR/config.yaml; writes steps.csv, epochs.csv, yardstick.csv and result.json, and with network.measured
network.json in the attempt's directory. Continues from RUN_DIR/checkpoint if an earlier attempt has left one. The
launcher sets GRADSWEEP_ATTEMPT (directory of the attempt, for failure-R.json, stopped.json and stacks-R.txt) and
GRADSWEEP_CORES (to pin ranks to); both may be missing. SIGUSR1 to any rank, or to mpirun, which passes it on, saves
and ends the run. The exit status is 0 when result.json says done or diverged, or stopped.json preempted; else 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

from trainers.training import rank


def run(directory: Path) -> None:
    """Train the run in `directory`."""
    from trainers.race.tuning import tune_run  # after signals are listened to

    rank.run(tune_run, directory)


if __name__ == "__main__":
    rank.main(sys.argv[1:], run, "trainers", "RUN_DIR")
