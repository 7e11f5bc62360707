"""Train many runs in one MPI world: Python, torch and MPI start once (`sweep.pack`, docs/guide/packing.md).

Cores are leased as for runs with an mpirun of their own. If a rank dies, its world ends: its run has failed, and the
world's other runs continue from their checkpoints in another world.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from gradsweep import run_directory
from sweep.attempts.attempt import Attempt
from sweep.attempts.failures import explain_start_error
from sweep.attempts.run_task import RunTask
from sweep.executors.local import SlotExecutor, SlotJob
from sweep.executors.packed.attempt import PackedAttempt
from sweep.executors.packed.fork_server import ForkServers
from sweep.executors.packed.world import PackedWorld
from sweep.executors.packed.world_size import build_world_key, compute_world_size
from sweep.system.gpus import build_environment
from sweep.system.lease import Lease

FOLDER = "worlds"  # in the sweep's directory: what mpirun and idle ranks have printed


class PackedExecutor(SlotExecutor):
    """Trains runs on this machine's slots; runs whose ranks start in the same way share an MPI world."""

    def __init__(self, *arguments: Any, fork_servers: ForkServers | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.worlds: list[PackedWorld] = []
        self.fork_servers = fork_servers or ForkServers()

    def _start_attempt(self, job: SlotJob, lease: Lease) -> Attempt:
        before = job.attempt
        suspect = isinstance(before, PackedAttempt) and before.again and before.suspect
        numbers = [self.slots.gpus.index(name) for name in lease.gpus]  # as the ranks of the world see them
        return PackedAttempt(job.task, lease, numbers, self._find_world(job.task), suspect)

    def _find_world(self, task: RunTask) -> PackedWorld:
        """Return a world for the run: an existing or a new one."""
        key = build_world_key(task)
        for world in self.worlds:
            if world.open and world.key == key and world.size >= task.workers:
                return world
        room = 0 if self.slots.share_cores else self.slots.total
        size = compute_world_size(self._list_alike(key), room, self.places)
        folder = Path(self.folder) / FOLDER
        number = next(number for number in itertools.count(1) if not (folder / f"world-{number}").exists())
        self.worlds.append(self._start_world(task, size, folder / f"world-{number}"))
        return self.worlds[-1]

    def _start_world(self, task: RunTask, size: int, directory: Path) -> PackedWorld:
        seen = build_environment(tuple(self.slots.gpus))
        fork_server = self.fork_servers.find_or_start(task) if task.network is None else None  # it is on no host
        runs = [other.directory for other in self._list_alike(build_world_key(task))]
        return PackedWorld(task, size, directory, self.slots.cores, seen, fork_server, runs=runs)

    def _list_alike(self, key: tuple[Any, ...]) -> list[RunTask]:
        """Return the running and waiting tasks with this world key."""
        jobs = itertools.chain(self.running, (entry.item for entry in self.backlog))
        return [job.task for job in jobs if build_world_key(job.task) == key]

    def _list_attempts(self) -> list[tuple[SlotJob, PackedAttempt]]:
        return [(job, job.attempt) for job in self.running if isinstance(job.attempt, PackedAttempt)]

    def poll(self) -> None:
        for world in self.worlds:
            world.poll()
        for job, attempt in self._list_attempts():
            if attempt.again and job.status == run_directory.RUNNING:
                job.status = run_directory.PENDING  # until the next poll, so that `news` is read before it runs again
                self.news.append((job, attempt.number, attempt.why_again))
            elif attempt.again and job.lease is not None:
                self._start(job, job.lease)
            elif attempt.status is None and attempt.world.gone and attempt in attempt.world.waiting:
                attempt.world.waiting.remove(attempt)
                try:
                    attempt.join(self._find_world(attempt.task))
                except OSError as error:
                    attempt.fail(*explain_start_error(error))
        super().poll()
        for world in self.worlds:
            if world.open and world.idle and not self._list_alike(world.key):
                world.finish()
        self.worlds = [world for world in self.worlds if not world.gone]

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
        self.cancel(list(self.running), reason)  # a run whose start was interrupted by the signal
