"""Hand over a sweep to a detached process, which runs sweep/launch/detached.py (sweep.wait=false).

This process checks the points, creates their directories, starts `python -m sweep.launch.detached DIR DESCRIPTOR`, and
ends. The descriptor is that of the lock's file: both processes hold the lock, so it is never free in between. The
detached process gets the names of the runs through standard input, and reads settings from their config.yaml.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping

from gradsweep import files
from gradsweep.disk import disk_errors
from gradsweep.run_directory import Run
from sweep.console import flags
from sweep.console.events import Events
from sweep.console.messages import print_line, print_log_end, report_left
from sweep.directory import completion
from sweep.directory.sweep_directory import LOCK, Sweep
from sweep.launch.session import Session
from sweep.provenance import code_snapshot
from sweep.settings.resolved_point import ResolvedPoint
from sweep.system.job_environment import build_python_environment
from sweep.system.signals import defer_interrupts

LOG = "launcher.log"
"""In the sweep's directory: what the launcher would have shown."""
DETACHED = "sweep.launch.detached"


def start_detached(session: Session, sweep: Sweep, points: Mapping[Run, ResolvedPoint]) -> None:
    """Start a detached process that computes these runs of an open sweep, and print how to follow the sweep.

    Raises:
        UsageError: the snapshot cannot be written.
        SystemExit: the process could not begin; the reason has been printed.
    """
    missing = completion.list_unfinished(points)
    settings = points[missing[0]].settings
    if settings.snapshot:  # refused here, not in a log
        code_snapshot.take(code_snapshot.read_current(), code_snapshot.find_store(sweep.directory))
    verbosity = session.choose_verbosity(settings)
    log = sweep.directory / LOG
    trust = [flags.TRUST] if session.flags.trust else []
    process: subprocess.Popen[bytes] | None = None
    try:
        with defer_interrupts(), tempfile.TemporaryFile() as wanted, log.open("ab") as out:
            with disk_errors.add_file_name(tempfile.gettempdir()):
                wanted.write(json.dumps([run.name for run in points]).encode())
                wanted.seek(0)
            process = subprocess.Popen(
                [sys.executable, "-m", DETACHED, str(sweep.directory), str(sweep.descriptor), *trust],
                stdin=wanted,
                stdout=out,
                stderr=out,
                env={**os.environ, **build_python_environment()},
                start_new_session=True,  # neither Ctrl-C nor a closed terminal reaches it
                pass_fds=[sweep.descriptor],
            )
        while (files.read_json(sweep.directory / LOCK) or {}).get("pid") != process.pid:
            if process.poll() is not None:
                console = verbosity.errors()
                print_log_end(console, log)
                line = f"the launcher could not begin (exit status {process.returncode}): {log}"
                print_line(console, line, "bold red")
                raise SystemExit(1)
            time.sleep(0.02)
    except BaseException:
        if process is not None:
            process.terminate()
            process.wait()
        raise
    Events(sweep.directory, echo=verbosity.json).write_left("local", len(points), len(missing), pid=process.pid)
    report_left(
        sweep.directory,
        f"{len(missing)} of {len(points)} runs to do, by pid {process.pid}",
        {"watch": "how far it is", "cancel": "end it", "resume": "go on after that"},
        verbosity,
        f"what it says goes to {os.path.relpath(log)}",
    )
