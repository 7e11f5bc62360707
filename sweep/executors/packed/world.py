"""A running MPI world whose ranks train many runs, one after the other and side by side (docs/guide/packing.md).

The world is an mpirun with ranks of trainers/packed/worker.py. Each rank connects to a socket of the launcher, which
sends it orders. Nothing in this file blocks for long: `poll` does all the work.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from pathlib import Path
from typing import Any, Protocol

from gradsweep import files, run_directory
from sweep import emulation
from sweep.attempts.run_task import RunTask
from sweep.executors.packed.fork_server import ForkServer
from sweep.executors.packed.rank_connection import Rank, RankListener
from sweep.executors.packed.world_size import build_world_key
from sweep.system import signals
from sweep.system.job_environment import build_job_environment
from sweep.system.log_pipes import Capture
from sweep.system.processes import GRACE_S, WORLD_VARIABLE, choose_scratch, kill_processes, start_program
from sweep.system.slurm_allocation import Allocation

OTHERS_S = 15.0  # after a rank has refused a run, for the others to refuse it, too: they may have to load torch yet
SAVE_S = 10.0  # for the runs beside one that has failed to save


class PackedRun(Protocol):
    """Connect a packed world to one attempt at a run. The world calls either `on_end` or `on_world_end`, once."""

    task: RunTask
    directory: Path
    suspect: bool
    """Whether it may be the reason why a world has died: it is then alone in its next world."""

    def describe_place(self, rank: int) -> dict[str, Any]:
        """Return the cores and GPUs of the run on the node (or emulated host) of a rank, for the order to train it."""

    def on_start(self) -> None:
        """Prepare the attempt's directory for its ranks."""

    def list_descriptors(self) -> list[int]:
        """Return the open files to send to the run's ranks: stdout, stderr, and the lease's locks."""

    def on_handed_over(self) -> None:
        """Close this process's copies of the files that were sent to the ranks, which now begin to train the run."""

    def write_output(self, stream: int, data: bytes) -> None:
        """Write to the run's logs what a remote rank has printed to stdout (`stream` 0) or stderr (1)."""

    def on_end(self, exit_code: int) -> None:
        """Conclude the attempt, because the ranks have finished the run."""

    def on_world_end(self, world: PackedWorld, blamed: bool | None, exit_code: int) -> None:
        """Conclude the attempt: the world has ended, and `blamed` tells whether due to this run (None: unknown)."""


@dataclasses.dataclass
class Group:
    """The ranks that train one run, and the outcome of the run in each of them."""

    member: PackedRun
    ranks: list[Rank]
    ends: dict[int, str | None] = dataclasses.field(default_factory=dict)
    failed_at: float | None = None

    def note_end(self, rank: Rank, failed: str | None) -> bool:
        """Record the outcome of the run in one rank; once all ranks have reported, free them and return True."""
        self.ends[rank.number] = failed
        if failed and self.failed_at is None:
            self.failed_at = time.monotonic()
        if len(self.ends) < len(self.ranks) or "badly" in self.ends.values():
            return False
        for member_rank in self.ranks:
            member_rank.run = None
        return True


