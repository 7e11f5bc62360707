"""An attempt at a run: records its start, enforces its limits, and decides on the run's status when it ends."""

from __future__ import annotations

import abc
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gradsweep import failure_causes, files, run_directory
from gradsweep.targets import USER_CODE
from sweep.attempts import failures
from sweep.attempts.watchdog import Watch
from sweep.directory import result_check, run_identity
from sweep.directory.run_state import finish_attempt, write_state
from sweep.provenance import code_snapshot
from sweep.system.lease import Lease
from sweep.system.log_pipes import Capture
from sweep.system.oom_kills import OomKills
from sweep.system.processes import GRACE_S, kill_processes
from sweep.system.slurm_allocation import Allocation

if TYPE_CHECKING:
    from sweep.attempts.run_task import RunTask

DUMP_S = 3.0
"""Time for the ranks of a run that hangs to write where they are."""
SAVE_S = 120.0
"""Time for a run that is over its limit to write a checkpoint."""
AGAIN_S = 5.0
"""Time between two requests to save: an MPI launcher that has not started its ranks yet may lose one."""
UNHEARD = (-signal.SIGUSR1, 128 + signal.SIGUSR1)
"""Exit statuses of an MPI launcher if it, or a rank, was killed by the request to save before it listened to it."""

ReportedEnd = Callable[[], tuple[str, str, str | None] | None]
"""Waits for a report why an attempt ended, and returns status, reason and cause; None: there is none."""


