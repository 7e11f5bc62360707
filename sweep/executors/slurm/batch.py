"""Submits runs with equal requests as one job array: writes its batch script, and a file that lists its runs.

SWEEP/slurm/batch-0001.json lists the run of each task of the array, or with sweep.pack its runs; the jobs read it. It
is written before sbatch is called: if the launcher dies in between, the next launcher finds the array by its name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shlex
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from submitit.slurm.slurm import SlurmExecutor

from gradsweep import files, run_directory
from gradsweep.run_directory import Run
from gradsweep.source_tree import ROOT
from sweep.attempts.run_task import RunTask
from sweep.directory.run_state import write_state
from sweep.executors.slurm.queue import SlurmSilent, run_command
from sweep.settings.slurm_launcher import parse_slurm_options
from sweep.system.slurm_allocation import CAME

FOLDER = "slurm"  # in the sweep's directory

ShareOut = Callable[[Sequence[RunTask]], list[list[RunTask]]]
"""Divides runs that ask for the same into shares, one for each task of an array."""

NOTED = [f"trap '{CAME}=\"${CAME} {name}\"' {name}" for name in ("USR1", "USR2")]
"""Lines of the batch script that note signals while the setup's lines run, for the job to read."""
UNHEARD = f"trap '' USR1 USR2; export {CAME}"  # from here until the job's Python listens


@dataclasses.dataclass
class Batch:
    """A job array of runs, as its file describes it.

    Attributes:
        path: the file that describes the array.
        tasks: the names of the runs of each task of the array.
        resources: the requested resources.
        packed: each task trains many runs in MPI worlds; else each task has one run.
        id: SLURM's id of the array; None until it is known.
        folder: the folder of the sweep that has the runs' directories.
    """

    path: Path
    name: str
    tasks: list[list[str]]
    resources: dict[str, Any]
    packed: bool = False
    id: str | None = None
    folder: str = run_directory.RUNS

    def format_task_id(self, index: int) -> str | None:
        return None if self.id is None else f"{self.id}_{index}"

    def write(self) -> None:
        runs = self.tasks if self.packed else [name for task in self.tasks for name in task]
        about = {"name": self.name, "id": self.id, "resources": self.resources, "folder": self.folder, "runs": runs}
        files.write_json(self.path, {"format": run_directory.FORMAT, **about})

    def note_id(self, id: str) -> None:
        """Record SLURM's id of the array, in the batch's file and in job.json of each of its runs."""
        self.id = id
        self.write()
        folder = self.path.parent.parent / self.folder
        for index, runs in enumerate(self.tasks):
            for name in runs:
                path = folder / name / run_directory.JOB
                job = files.read_json(path)
                if job is not None and job.get("batch") == self.path.stem:
                    files.write_json(path, {**job, "id": self.format_task_id(index)}, durable=False)


def read_batch(path: Path) -> Batch | None:
    """Return the batch that a file describes; None without the file."""
    about = files.read_json(path) or {}
    id, name, runs = about.get("id"), about.get("name"), about.get("runs")
    if not isinstance(name, str) or not isinstance(runs, list):
        return None
    packed = any(isinstance(share, list) for share in runs)
    tasks = [[str(run) for run in (share if isinstance(share, list) else [share])] for share in runs]
    folder = str(about.get("folder", run_directory.RUNS))
    return Batch(path, name, tasks, about.get("resources") or {}, packed, None if id is None else str(id), folder)


def find_batch_task(run: Run) -> tuple[Path, int] | None:
    """Return the batch file with which a run was last submitted, and the index of its task; None if never submitted."""
    job = files.read_json(run.path(run_directory.JOB)) or {}
    batch, index = job.get("batch"), job.get("index")
    if job.get("cluster") != "slurm" or not isinstance(index, int) or not re.fullmatch(r"batch-\d+", str(batch)):
        return None
    return run.directory.parent.parent / FOLDER / f"{batch}.json", index


