"""Train many runs in one MPI world: Python, torch and MPI start once (`sweep.pack`, docs/guide/packing.md).

Cores are leased as to runs of their own; what differs is who computes. A rank that dies takes its world down: its run
has failed, those beside it begin again from their checkpoints in another world.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gradsweep import files, run_directory
from gradsweep.failure_causes import LOST, START
from sweep.attempts.attempt import Attempt
from sweep.attempts.failures import explain_start_error
from sweep.attempts.run_task import RunTask
from sweep.directory.run_state import finish_attempt
from sweep.executors.base import write_job_state
from sweep.executors.local import SlotExecutor, SlotJob
from sweep.executors.packed.fork_server import ForkServers
from sweep.executors.packed.world import PackedWorld
from sweep.executors.packed.world_size import build_world_key, compute_world_size
from sweep.provenance import record
from sweep.system import signals
from sweep.system.gpus import build_environment
from sweep.system.lease import Lease
from sweep.system.log_pipes import Capture
from sweep.system.processes import GRACE_S, kill_processes

FOLDER = "worlds"  # in the sweep's directory: what mpirun and idle ranks have printed
LOG_LINES = 20
MOST_DESCRIPTORS = 250  # of one message; the kernel takes 253


class PackedAttempt(Attempt):
    """One try at a run, in a world of many."""

    saves = True

    def __init__(
        self, task: RunTask, lease: Lease, gpus: Sequence[int], world: PackedWorld, suspect: bool = False
    ) -> None:
        self.allocation = world.allocation
        nobodys = self.allocation is not None and not self.allocation.cores  # they have no numbers that we know
        super().__init__(task, [] if nobodys else lease.cores, lease)
        self.gpus, self.suspect = list(gpus), suspect
        self.again = False
        """It has ended through no fault of its run, which another attempt goes on with."""
        self.why_again = ""
        self._preempted = False
        self._capture: Capture | None = None
        if self.status is not None:
            return
        files.write_json(
            self.directory / run_directory.PROVENANCE, record.describe_attempt(task.origin, world.environment)
        )
        nowhere = f"{tempfile.gettempdir()}/gradsweep-{secrets.token_hex(4)}"
        logs = (run_directory.STDOUT, run_directory.STDERR)
        self._capture = Capture(self.directory, logs, task.limits.log_bytes, nowhere, self.cores)
        try:
            self.join(world)
        except BaseException:
            self._tidy()
            raise

    def join(self, world: PackedWorld) -> None:
        """Wait in a world for its ranks."""
        self.world = world
        about = {} if self.allocation is None else self.allocation.build_record()
        self._write_start(world.process.pid, world=str(world.directory.absolute()), **about)
        world.add(self)

    def _count_cores(self) -> int:
        return super()._count_cores() if self.allocation is None else self.allocation.cpus

    # what the world asks

    def describe_place(self) -> dict[str, list[int]]:
        return {"cores": [] if self.lease.is_shared else self.cores, "gpus": self.gpus}

    def list_descriptors(self) -> list[int]:
        assert self._capture is not None
        if self.world.is_spread:
            return []
        return [*self._capture.inputs, *self.lease.descriptors][:MOST_DESCRIPTORS]

    def on_handed_over(self) -> None:
        assert self._capture is not None
        if not self.world.is_spread:
            self._capture.close_inputs()
        self._began = time.monotonic()  # what it may take begins now
        self._watch = self._build_watch()

    def write_output(self, stream: int, data: bytes) -> None:
        assert self._capture is not None
        with contextlib.suppress(OSError):
            os.write(self._capture.inputs[stream], data)

    def on_end(self, exit_code: int) -> None:
        asked = self._preempted or self._stopping is not None
        saved = files.read_json(self.directory / run_directory.STOPPED) is not None
        if saved and not asked and self.run.result() is None:
            self._plan_restart("a run beside it failed and ended the MPI world; saved, it goes on in another")
        else:
            self._finish(exit_code)

    def on_world_end(self, world: PackedWorld, blamed: bool | None, exit_code: int) -> None:
        if self._preempted and self._stopping is None:
            self._stopping = (run_directory.PREEMPTED, "the MPI world ended before the run was saved", None)
        if world.lost_nodes and self._stopping is None:  # nothing that the run can help: it goes on on other nodes
            why = f"lost {', '.join(world.lost_nodes)}: nothing can be started there"
            self._stopping = (run_directory.PREEMPTED, why, LOST)
        twice = blamed is None and self.suspect
        if blamed or twice or self._stopping is not None or self.run.result() is not None:
            if world.problem is not None:
                self.fail(world.problem)
            else:
                self._finish(exit_code)
            self._append_world_log(world)
            return
        self.suspect |= blamed is None
        why = "a run beside it failed" if blamed is False else "nobody knows why"
        self._plan_restart(f"the MPI world ended: {why}; it goes on in another")

    def _plan_restart(self, reason: str) -> None:
        self._tidy()
        self.again, self.why_again = True, reason
        with contextlib.suppress(OSError):
            finish_attempt(self.run, run_directory.PREEMPTED, reason, None)

    def _append_world_log(self, world: PackedWorld) -> None:
        """Let the run's log end with what mpirun has said of the end of the world."""
        said = files.tail(world.directory / run_directory.STDERR, LOG_LINES)
        with contextlib.suppress(OSError), (self.directory / run_directory.STDERR).open("a", encoding="utf-8") as log:
            log.writelines(f"{line}\n" for line in said)

    # what the executor asks

    def poll(self) -> str | None:
        if self.status is None and not self.again:
            self._killed_for_memory.look()
            if self.world.is_active_for(self):
                self._enforce_limits()
        return self.status

    def _send(self, number: signal.Signals) -> None:
        if number == signal.SIGUSR2:
            self.world.send_signal(self, number)
        elif number != signal.SIGUSR1:
            self.world.end_for(self)
        elif not self.world.stop(self):
            self._finish(1)

    def preempt(self) -> None:
        self._preempted = True
        if self.status is None and not self.world.stop(self):
            self._stopping = (run_directory.PREEMPTED, "SIGUSR1 came before its turn", None)
            self._finish(1)

    def terminate(self, status: str, reason: str) -> None:
        if self.status is None:
            self.doom(status, reason)
            self._signals = [(time.monotonic() + GRACE_S, signal.SIGTERM)]
            self._send(signal.SIGUSR1)

    def doom(self, status: str, reason: str) -> None:
        """As `terminate`, where the whole world is about to be ended."""
        self._stopping = self._stopping or (status, reason, None)

    def stop(self, status: str, reason: str, grace_s: float = GRACE_S) -> None:
        self.terminate(status, reason)
        deadline = time.monotonic() + grace_s
        while self.status is None and time.monotonic() < deadline and not signals.is_hurried():
            self.world.poll()
            time.sleep(0.01)
        if self.status is None:
            self.world.end_for(self)
            self.world.close()

    def fail(self, reason: str, cause: str = START) -> None:
        """It could not even begin."""
        self._tidy()
        self.status, self.reason, self.cause = run_directory.FAILED, reason, cause
        with contextlib.suppress(OSError):
            finish_attempt(self.run, self.status, reason, None, cause)

    def _finish(self, exit_code: int) -> None:
        self._tidy()
        self.again = False
        self._conclude(exit_code)

    def _tidy(self) -> None:
        """Leave nothing of the run: its ranks are done with it, but they may have started processes."""
        kill_processes(self.directory)
        if self._capture is not None:
            self._capture.close()


