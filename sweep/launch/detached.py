"""The process that drives a sweep without the shell that started it; sweep/launch/detach.py starts it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gradsweep import disk_errors
from gradsweep.run_directory import runs_of
from sweep.console import flags
from sweep.console.messages import report_interrupted
from sweep.directory import completion
from sweep.directory.sweep_directory import Sweep
from sweep.launch import execute
from sweep.system.signals import Interrupted, raise_on_signals


def main(arguments: Sequence[str]) -> int:
    """Drive the sweep whose lock this process has inherited; returns the exit status of a sweep."""
    typed = list(arguments)
    flags.take(typed)
    directory, descriptor = Path(typed[0]), int(typed[1])
    wanted = set(json.load(sys.stdin))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sweep = Sweep.adopt(directory, descriptor)
    try:
        runs = [run for run in runs_of(directory) if run.name in wanted]
        configs = {run: completion.load_config(run) for run in completion.list_unfinished(runs)}
        if configs:
            execute.take_to_end(directory, configs)
        return execute.conclude()
    except Interrupted as interrupted:
        report_interrupted(interrupted, [directory])
        raise
    except OSError as error:
        if (line := disk_errors.line(error)) is None:
            raise
        print(line, file=sys.stderr)
        return 1
    finally:
        sweep.close()


if __name__ == "__main__":
    with raise_on_signals():
        sys.exit(main(sys.argv[1:]))