class PackedWorld:
    """A running MPI world: one mpirun, its ranks, and the runs that they train or will train.

    Args:
        task: a run whose MPI settings, threads and code are those of the world.
        size: the number of ranks.
        directory: the directory for output that belongs to no run.
        cores: the cores that the ranks may use.
        variables: additional environment variables of the ranks.
        fork_server: forks the ranks; None: each rank is started without one.
        allocation: the SLURM allocation in which the ranks are started, if any.
        runs: directories of the runs that the world will probably train.

    Raises:
        OSError: the world cannot be started.
    """

    def __init__(
        self,
        task: RunTask,
        size: int,
        directory: Path,
        cores: Sequence[int],
        variables: Mapping[str, str],
        fork_server: ForkServer | None = None,
        allocation: Allocation | None = None,
        runs: Sequence[str] = (),
    ) -> None:
        self.key, self.size, self.directory = build_world_key(task), size, directory
        self.allocation, self._fork_server = allocation, fork_server
        self.ranks: dict[int, Rank] = {}
        self.groups: dict[int, Group] = {}
        self.waiting: list[PackedRun] = []
        self.open = True
        """Whether it accepts runs."""
        self.gone = False
        self.is_spread = allocation is not None and allocation.nodes > 1
        """Whether its ranks are on several nodes."""
        self.lost_nodes: list[str] = []
        self._numbers = 0
        self._lost: list[Rank] | None = None
        self._given_up: set[int] = set()
        self._saving = False
        self.problem: str | None = None
        """Why it could not start, if more is known than an exit status."""
        self._kill_at: float | None = None
        directory.mkdir(parents=True)
        self._scratch = choose_scratch()
        self._capture: Capture | None = None
        self._listener: RankListener | None = None
        mark = {WORLD_VARIABLE: str(directory.absolute())}
        if task.network is not None:  # the place of emulation.json
            mark[run_directory.ATTEMPT_VARIABLE] = str(directory.absolute())
        own = {**task.environment, **variables, **mark}
        self.environment = build_job_environment(own, task.code, self._scratch, allocation)
        words = [word.replace("{workers}", str(size)) for word in task.command]
        try:
            self._capture = Capture(directory, task.limits.log_bytes, self._scratch, cores)
            # makes the directory; if this process is killed, the program that writes the logs removes it
            place = str(directory.absolute()) if self.is_spread else self._scratch
            self._listener = RankListener(
                place, task.threads_per_worker, size, remote=self.is_spread, emulated=task.network is not None
            )
            rank = [sys.executable, "-m", "trainers.packed.worker", place]
            if fork_server is not None:
                rank = fork_server.serve(task, self._scratch, size, runs)
            job = [*words, *rank]
            if task.network is not None:
                job = emulation.build_command(task.network, size, task.threads_per_worker, job)
            out, err = self._capture.inputs
            self.process = start_program(job, cores, self.environment, stdout=out, stderr=err)
            self._capture.close_inputs()
        except BaseException:
            self._tidy()
            raise

    def add(self, member: PackedRun) -> None:
        """Queue a run, which starts as soon as enough ranks are free."""
        self.waiting.append(member)

    @property
    def idle(self) -> bool:
        return not self.groups and not self.waiting

    def poll(self) -> None:
        """Read messages of ranks, detect ended runs and ranks, and start runs on free ranks."""
        if self.gone:
            return
        code = self.process.poll()  # before reading, so that the last messages are read before the end is concluded
        self._accept_ranks()
        self._read_messages()
        if code is not None:
            self._conclude(code)
            return
        self._watch_failures()
        if self._kill_at is not None and time.monotonic() > self._kill_at:
            self.process.kill()
        if self.open:
            self._start_runs()

    def _accept_ranks(self) -> None:
        assert self._listener is not None
        for rank, hello in self._listener.accept_ranks():
            if hello["size"] != self.size or rank.number in self.ranks:
                self.problem = (
                    f"mpi.command: the MPI world has {hello['size']} rank(s); valid is one that starts {self.size} of "
                    f"the MPI that mpi4py uses ({hello['library']})"
                )
                self.end_now()
            self.ranks[rank.number] = rank

    def _read_messages(self) -> None:
        lost = []
        links = {rank.connection: rank for rank in self.ranks.values() if not rank.connection.closed}
        for link in connection.wait(list(links), 0) if links else []:
            assert isinstance(link, connection.Connection)
            rank = links[link]
            try:
                for message in rank.receive():
                    self._handle_message(rank, message)
            except (EOFError, OSError, ValueError):
                link.close()
                lost.append(rank)
        if lost and self._lost is None:
            # the ranks that ended first, not by a signal from outside; mpirun ends the others only then
            self._lost = [rank for rank in lost if not rank.terminated]
            self.open = False
            self._kill_at = self._kill_at or time.monotonic() + GRACE_S

    def _handle_message(self, rank: Rank, message: dict[str, Any]) -> None:
        if message["say"] == "terminated":
            rank.terminated = True
            return
        if message["say"] == "output":
            # without a group a process that a run has left behind has printed it
            if (group := self.groups.get(message["number"])) is not None:
                group.member.write_output(message["stream"], message["data"].encode("latin-1"))
            return
        group = self.groups[message["number"]]
        if group.note_end(rank, message["failed"]):
            del self.groups[message["number"]]
            group.member.on_end(int(any(group.ends.values())))

    def _watch_failures(self) -> None:
        """End the world if a run has failed in only some of its ranks: the others would wait for these forever.

        The world's other runs are asked to save their state first.
        """
        failed = [group for group in self.groups.values() if group.failed_at is not None]
        now, first = time.monotonic(), min((group.failed_at or 0.0 for group in failed), default=0.0)
        if not any("badly" in group.ends.values() for group in failed):
            first += OTHERS_S
        if self._kill_at is not None or not failed or now < first:
            return
        self.open = False
        beside = [number for number, group in self.groups.items() if group.failed_at is None]
        if not beside or now > first + SAVE_S:
            self.end_now()
        elif not self._saving:
            self._saving = True
            for number in beside:
                self._ask_to_stop(number)

    def _start_runs(self) -> None:
        while self.waiting:
            member = self.waiting[0]
            free = [rank for rank in self.ranks.values() if rank.run is None]
            free.sort(key=lambda rank: (not rank.warm, rank.number))
            wanted = member.task.workers
            if len(free) < wanted or (self.groups and (member.suspect or self._has_suspect())):
                return
            self._numbers += 1
            chosen = sorted(free[:wanted], key=lambda rank: rank.number)
            for rank in chosen:
                rank.run, rank.warm = self._numbers, True
            self.groups[self._numbers] = Group(self.waiting.pop(0), chosen)
            order = {
                "do": "train",
                "number": self._numbers,
                "directory": str(Path(member.task.directory).absolute()),
                "attempt": str(member.directory),
                "module": member.task.module,
                "ranks": [rank.number for rank in chosen],
            }
            member.on_start()
            descriptors = member.list_descriptors()
            for rank in chosen:
                rank.send_order({**order, **member.describe_place(rank.number)}, descriptors)
            member.on_handed_over()

    def _has_suspect(self) -> bool:
        return any(group.member.suspect for group in self.groups.values())

    def _ask_to_stop(self, number: int) -> None:
        for rank in self.groups[number].ranks:
            rank.send_order({"do": "stop", "number": number})

    def send_signal(self, member: PackedRun, number: signal.Signals) -> None:
        """Send a signal to the ranks that train a run."""
        for group in self.groups.values():
            for rank in group.ranks if group.member is member else []:
                rank.send_signal(number)

    def stop(self, member: PackedRun) -> bool:
        """Ask the ranks to save and end a run; if it has not begun, remove it from the queue and return False."""
        for number, group in self.groups.items():
            if group.member is member:
                self._ask_to_stop(number)
                return True
        if member in self.waiting:
            self.waiting.remove(member)
        return False

    def is_active_for(self, member: PackedRun) -> bool:
        """Tell whether time limits apply to a run: it is being trained, or no rank of the world has connected yet."""
        return not self.ranks or any(group.member is member for group in self.groups.values())

    def end_for(self, member: PackedRun) -> None:
        """End the world because of a run that does not end on request."""
        self._given_up |= {number for number, group in self.groups.items() if group.member is member}
        if self._kill_at is None:
            self.end_now()

    def finish(self) -> None:
        """Tell the idle ranks to end."""
        self.open = False
        for rank in self.ranks.values():
            rank.send_order({"do": "end"})
        if len(self.ranks) < self.size:  # some have not even connected
            self.end_now()
        elif self._kill_at is None:
            self._kill_at = time.monotonic() + GRACE_S

    def end_now(self) -> None:
        """Make mpirun end all ranks at once; kill mpirun if it does not."""
        self.open = False
        self._lost = self._lost or []
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        self._kill_at = min(self._kill_at or float("inf"), time.monotonic() + GRACE_S)

    def close(self) -> None:
        """End the world and wait until all of its processes have ended."""
        if not self.gone and self._kill_at is None:
            self.end_now()
        while not self.gone:
            if signals.is_hurried():
                self.process.kill()
            self.poll()
            time.sleep(0.01)

    def _conclude(self, code: int) -> None:
        """Clean up after the end of mpirun, and tell each run whether it is to blame."""
        self.gone, self.open = True, False
        # mpirun ended first, or the fork server
        elsewhere = code < 0 or (self._fork_server is not None and self._fork_server.was_killed)
        self._tidy()
        if failure := files.read_json(self.directory / run_directory.FAILURE.format(rank="network")):
            self.problem = failure["reason"]
        if self.allocation is not None and self.groups and self._lost != []:  # else this process has ended it
            self.lost_nodes = self.allocation.find_lost_nodes()
        failed = {number for number, group in self.groups.items() if group.failed_at is not None}
        died = set() if elsewhere else {rank.run for rank in self._lost or [] if rank.run in self.groups}
        # if several have died, one has ended the others
        guilty = failed | self._given_up or (died if len(died) == 1 else set())
        members = {number: group.member for number, group in self.groups.items()}
        self.groups.clear()
        for number, member in members.items():
            member.on_world_end(self, number in guilty if guilty else None, code)
        if self.waiting and not self._numbers:  # it has trained nothing: the first run in the queue is blamed
            self.waiting.pop(0).on_world_end(self, True, code)

    def _tidy(self) -> None:
        """Remove all remains of the world."""
        if self._listener is not None:
            self._listener.close()
        if self._fork_server is not None:
            self._fork_server.stop_serving(self._scratch)
        for rank in self.ranks.values():
            rank.connection.close()
        kill_processes(self.directory.absolute(), WORLD_VARIABLE)
        if self._capture is not None:
            self._capture.close()
        shutil.rmtree(self._scratch, ignore_errors=True)