def group_tasks(
    tasks: Sequence[RunTask], most: int, share_out: ShareOut | None = None
) -> Iterator[tuple[dict[str, Any], list[list[RunTask]]]]:
    """Yield job arrays of runs with equal requests: the request, and the runs of each of at most `most` tasks.

    Args:
        share_out: divides runs among tasks, which train them in MPI worlds; None: each run has its own task.

    Raises:
        UsageError: an option is out of range.
    """
    groups: dict[str, tuple[dict[str, Any], list[RunTask]]] = {}
    for task in tasks:
        options = parse_slurm_options(task.launcher)
        room = 1 if share_out is None else options.side_by_side
        request = options.build_request(task.workers, task.threads_per_worker, room)
        if task.alone:
            request["exclusive"] = True
        alike: list[Any] = [request, task.code]
        if share_out is not None:  # they may share an MPI world
            shared = [options.allocations, options.requeues, options.poll_s]
            alike += [task.workers, task.threads_per_worker, task.command, task.environment, room, *shared]
        key = json.dumps(alike, sort_keys=True, default=str)
        groups.setdefault(key, (request, []))[1].append(task)
    for request, members in groups.values():
        shares = [[task] for task in members] if share_out is None else share_out(members)
        for start in range(0, len(shares), most):
            yield request, shares[start : start + most]


def submit(sweep: Path, request: dict[str, Any], shares: Sequence[Sequence[RunTask]], *, packed: bool = False) -> Batch:
    """Submit runs as one job array; task i trains the runs in `shares[i]`.

    Raises:
        SlurmSilent: sbatch has refused the array, or SLURM does not answer; the array's files are removed.
    """
    folder = sweep.absolute() / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    batch = _create_batch(folder, request, shares, packed)
    tasks = [task for share in shares for task in share]
    for index, task in ((index, task) for index, share in enumerate(shares) for task in share):
        absolute = dataclasses.replace(task, directory=str(task.run.directory.absolute()))
        job = {
            "cluster": "slurm",
            "id": None,
            "batch": batch.path.stem,
            "index": index,
            "submitted": files.now(),
            "task": dataclasses.asdict(absolute),
        }
        # if a power cut loses the file, the run is submitted anew, and the first job finds that out
        files.write_json(task.run.path(run_directory.JOB), job, durable=False)
        if task.run.status() != run_directory.PENDING:
            write_state(task.run, status=run_directory.PENDING, reason=None)
    script = batch.path.with_suffix(".sh")
    try:
        files.write_text(script, _build_script(batch, request, tasks[0].code))
        answer = run_command("sbatch", str(script), timeout=120, asked={*request, *request["additional_parameters"]})
        batch.note_id(SlurmExecutor._get_job_id_from_submission_command(answer))
    except BaseException:
        if batch.id is None:
            with contextlib.suppress(SlurmSilent):  # sbatch may have submitted it
                run_command("scancel", f"--name={batch.name}")
            script.unlink(missing_ok=True)
            batch.path.unlink()
            for task in tasks:
                task.run.path(run_directory.JOB).unlink()
        raise
    return batch


def _create_batch(folder: Path, request: dict[str, Any], shares: Sequence[Sequence[RunTask]], packed: bool) -> Batch:
    """Give a new batch its number and write its file."""
    numbers = [int(path.stem[6:]) for path in folder.glob("batch-*.json") if path.stem[6:].isdigit()]
    path = folder / f"batch-{max(numbers, default=0) + 1:04}.json"
    members = [[task.run.name for task in share] for share in shares]
    inside = shares[0][0].run.directory.parent.name
    batch = Batch(path, f"gradsweep-{uuid.uuid4().hex[:12]}", members, request, packed, folder=inside)
    batch.write()
    return batch


def _build_script(batch: Batch, request: Mapping[str, Any], code: str | None) -> str:
    """Return the batch script, in which the job's Python replaces the shell (exec), so that it receives the signals."""
    packages = code or str(ROOT)
    ours = [
        f"cd -- {shlex.quote(os.getcwd())} || exit 1",  # the setup may have gone elsewhere
        f"export PYTHONPATH={shlex.quote(packages)}${{PYTHONPATH:+:$PYTHONPATH}} PYTHONSAFEPATH=1",
    ]
    command = shlex.join([sys.executable, "-u", "-m", "sweep.executors.slurm_job", str(batch.path)])
    executor = SlurmExecutor(batch.path.parent, python="")
    most = request.get("array_parallelism", len(batch.tasks))
    executor.update_parameters(
        **{
            **request,
            "array_parallelism": most,
            "setup": [*NOTED, *request["setup"], UNHEARD, *ours],
            "job_name": batch.name,
            "use_srun": False,
            "stderr_to_stdout": True,
            "wckey": None,
            "additional_parameters": {
                "requeue": True,
                "chdir": os.getcwd(),
                "output": str(batch.path.parent).replace("%", "%%") + "/%A_%a.log",
                **request["additional_parameters"],
            },
        }
    )
    executor.parameters["map_count"] = len(batch.tasks)
    return executor._make_submission_file_text(f"exec {command}", "")
