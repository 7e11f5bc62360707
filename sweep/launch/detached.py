"""A sweep without the shell that started it (sweep.wait=false): a process of its own session drives it.

The foreground checks and lays out everything, then starts `python -m sweep.launch.detached DIR DESCRIPTOR` and ends.
The
descriptor is that of the locked file: the lock is held by both and never free in between. Names of the runs that were
asked for come through standard input; settings, out of their config.yaml.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from gradsweep import disk_errors, run_directory
from gradsweep.run_directory import Run, runs_of
from sweep.console import flags
from sweep.console.console import manner
from sweep.console.events import Events
from sweep.console.messages import print_line, report_interrupted, report_left
from sweep.directory import completion
from sweep.directory.sweep_directory import LOCK, Sweep
from sweep.provenance import code_snapshot
from sweep.settings.sweep import settings_of
from sweep.system.job_environment import python_environment
from sweep.system.signals import Interrupted, deferred, interruptible

LOG = "launcher.log"  # in the sweep's directory: what the launcher would have shown


def leave(sweep: Sweep, runs: Sequence[Run]) -> None:
    """Have another process take these runs of an open sweep to their end, and say how to follow it.

    Raises:
        UsageError: there is no code to start from.
        SystemExit: it could not begin; the reason has been printed.
    """
    missing = completion.list_unfinished(runs)
    settings, _ = settings_of(completion.load_config(missing[0]))
    if settings.snapshot:
        code_snapshot.take(
            code_snapshot.current(), code_snapshot.store_for(sweep.directory)
        )  # refused here, not in a log
    how = manner(settings)
    log = sweep.directory / LOG
    trust = [flags.TRUST] if flags.typed(flags.TRUST) else []
    process: subprocess.Popen[bytes] | None = None
    try:
        with deferred(), tempfile.TemporaryFile() as wanted, log.open("ab") as out:
            with disk_errors.naming(tempfile.gettempdir()):
                wanted.write(json.dumps([run.name for run in runs]).encode())
                wanted.seek(0)
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(sweep.directory), str(sweep.descriptor), *trust],
                stdin=wanted,
                stdout=out,
                stderr=out,
                env={**os.environ, **python_environment()},
                start_new_session=True,  # neither Ctrl-C nor a closed terminal reaches it
                pass_fds=[sweep.descriptor],
            )
        while (run_directory.read_json(sweep.directory / LOCK) or {}).get("pid") != process.pid:
            if process.poll() is not None:
                console = how.errors()
                for line in run_directory.tail(log):
                    print_line(console, f"  | {line}", "dim")
                print_line(
                    console, f"the launcher could not begin (exit status {process.returncode}): {log}", "bold red"
                )
                raise SystemExit(1)
            time.sleep(0.02)
    except BaseException:
        if process is not None:
            process.terminate()
            process.wait()
        raise
    Events(sweep.directory, echo=how.json).left("local", len(set(runs)), len(missing), pid=process.pid)
    report_left(
        sweep.directory,
        f"{len(missing)} of {len(set(runs))} runs to do, by pid {process.pid}",
        {"watch": "how far it is", "cancel": "end it", "resume": "go on after that"},
        how,
        f"what it says goes to {os.path.relpath(log)}",
    )


def main(arguments: Sequence[str]) -> int:
    """Drive the sweep whose lock this process has inherited; returns the exit status of a sweep."""
    typed = list(arguments)
    flags.take(typed)
    directory, descriptor = Path(typed[0]), int(typed[1])
    wanted = set(json.load(sys.stdin))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    from sweep.launch import execute  # before the foreground is told that all is well

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
    with interruptible():
        sys.exit(main(sys.argv[1:]))
