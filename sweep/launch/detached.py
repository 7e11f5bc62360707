"""The detached process of a sweep, which continues if its shell ends; sweep/launch/detach.py starts it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gradsweep.disk import disk_errors
from gradsweep.errors import UsageError
from gradsweep.run_directory import runs_of
from sweep.console.flags import take_flags
from sweep.directory import completion
from sweep.directory.sweep_directory import Sweep
from sweep.launch.conclude import conclude, report_interrupted
from sweep.launch.session import Session
from sweep.launch.take_to_end import run_or_leave
from sweep.planning.load_point import load_point
from sweep.system.signals import Interrupted, raise_on_signals


def main(arguments: Sequence[str]) -> int:
    """Compute the runs of the sweep whose lock this process has inherited; return the exit status."""
    words = list(arguments)
    session = Session(take_flags(words))
    directory, descriptor = Path(words[0]), int(words[1])
    wanted = set(json.load(sys.stdin))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sweep = Sweep.adopt(directory, descriptor)
    try:
        runs = [run for run in runs_of(directory) if run.name in wanted]
        points = {run: load_point(run) for run in completion.list_unfinished(runs)}
        session.directory = directory
        if points:
            run_or_leave(session, sweep, points, wait=True)
        return conclude(session)
    except Interrupted as interrupted:
        report_interrupted(interrupted, session)
        raise
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        if (line := disk_errors.describe(error)) is None:
            raise
        print(line, file=sys.stderr)
        return 1
    finally:
        sweep.close()


if __name__ == "__main__":
    with raise_on_signals():
        sys.exit(main(sys.argv[1:]))
