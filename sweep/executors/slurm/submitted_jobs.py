"""Finds the SLURM jobs of submitted runs, and writes the status of runs whose jobs ended without writing it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradsweep import files, run_directory
from gradsweep.failure_causes import LOST, TIME
from gradsweep.run_directory import Run
from sweep.directory.run_state import finish_attempt, finish_by_files, read_stopped, write_state
from sweep.executors.slurm import queue
from sweep.executors.slurm.batch import FOLDER, Batch, find_batch_task, read_batch
from sweep.executors.slurm.queue import ENDED, GONE, ListedJob


class SubmittedJobs:
    """Finds the SLURM jobs of submitted runs. It asks SLURM once, and again after `forget`.

    Methods raise SlurmSilent if SLURM does not answer.
    """

    def __init__(self) -> None:
        self._batches: dict[Path, Batch | None] = {}
        self._listed: Mapping[str, ListedJob] | None = None

    def forget(self) -> None:
        self._listed = None

    def list_jobs(self) -> Mapping[str, ListedJob]:
        if self._listed is None:
            self._listed = queue.list_jobs()
        return self._listed

    def find_id(self, run: Run) -> str | None:
        """Return the id of the job with which a run was last submitted; None if SLURM never received the job."""
        place = find_batch_task(run)
        if place is None:
            return None
        path, index = place
        if path not in self._batches:
            self._batches[path] = read_batch(path)
        batch = self._batches[path]
        if batch is None:
            return None
        if batch.id is None:  # its launcher died before it could write it
            ids = [id for id, job in self.list_jobs().items() if job.name == batch.name]
            if ids:
                batch.note_id(ids[0].partition("_")[0])
        return batch.format_task_id(index)

    def find_living(self, run: Run) -> str | None:
        """Return the id of the job that computes or will compute a run; None without such a job."""
        if run.status() in (run_directory.DONE, run_directory.DIVERGED, run_directory.FAILED, run_directory.TIMEOUT):
            return None
        id = self.find_id(run)
        return id if id is not None and id in self.list_jobs() and self.list_jobs()[id].alive else None

    def reconcile(self, run: Run) -> None:
        """Write the status of a run whose job has ended without writing it."""
        state = run.state()
        if state["status"] not in (run_directory.PENDING, run_directory.RUNNING):
            return
        id = self.find_id(run)
        if id is not None:
            reconcile_vanished(run, self.list_jobs().get(id) or queue.read_accounting([id]).get(id))
        elif state["status"] == run_directory.RUNNING or run.result() is not None:
            reconcile_vanished(run, None)


def reconcile_vanished(run: Run, listed: ListedJob | None, reason: str | None = None) -> str | None:
    """Write the status of a run whose job ended without writing it, by the run's files and SLURM's state of the job.

    Args:
        reason: why the job was cancelled, if the caller knows it.

    Returns:
        The cause (gradsweep/failure_causes.py) that SLURM's state of the job implies.
    """
    state = run.state()
    status, cause, why = ENDED.get(listed.state, GONE) if listed is not None else GONE
    if state["status"] in run_directory.COMPLETE:
        return cause
    last: dict[str, Any] = state["attempts"][-1] if state["attempts"] else {}
    running = last.get("status") == run_directory.RUNNING
    began = running or (listed is not None and last.get("job") == listed.id)
    # it has said why, and waited for another try
    if began and last.get("status") in (run_directory.FAILED, run_directory.TIMEOUT):
        write_state(run, status=last["status"], reason=last.get("reason"))
        return cause
    stopped = read_stopped(run) if running else None
    saved = stopped or (last if began and last.get("status") == run_directory.PREEMPTED else None)
    if not began and status in (run_directory.FAILED, run_directory.TIMEOUT) and _has_served(run, listed):
        status, cause, why = run_directory.FAILED, LOST, f"{why}, and before its turn had come"
    elif listed is not None and not began and status == run_directory.FAILED:
        why = f"{why}; {_read_last_words(run, listed)}"
    if status == run_directory.CANCELLED and reason is not None:
        why = reason
    with contextlib.suppress(OSError):  # a full disk: a resume settles it again
        was_saved = running and status != run_directory.CANCELLED and cause not in (LOST, TIME)
        if finish_by_files(run, is_running=was_saved):
            return cause
        if began:
            why = f"{saved.get('reason')}; {why}" if saved is not None and status != run_directory.CANCELLED else why
            finish_attempt(run, status, why, last.get("exit_code"), cause)
        else:
            write_state(run, status=status, reason=why)
    return cause


def _has_served(run: Run, listed: ListedJob | None) -> bool:
    """Tell whether the job of a run that has not begun did begin other runs."""
    place = find_batch_task(run)
    batch = None if place is None else read_batch(place[0])
    if place is None or batch is None or not batch.packed or place[1] >= len(batch.tasks):
        return False
    id = batch.format_task_id(place[1]) if listed is None else listed.id
    others = [Run(run.directory.parent / name).state()["attempts"] for name in batch.tasks[place[1]]]
    return any(attempt.get("job") == id for attempts in others for attempt in attempts)


def _read_last_words(run: Run, listed: ListedJob) -> str:
    """Return a phrase with the last line of a job's output, or the reason why the job could not begin."""
    folder = run.directory.parent.parent / FOLDER
    lines = files.tail(folder / f"{listed.id}.log", 1)
    if lines:
        return f"the last line of its output: {lines[0]}"
    if listed.reason == "JobLaunchFailure":
        return f"SLURM could not start it (JobLaunchFailure), as on a node that does not see {folder.absolute()}"
    return "it has printed nothing"