class PackedExecutor(SlotExecutor):
    """The slots of this machine, and for the runs on them one MPI world for all that are started alike."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.worlds: list[PackedWorld] = []
        self.fork_servers = ForkServers()

    def _start_attempt(self, job: SlotJob, lease: Lease) -> Attempt:
        if job.task.network is not None:  # its hosts are its own
            return super()._start_attempt(job, lease)
        before = job.attempt
        suspect = isinstance(before, PackedAttempt) and before.again and before.suspect
        numbers = [self.slots.gpus.index(name) for name in lease.gpus]  # as the ranks of the world see them
        return PackedAttempt(job.task, lease, numbers, self._find_world(job.task), suspect)

    def _find_world(self, task: RunTask) -> PackedWorld:
        """A world that can train the run: one that is there, or a new one."""
        for world in self.worlds:
            if world.open and world.key == build_world_key(task) and world.size >= task.workers:
                return world
        key = build_world_key(task)
        alike = [each.workers for each in self._list_tasks() if build_world_key(each) == key]  # and this one
        room = 0 if self.slots.share_cores else self.slots.total
        size = compute_world_size(alike, room, task.threads_per_worker, self.places)
        folder = Path(self.folder) / FOLDER
        number = next(each for each in itertools.count(1) if not (folder / f"world-{each}").exists())
        self.worlds.append(self._start_world(task, size, folder / f"world-{number}"))
        return self.worlds[-1]

    def _start_world(self, task: RunTask, size: int, directory: Path) -> PackedWorld:
        seen, fork_server = build_environment(tuple(self.slots.gpus)), self.fork_servers.find_or_start(task)
        runs = [str(each.directory) for each in self._list_tasks() if build_world_key(each) == build_world_key(task)]
        return PackedWorld(task, size, directory, self.slots.cores, seen, fork_server, runs=runs)

    def _list_tasks(self) -> Iterator[RunTask]:
        """The runs that worlds are for."""
        jobs = itertools.chain(self.running, (entry.item for entry in self.backlog))
        return (job.task for job in jobs if job.task.network is None)

    def _list_attempts(self) -> list[tuple[SlotJob, PackedAttempt]]:
        return [(job, job.attempt) for job in self.running if isinstance(job.attempt, PackedAttempt)]

    def poll(self) -> None:
        for world in self.worlds:
            world.poll()
        for job, attempt in self._list_attempts():
            if attempt.again and job.status == run_directory.RUNNING:
                job.status = run_directory.PENDING  # until the next look, when whoever follows the runs has been told
                self.news.append((job, attempt.number, attempt.why_again))
            elif attempt.again:
                self._restart(job)
            elif attempt.status is None and attempt.world.gone and attempt in attempt.world.waiting:
                attempt.world.waiting.remove(attempt)
                try:
                    attempt.join(self._find_world(attempt.task))
                except OSError as error:
                    attempt.fail(*explain_start_error(error))
        super().poll()
        for world in self.worlds:
            if world.open and world.idle and not any(build_world_key(task) == world.key for task in self._list_tasks()):
                world.finish()
        self.worlds = [world for world in self.worlds if not world.gone]

    def _restart(self, job: SlotJob) -> None:
        """Another attempt at a run whose world has gone, on the cores that it has."""
        assert job.lease is not None
        try:
            job.attempt = self._start_attempt(job, job.lease)
            job.status = run_directory.RUNNING
        except OSError as error:
            self._note_end(job, run_directory.FAILED, *explain_start_error(error))
            write_job_state(job)

    def cancel_all(self, reason: str) -> None:
        self.cancel([entry.item for entry in self.backlog], reason)
        for _, attempt in self._list_attempts():
            attempt.doom(run_directory.CANCELLED, reason)
        for world in self.worlds:
            if not world.idle:
                world.end_now()
        for world in self.worlds:
            world.close()
        self.worlds.clear()
        self.fork_servers.close()
        for job, attempt in self._list_attempts():
            if attempt.status is None:  # it was waiting for ranks
                attempt.stop(run_directory.CANCELLED, reason)
            self._note_end(job, attempt.status or run_directory.CANCELLED, attempt.reason, attempt.cause)
        self.cancel(list(self.running), reason)  # what the signal came upon while it was being started
