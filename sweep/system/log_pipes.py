"""Start the program that writes the logs of an attempt (log_capture.py)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gradsweep.run_directory import ATTEMPT_VARIABLE, STDERR, STDOUT
from sweep.system import log_capture

OUTPUT_VARIABLE = "GRADSWEEP_OUTPUT"
"""Mark of the program in its environment: the attempt whose logs it writes, and which it outlives."""
PIPE_BYTES = 1 << 20
PATIENCE_S = 5.0


class Capture:
    """The running program that writes an attempt's logs. After the attempt, `close` waits until all output is written.

    Args:
        attempt: the directory of the attempt.
        limit: the largest size of each log, in bytes.
        scratch: a directory that the program removes when the attempt has ended, even if the launcher was killed.
        cores: the cores of the program: those of the attempt, so that a flood of output slows only the attempt's own
            run.

    Raises:
        OSError: the files cannot be created, or the program cannot be started.
    """

    def __init__(self, attempt: Path, limit: int, scratch: str, cores: Sequence[int]) -> None:
        self.inputs: list[int] = []  # for the processes of the attempt to write to, stdout and stderr
        theirs: list[int] = []
        try:
            for name in (STDOUT, STDERR):
                out, into = os.pipe()
                theirs.append(out)
                self.inputs.append(into)
                with contextlib.suppress(OSError):  # a limit of the system; a smaller pipe will do
                    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
                theirs.append(os.open(attempt / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666))
            environment = {name: value for name, value in os.environ.items() if name != ATTEMPT_VARIABLE}
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", log_capture.__file__, str(limit), scratch, *map(str, theirs)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**environment, OUTPUT_VARIABLE: str(attempt)},
                cwd="/",
                pass_fds=theirs,
                start_new_session=True,
            )
        except BaseException:
            self.close_inputs()
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        with contextlib.suppress(OSError):
            os.sched_setaffinity(self.process.pid, cores)

    def close_inputs(self) -> None:
        """Close this process's write ends of the pipes, as the program ends only when all write ends are closed."""
        while self.inputs:
            os.close(self.inputs.pop())

    def close(self) -> None:
        """Wait at most `PATIENCE_S` until all output is in the files: an unknown process may keep the pipes open."""
        self.close_inputs()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