class Attempt(abc.ABC):
    """An attempt at a run; subclasses start its processes.

    If the run's config or the snapshot has changed, the new attempt has failed at once: check `status`.

    Args:
        cores: the cores that its processes may run on.
        lease: the cores and GPUs that no other run may use.
        allocation: the SLURM allocation in which this process runs, if any.
        await_reported_end: returns SLURM's explanation of an end that nothing else explains.

    Raises:
        OSError: the attempt's directory cannot be created.
    """

    saves = False
    """Whether `terminate` has it save first."""

    def __init__(
        self,
        task: RunTask,
        cores: Sequence[int],
        lease: Lease,
        allocation: Allocation | None = None,
        await_reported_end: ReportedEnd | None = None,
    ) -> None:
        self.task, self.run = task, task.run
        self.cores, self.lease, self.allocation = list(cores), lease, allocation
        self._shared = self.run.state().get("shared_cores") is True
        self._attempts = self.run.state()["attempts"]
        self.number = 1 + max([len(self._attempts), *self.run.attempt_numbers()])
        self.directory = self.run.attempt(self.number).absolute()
        self.status: str | None = None
        self.reason: str | None = None
        self.cause: str | None = None
        self.exit_code: int | None = None
        self.unsaved = False  # ended by the request to save, before it had begun
        self._await_reported_end = await_reported_end
        self._capture: Capture | None = None
        self._asked: float | None = None  # when it was last asked to save, by time.monotonic()
        self._stopping: tuple[str, str, str | None] | None = None  # status, reason, cause
        self._signals: list[tuple[float, signal.Signals]] = []  # still to be sent, with the times by time.monotonic()
        codes = (task.code, *task.environment.get(USER_CODE, "").split(os.pathsep))
        unfit = (code_snapshot.explain_unfit(code) for code in codes)
        if (wrong := run_identity.explain_unfit(self.run) or next(filter(None, unfit), None)) is not None:
            self.status, self.reason, self.cause = run_directory.FAILED, wrong, failure_causes.INPUT
            with contextlib.suppress(OSError):
                self._write_start(None)
            return
        self.directory.mkdir(exist_ok=True)
        self._began = time.monotonic()
        self._killed_for_memory = OomKills()
        self._watch = self._build_watch()

    @abc.abstractmethod
    def poll(self) -> str | None:
        """Return the final status, or None while the attempt runs; ask the attempt to end if it exceeds its limits."""

    @abc.abstractmethod
    def _send(self, number: signal.Signals) -> None:
        """Make the ranks save and end (SIGUSR1), write their stack traces (SIGUSR2), or end (SIGTERM, SIGKILL)."""

    @abc.abstractmethod
    def preempt(self) -> None:
        """Make the ranks save their state and end."""

    @abc.abstractmethod
    def terminate(self, status: str, reason: str) -> None:
        """Ask the ranks to end; the attempt will end with this `status` and `reason`."""

    @abc.abstractmethod
    def stop(self, status: str, reason: str, grace_s: float = GRACE_S) -> None:
        """End the attempt and wait until none of its processes is left.

        Its processes are asked to end, and killed after `grace_s` or when the user has pressed Ctrl-C twice.
        """

    def _write_start(self, pid: int | None, **more: Any) -> None:
        """Write into state.json that the attempt has begun, or that it has failed at once."""
        now = files.now()
        record = {
            "number": self.number,
            "status": self.status or run_directory.RUNNING,
            "reason": self.reason,
            "cause": self.cause,
            "exit_code": None,
            "started": now,
            "ended": now if self.status else None,
            "host": socket.gethostname(),
            "pid": pid,
            "cores": self.cores,
            "gpus": list(self.lease.gpus),
            "code_version": self.task.code_version,
            **({} if self.allocation is None or pid is None else self.allocation.build_record()),
            **more,
        }
        continued = self.run.path(run_directory.CHECKPOINT).exists()  # its figures include earlier attempts
        write_state(
            self.run,
            status=self.status or run_directory.RUNNING,
            reason=self.reason,
            oversubscribed=self.task.cores > self._count_cores(),
            shared_cores=self.lease.is_shared or (continued and self._shared),
            attempts=[*self._attempts, record],
        )

    def _count_cores(self) -> int:
        """Return how many cores the ranks have."""
        return len(self.cores) if self.allocation is None else self.allocation.cpus

    def _build_watch(self) -> Watch | None:
        """Return a watch on the files that show the run's progress; None without a limit (sweep.hang_minutes)."""
        if self.task.limits.hang_s is None:
            return None
        files = [self.run.path(name) for name in (run_directory.STEPS, run_directory.EPOCHS, run_directory.CHECKPOINT)]
        files += [self.directory / name for name in (run_directory.STDOUT, run_directory.STDERR)]
        return Watch(files, self.task.limits.hang_s)

    def _enforce_limits(self) -> None:
        """Send the due signals to an attempt that exceeds its limits."""
        now = time.monotonic()
        limits = self.task.limits
        if self._stopping is None and limits.time_s is not None and now - self._began >= limits.time_s:
            reason = f"over its time of {limits.time_s / 60:g} minutes (sweep.time_minutes)"
            self._stopping = (run_directory.TIMEOUT, reason, failure_causes.TIME)
            self._schedule_end(signal.SIGUSR1, SAVE_S)
        elif self._stopping is None and self._watch is not None and self._watch.has_hung():
            reason = f"no progress for {self._watch.hang_s / 60:g} minutes (sweep.hang_minutes)"
            reason += f"; {self.directory.name}/stacks-*.txt say where its ranks were"
            self._stopping = (run_directory.FAILED, reason, failure_causes.HANG)
            self._schedule_end(signal.SIGUSR2, DUMP_S)
        while self._signals and self._signals[0][0] <= time.monotonic():
            self._send(self._signals.pop(0)[1])

    def _schedule_end(self, first: signal.Signals, pause_s: float) -> None:
        """Schedule signals: this one now, SIGTERM after `pause_s`, SIGKILL GRACE_S later."""
        now = time.monotonic()
        self._signals = [(now, first), (now + pause_s, signal.SIGTERM), (now + pause_s + GRACE_S, signal.SIGKILL)]

    def note_disturbance(self) -> None:
        """Record in state.json that another sweep may have used the run's cores at the same time."""
        if self.run.state().get("shared_cores") is not True:
            with contextlib.suppress(OSError):
                write_state(self.run, shared_cores=True)

    def _find_lost_nodes(self) -> list[str]:
        """Return the nodes of the run that have become unreachable."""
        return []

    def _tidy(self) -> None:
        """End processes that the ranks may have left, and close the attempt's logs."""
        kill_processes(self.directory)
        if self._capture is not None:
            self._capture.close()

    def _finish(self, code: int) -> None:
        """Clean up, and write the status of the ended attempt, judged by its files and by mpirun's exit status."""
        self._tidy()
        self.exit_code = code
        ended = result_check.judge_result(self.run, self.number)
        stopped = files.read_json(self.directory / run_directory.STOPPED)
        if ended is not None:
            self.status, reason, self.cause = ended
        elif self._stopping is not None and (
            stopped is None or self.saves or self._stopping[0] == run_directory.TIMEOUT
        ):
            self.status, reason, self.cause = self._stopping
            if stopped is not None:
                reason = f"{reason}; {stopped.get('reason')}"
        elif stopped is not None:
            self.status, reason = run_directory.PREEMPTED, stopped.get("reason")
        elif self._asked is not None and code in UNHEARD:
            self.status, self.unsaved = run_directory.PREEMPTED, True
            reason = "SIGUSR1 came before it had begun"
            if self.task.module == [run_directory.SCRIPT_MODULE]:
                reason = "SIGUSR1 came before the script listened (Run of gradsweep.script does)"
        elif (wrong := run_identity.explain_unfit(self.run)) is not None:
            self.status, reason, self.cause = run_directory.FAILED, wrong, failure_causes.INPUT
        elif code and self._await_reported_end is not None and (reported := self._await_reported_end()) is not None:
            self.status, reason, self.cause = reported
        else:
            self.status = run_directory.FAILED
            reason, self.cause = failures.explain_exit(
                self.directory, code, out_of_memory=self._killed_for_memory.has_recent()
            )
            lost = self._find_lost_nodes() if self.cause in failures.ANYTHING else []
            if lost:  # not the run's fault: it goes on from its checkpoint, on other nodes
                self.status, self.cause = run_directory.PREEMPTED, failure_causes.LOST
                reason = f"lost {', '.join(lost)}: nothing can be started there"
        self.reason = reason
        with contextlib.suppress(OSError):  # a full disk: the sweep goes on, and a resume reconciles this run
            finish_attempt(self.run, self.status, reason, code, self.cause)
