"""`mpirun -n W python -m trainers.race DIRECTORY`: one rank of a race.

Reads DIRECTORY/plan.json and the config.yaml of each run in it; writes race.csv, ratios.json and result.json. SIGUSR1
ends the race early: ratios.json then has the figures measured so far.
"""

from __future__ import annotations

import sys

from gradsweep.run_directory import RACE_MODULE
from trainers.race.race import run_race
from trainers.training.rank import main

if __name__ == "__main__":
    main(sys.argv[1:], run_race, RACE_MODULE, "DIRECTORY")
