"""One rank of a run that a program of the user trains: its start, its signals and its end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any

from gradsweep import files, yaml_files
from gradsweep.errors import UsageError
from gradsweep.failure_causes import INPUT
from gradsweep.run_directory import ATTEMPT_VARIABLE, CHECKPOINT, CONFIG, EPOCHS, FAILURE, RESULT, STEPS, YARDSTICK
from gradsweep.script.ranks import find_rank_variables
from gradsweep.text import one_line
from trainers.mpi.process import die_with_parent, limit_threads, pin
from trainers.script.environment import build_command, build_environment
from trainers.script.outcome import write_result
from trainers.training.failure_cause import find_cause

PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)
TAIL_BYTES = 16384
_RULE = re.compile(r"-{20,}")
_MPI = re.compile(
    r"^-{20,}\n.*?^-{20,}$"  # a message of Open MPI
    r"|^\[\S+:\d+\] (\*\*\*|\[[^\n]*\]) [^\n]*$"  # its errors, and its stacks
    r"|^Abort\(\d+\) on node [^\n]*$|^internal ABORT [^\n]*$"  # MPICH's
    r"|^(srun|slurmstepd): [^\n]*$",
    re.MULTILINE | re.DOTALL,
)
"""Lines that MPI and SLURM print about a program that has failed."""
DRAIN_S = 5.0
"""Time for the last output of the program, which processes that it has left may keep open."""


def run_rank(directory: Path) -> int:
    """Run the command of the run in `directory` on this rank, and return the exit status of the rank."""
    die_with_parent()
    attempt = Path(os.environ.get(ATTEMPT_VARIABLE) or directory)
    variables = find_rank_variables(os.environ)
    rank = int(variables["RANK"])
    try:
        config = yaml_files.read_mapping(directory / CONFIG)
        command, place = config["trainer"]["command"], config["trainer"]["directory"]
        _check_ranks(config, variables)
        pin(int(variables["LOCAL_RANK"]), config["threads_per_worker"])
        limit_threads(config["threads_per_worker"])
        if rank == 0:
            _clear(directory)
        environment = build_environment(config, directory, attempt, variables)
        status = _run_command(build_command(command, place), place, environment, attempt, rank)
        if status == 0 and rank == 0:
            write_result(directory, attempt, config)
        return status
    except (UsageError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        _report_failure(attempt, rank, str(error), INPUT if isinstance(error, UsageError) else find_cause(error))
        return 1


def _check_ranks(config: Mapping[str, Any], variables: Mapping[str, str]) -> None:
    """Raise UsageError if the MPI launcher has started another number of ranks than the run has workers."""
    if int(variables["WORLD_SIZE"]) != config["workers"]:
        raise UsageError(
            f"workers={config['workers']}: the MPI launcher has started {variables['WORLD_SIZE']} rank(s); valid is an "
            f"mpi.command that starts {config['workers']} and tells them their numbers (mpirun, srun)"
        )


def _clear(directory: Path) -> None:
    """Remove what earlier attempts have reported, unless they have left a checkpoint, and anything finished."""
    (directory / RESULT).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        (directory / CHECKPOINT).rmdir()  # an empty one is none
    if not (directory / CHECKPOINT).exists():
        for name in (STEPS, EPOCHS, YARDSTICK):
            (directory / name).unlink(missing_ok=True)


def _run_command(command: Sequence[str], place: str, environment: Mapping[str, str], attempt: Path, rank: int) -> int:
    """Run the program to its end, and return its exit status; 128 + n if signal n has ended it.

    Raises:
        OSError: it cannot be started.
    """
    process = subprocess.Popen(command, cwd=place, env=environment, stderr=subprocess.PIPE, preexec_fn=die_with_parent)

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    assert process.stderr is not None
    tail = _Tail(process.stderr)
    code = process.wait()
    tail.join(DRAIN_S)
    if code > 0:
        line = find_last_line(tail.text) or f"{Path(command[0]).name} exited with {code} and printed nothing on stderr"
        _report_failure(attempt, rank, f"rank {rank}: {line}", find_cause(RuntimeError(line)))
    return code if code >= 0 else 128 - code


class _Tail(threading.Thread):
    """Copies a program's stderr to this process's, and keeps the end of it."""

    def __init__(self, source: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self._source, self._data = source, b""
        self.start()

    @property
    def text(self) -> str:
        return self._data.decode("utf-8", errors="replace")

    def run(self) -> None:
        while data := os.read(self._source.fileno(), 65536):
            self._data = (self._data + data)[-TAIL_BYTES:]
            with contextlib.suppress(OSError):  # the reader may be gone
                sys.stderr.buffer.write(data)
                sys.stderr.buffer.flush()


def find_last_line(text: str) -> str:
    """Return the line of an output that says why a program failed, or an empty text.

    It is the error below the last traceback of Python, else the last line that is not MPI's own.
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not _RULE.fullmatch(line.rstrip())]
    lines = [line.rstrip() for line in _MPI.sub("", text).splitlines() if line.strip()] or lines
    starts = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if starts:
        below = [line for line in lines[starts[-1] + 1 :] if not line[0].isspace()]
        lines = below[:1] or lines
    return one_line(lines[-1])[:1000] if lines else ""


def _report_failure(attempt: Path, rank: int, reason: str, cause: str) -> None:
    """Write failure-R.json for the launcher."""
    report = {"rank": rank, "reason": reason, "cause": cause, "time": files.now()}
    with contextlib.suppress(OSError):  # a full disk must not hide what is on stderr
        files.write_json(attempt / FAILURE.format(rank=rank), report)
