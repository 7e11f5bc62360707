"""Trains many runs in MPI worlds in a SLURM allocation; its cores need no locks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gradsweep.run_directory import Run
from sweep.attempts.run_task import RunTask
from sweep.executors.backlog import Amounts, Entry, fits
from sweep.executors.local import SlotJob
from sweep.executors.packed.executor import PackedExecutor
from sweep.executors.packed.world import PackedWorld
from sweep.executors.slots import Slots
from sweep.settings.slurm_launcher import SlurmOptions, parse_slurm_options
from sweep.system.slurm_allocation import Allocation


class AllocatedExecutor(PackedExecutor):
    """Trains the runs of a SLURM job, as many side by side as the launcher's options allow.

    Args:
        folder: the directory for output that belongs to no run.
        claim: called right before a run begins; returns True if it may begin, False if it is not (or no longer) to be
            trained by this job, None if this is not known yet.
        release: called when a run's job has ended.
    """

    def __init__(
        self,
        folder: Path,
        allocation: Allocation,
        options: SlurmOptions,
        claim: Callable[[Run], bool | None],
        release: Callable[[SlotJob], None],
    ) -> None:
        cores = allocation.cores or range(allocation.cpus)  # counted from 0 where their numbers are not known
        slots = Slots(cores, others_may_run=allocation.shared)  # without GPUs: all runs share the allocation's
        super().__init__(folder, max_parallel=options.side_by_side, slots=slots)
        self.allocation, self._claim, self._release = allocation, claim, release

    def compute_wants(self, task: RunTask) -> Amounts:
        """Return the cores, GPUs and places that a run needs: its ranks have hydra.launcher.cpus cores each."""
        options = parse_slurm_options(task.launcher)
        cores, gpus, places = super().compute_wants(task)
        return max(cores, min(self.slots.total, task.workers * (options.cpus or 1))), gpus, places

    def _start_world(self, task: RunTask, size: int, directory: Path) -> PackedWorld:
        return PackedWorld(task, size, directory, self.allocation.cores, {}, allocation=self.allocation)

    def _try_to_start(self, entry: Entry[SlotJob], *, first: bool) -> bool:
        if fits(entry.wants, (*self.slots.available, self._count_free_places())):
            mine = self._claim(entry.item.task.run)
            if mine is None:
                return False
            if not mine:
                self.forget([entry.item])
                return True
        return super()._try_to_start(entry, first=first)

    def forget(self, jobs: list[SlotJob] | None = None) -> None:
        """Remove runs (by default all) from the queue without writing their states."""
        for entry in self.backlog:
            if jobs is None or entry.item in jobs:
                self.backlog.remove(entry)
                self._changes += 1

    def _note_end(self, job: SlotJob, status: str, reason: str | None, cause: str | None = None) -> None:
        super()._note_end(job, status, reason, cause)
        self._release(job)
