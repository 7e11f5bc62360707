"""`mpirun -n W python -m trainers.script RUN_DIR`: one rank of a run with trainer=script.

Starts the command of RUN_DIR/config.yaml with the run's config in its environment, and passes signals on to it. When
it has ended, rank 0 checks its CSVs and its result (attempt-N/result.json), and writes RUN_DIR/result.json. If it
fails, the last line of its stderr is the reason in failure-R.json.
"""

from __future__ import annotations

import sys
from pathlib import Path

from trainers.script.rank import run_rank

if __name__ == "__main__":
    if len(sys.argv) != 2:
        print("usage: mpirun -n WORKERS python -m trainers.script RUN_DIR", file=sys.stderr)
        sys.exit(2)
    sys.exit(run_rank(Path(sys.argv[1])))
