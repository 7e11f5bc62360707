"""One try at a run, with its files: how it begins, what it may take, and what its end means."""

from __future__ import annotations

import abc
import contextlib
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gradsweep import failure_causes, files, run_directory
from sweep.attempts import failures
from sweep.attempts.watchdog import Watch
from sweep.directory import result_check, run_identity
from sweep.directory.run_state import finish_attempt, write_state
from sweep.provenance import code_snapshot
from sweep.system.lease import Lease
from sweep.system.oom_kills import OomKills
from sweep.system.processes import GRACE_S

if TYPE_CHECKING:
    from sweep.attempts.run_task import RunTask

DUMP_S = 3.0
"""For the ranks of a run that hangs to say where they are."""
SAVE_S = 120.0
"""For a run whose time is over to write a checkpoint."""
AGAIN_S = 5.0
"""Between two requests to save: an MPI launcher that has not started its ranks yet may lose one."""
UNHEARD = (-signal.SIGUSR1, 128 + signal.SIGUSR1)
"""Exit statuses of an MPI launcher where the request to save has killed it, or a rank: before they listened to it."""

ReportedEnd = Callable[[], tuple[str, str, str | None] | None]
"""Waits for those who watch an attempt to learn why it ended: returns status, reason and cause; None: nobody knows."""


class Attempt(abc.ABC):
    """One try at a run; what computes it is the subclass's.

    One that makes no sense (the run's config, or the copy of the code, is not what it was) has failed from the
    beginning: `status` says so.

    Args:
        cores: that its processes may run on.
        lease: what of the machine is its own.
        await_reported_end: asked about an end that nothing else explains.

    Raises:
        OSError: its directory cannot be made.
    """

    saves = False
    """It is ended by having it saved."""

    def __init__(
        self, task: RunTask, cores: Sequence[int], lease: Lease, await_reported_end: ReportedEnd | None = None
    ) -> None:
        self.task, self.run = task, task.run
        self.cores, self.lease = list(cores), lease
        self._shared = self.run.state().get("shared_cores") is True
        self._attempts = self.run.state()["attempts"]
        self.number = 1 + max([len(self._attempts), *self.run.attempt_numbers()])
        self.directory = self.run.attempt(self.number).absolute()
        self.status: str | None = None
        self.reason: str | None = None
        self.cause: str | None = None
        self.exit_code: int | None = None
        self.unsaved = False  # asked to save before it had begun, and ended by that
        self._await_reported_end = await_reported_end
        self._asked: float | None = None  # when it was last asked to save, by time.monotonic()
        self._stopping: tuple[str, str, str | None] | None = None  # status, reason, cause
        self._signals: list[tuple[float, signal.Signals]] = []  # still to be sent, with the times by time.monotonic()
        if (wrong := run_identity.explain_unfit(self.run) or code_snapshot.explain_unfit(task.code)) is not None:
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
        """The final status once it has ended, else None. Ends what takes too long, without waiting for it."""

    @abc.abstractmethod
    def _send(self, number: signal.Signals) -> None:
        """Have the ranks save and end (SIGUSR1), say where they are (SIGUSR2), or be ended (SIGTERM, SIGKILL)."""

    @abc.abstractmethod
    def preempt(self) -> None:
        """Have the ranks save where they are and end."""

    @abc.abstractmethod
    def terminate(self, status: str, reason: str) -> None:
        """Ask it to end; it will have ended as `status` because of `reason`."""

    @abc.abstractmethod
    def stop(self, status: str, reason: str, grace_s: float = GRACE_S) -> None:
        """End it: politely, then after `grace_s`, or when the user is in a hurry, by force.

        Returns when nothing of it is left.
        """

    def _write_start(self, pid: int | None, **more: Any) -> None:
        """Write that the attempt has begun, or that it has failed at once."""
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
            **more,
        }
        continued = self.run.path(run_directory.CHECKPOINT).exists()  # what it was timed with before is in its figures
        write_state(
            self.run,
            status=self.status or run_directory.RUNNING,
            reason=self.reason,
            oversubscribed=self.task.cores > self._count_cores(),
            shared_cores=self.lease.is_shared or (continued and self._shared),
            attempts=[*self._attempts, record],
        )

    def _count_cores(self) -> int:
        """How many cores there are for the ranks."""
        return len(self.cores)

    def _build_watch(self) -> Watch | None:
        """The watch on the files that a run writes while it makes progress."""
        if self.task.limits.hang_s is None:
            return None
        files = [self.run.path(name) for name in (run_directory.STEPS, run_directory.EPOCHS, run_directory.CHECKPOINT)]
        files += [self.directory / name for name in (run_directory.STDOUT, run_directory.STDERR)]
        return Watch(files, self.task.limits.hang_s)

    def _enforce_limits(self) -> None:
        """Begin to end an attempt that is over its limits, or go on with that."""
        now = time.monotonic()
        limits = self.task.limits
        if self._stopping is None and limits.time_s is not None and now - self._began >= limits.time_s:
            reason = f"over its time of {limits.time_s / 60:g} minutes (sweep.time_minutes)"
            self._stopping = (run_directory.TIMEOUT, reason, failure_causes.TIME)
            self._signals = [
                (now, signal.SIGUSR1),
                (now + SAVE_S, signal.SIGTERM),
                (now + SAVE_S + GRACE_S, signal.SIGKILL),
            ]
        elif self._stopping is None and self._watch is not None and self._watch.has_hung():
            reason = f"no progress for {self._watch.hang_s / 60:g} minutes (sweep.hang_minutes)"
            reason += f"; {self.directory.name}/stacks-*.txt say where its ranks were"
            self._stopping = (run_directory.FAILED, reason, failure_causes.HANG)
            self._signals = [
                (now, signal.SIGUSR2),
                (now + DUMP_S, signal.SIGTERM),
                (now + DUMP_S + GRACE_S, signal.SIGKILL),
            ]
        while self._signals and self._signals[0][0] <= now:
            self._send(self._signals.pop(0)[1])

    def note_disturbance(self) -> None:
        """Note that another sweep was allowed to use the run's cores meanwhile."""
        if self.run.state().get("shared_cores") is not True:
            with contextlib.suppress(OSError):
                write_state(self.run, shared_cores=True)

    def _find_lost_nodes(self) -> list[str]:
        """The nodes of the run that cannot be reached any more."""
        return []

    def _conclude(self, code: int) -> None:
        """Settle how it has ended, with the exit status `code` of the MPI launcher, and write it."""
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
            if lost:  # nothing that the run can help: it goes on from what it has saved, on other nodes
                self.status, self.cause = run_directory.PREEMPTED, failure_causes.LOST
                reason = f"lost {', '.join(lost)}: nothing can be started there"
        self.reason = reason
        with contextlib.suppress(OSError):  # a full disk: the sweep goes on, a resume settles this run
            finish_attempt(self.run, self.status, reason, code, self.cause)
