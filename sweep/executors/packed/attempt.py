"""An attempt at a run in an MPI world that trains many runs."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence

from gradsweep import files, run_directory
from gradsweep.failure_causes import LOST, START
from sweep.attempts.attempt import Attempt
from sweep.attempts.run_task import RunTask
from sweep.directory.run_state import finish_attempt
from sweep.emulation.ip_tc_commands import choose_host_cores
from sweep.executors.packed.world import PackedWorld
from sweep.provenance import record
from sweep.system import signals
from sweep.system.lease import Lease
from sweep.system.log_pipes import Capture
from sweep.system.processes import GRACE_S, choose_scratch

LOG_LINES = 20
MOST_DESCRIPTORS = 250  # of one message; the kernel takes 253


class PackedAttempt(Attempt):
    """An attempt at a run in an MPI world that trains other runs, too."""

    saves = True

    def __init__(
        self, task: RunTask, lease: Lease, gpus: Sequence[int], world: PackedWorld, suspect: bool = False
    ) -> None:
        allocation = world.allocation
        unnumbered = allocation is not None and not allocation.cores  # its cores have no known numbers
        super().__init__(task, [] if unnumbered else lease.cores, lease, allocation)
        self.gpus, self.suspect = list(gpus), suspect
        self.again = False
        """Whether it has ended for a reason outside its run, so that another attempt follows."""
        self.why_again = ""
        self._preempted = False
        if self.status is not None:
            return
        files.write_json(
            self.directory / run_directory.PROVENANCE, record.describe_attempt(task.origin, world.environment)
        )
        self._capture = Capture(self.directory, task.limits.log_bytes, choose_scratch(), self.cores)
        try:
            self.join(world)
        except BaseException:
            self._tidy()
            raise

    def join(self, world: PackedWorld) -> None:
        """Queue the attempt in a world."""
        self.world = world
        self._write_start(world.process.pid, world=str(world.directory.absolute()))
        world.add(self)

    # called by the world

    def on_start(self) -> None:
        record = files.read_json(self.world.directory / run_directory.EMULATION)
        if record is not None:  # the world's network is the run's, whose cores are a part of the world's
            record["cores"] = min(record["cores"], len(self.cores))
            files.write_json(self.directory / run_directory.EMULATION, record, durable=False)

    def describe_place(self, rank: int) -> dict[str, list[int]]:
        cores = [] if self.lease.is_shared else self.cores
        if self.task.network is not None:
            each = self.task.network["workers_per_host"]
            cores = choose_host_cores(cores, rank // each, each * self.task.threads_per_worker)
        return {"cores": cores, "gpus": self.gpus}

    def list_descriptors(self) -> list[int]:
        assert self._capture is not None
        if self.world.is_spread:
            return []
        return [*self._capture.inputs, *self.lease.descriptors][:MOST_DESCRIPTORS]

    def on_handed_over(self) -> None:
        assert self._capture is not None
        if not self.world.is_spread:
            self._capture.close_inputs()
        self._began = time.monotonic()  # its limits of time begin now
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
        if world.lost_nodes and self._stopping is None:  # not the run's fault: it goes on on other nodes
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
        """Append the last lines of mpirun's own output to the run's log, because the whole world has ended."""
        lines = files.tail(world.directory / run_directory.STDERR, LOG_LINES)
        with contextlib.suppress(OSError), (self.directory / run_directory.STDERR).open("a", encoding="utf-8") as log:
            log.writelines(f"{line}\n" for line in lines)

    # called by the executor

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
        """Set the status with which the attempt will end, without a signal: its whole world is about to be ended."""
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
        """Record that the attempt could not begin."""
        self._tidy()
        self.status, self.reason, self.cause = run_directory.FAILED, reason, cause
        with contextlib.suppress(OSError):
            finish_attempt(self.run, self.status, reason, None, cause)

    def _finish(self, code: int) -> None:
        self.again = False
        super()._finish(code)
