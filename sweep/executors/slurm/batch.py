"""What is handed to sbatch: runs that ask for the same, as the tasks of one job array, and the files that tell of it.

SWEEP/slurm/batch-0001.json says which run each task of an array is, or with sweep.pack which runs it serves; it is
there before the array is, so that a launcher that dies while it submits finds the array again by its name, and so do
the jobs, which read it.
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
from sweep.attempts.run_task import RunTask
from sweep.directory.run_state import write_state
from sweep.executors.slurm.queue import SlurmSilent, cancel_by_name, run_command
from sweep.settings.slurm_launcher import parse_slurm_options
from sweep.system.job_environment import build_python_environment
from sweep.system.slurm_allocation import CAME

FOLDER = "slurm"  # in the sweep's directory
JOB = "job.json"  # in the run's: in which batch it is

ShareOut = Callable[[Sequence[RunTask]], list[list[RunTask]]]


NOTED = [f"trap '{CAME}=\"${CAME} {name}\"' {name}" for name in ("USR1", "USR2")]
"""Lines of the batch script: what comes while the setup's lines run is noted, for the job to heed it."""
UNHEARD = f"trap '' USR1 USR2; export {CAME}"  # from here until the job's Python listens


@dataclasses.dataclass
class Batch:
    """A job array: for each of its tasks the names of the runs that it computes. `id` is SLURM's, None until known.

    `packed`: a task trains its runs in an MPI world; else it has one. `folder`: of the sweep, that they are in.
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
        """Remember SLURM's id of the array, here and with each of its runs."""
        self.id = id
        self.write()
        folder = self.path.parent.parent / self.folder
        for index, runs in enumerate(self.tasks):
            for name in runs:
                known = files.read_json(folder / name / JOB)
                if known is not None and known.get("batch") == self.path.stem:
                    files.write_json(folder / name / JOB, {**known, "id": self.format_task_id(index)}, durable=False)


def read_batch(path: Path) -> Batch | None:
    """The batch that a file tells of; None where there is none, or something else."""
    known = files.read_json(path) or {}
    id, name, runs = known.get("id"), known.get("name"), known.get("runs")
    if not isinstance(name, str) or not isinstance(runs, list):
        return None
    packed = any(isinstance(each, list) for each in runs)
    tasks = [[str(run) for run in (each if isinstance(each, list) else [each])] for each in runs]
    folder = str(known.get("folder", run_directory.RUNS))
    return Batch(path, name, tasks, known.get("resources") or {}, packed, None if id is None else str(id), folder)


def find_batch_task(run: Run) -> tuple[Path, int] | None:
    """File of the batch that a run was last submitted in, and its index there; None where it never was."""
    known = files.read_json(run.path(JOB)) or {}
    batch, index = known.get("batch"), known.get("index")
    if known.get("cluster") != "slurm" or not isinstance(index, int) or not re.fullmatch(r"batch-\d+", str(batch)):
        return None
    return run.directory.parent.parent / FOLDER / f"{batch}.json", index


def group_tasks(
    tasks: Sequence[RunTask], most: int, share_out: ShareOut | None = None
) -> Iterator[tuple[dict[str, Any], list[list[RunTask]]]]:
    """Runs that ask for the same, as the shares of arrays of `most` tasks at most, with what they ask for.

    Args:
        share_out: makes shares of many runs, which are then trained in MPI worlds; None: each run is a share.

    Raises:
        UsageError: an option out of range.
    """
    groups: dict[str, tuple[dict[str, Any], list[RunTask]]] = {}
    for task in tasks:
        options = parse_slurm_options(task.launcher)
        room = 1 if share_out is None else options.side_by_side
        request = options.build_request(task.workers, task.threads_per_worker, room)
        if task.alone:
            request["exclusive"] = True
        alike: list[Any] = [request, task.code]
        if share_out is not None:  # and of one MPI world
            shared = [options.allocations, options.requeues, options.poll_s]
            alike += [task.workers, task.threads_per_worker, task.command, task.environment, room, *shared]
        key = json.dumps(alike, sort_keys=True, default=str)
        groups.setdefault(key, (request, []))[1].append(task)
    for request, members in groups.values():
        shares = [[task] for task in members] if share_out is None else share_out(members)
        for start in range(0, len(shares), most):
            yield request, shares[start : start + most]


def submit(sweep: Path, request: dict[str, Any], shares: Sequence[Sequence[RunTask]], *, packed: bool = False) -> Batch:
    """Submit runs as one array; each of its tasks gets one of the `shares`.

    Raises:
        SlurmSilent: sbatch refused it, or SLURM does not answer; nothing of it is left.
    """
    folder = sweep.absolute() / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    batch = _create_batch(folder, request, shares, packed)
    tasks = [task for share in shares for task in share]
    for index, task in ((index, task) for index, share in enumerate(shares) for task in share):
        job = {
            "cluster": "slurm",
            "id": None,
            "batch": batch.path.stem,
            "index": index,
            "submitted": files.now(),
        }
        absolute = dataclasses.replace(task, directory=str(task.run.directory.absolute()))
        # one that a power cut has taken is submitted anew, and the job that was meant finds that out
        files.write_json(task.run.path(JOB), {**job, "task": dataclasses.asdict(absolute)}, durable=False)
        if task.run.status() != run_directory.PENDING:
            write_state(task.run, status=run_directory.PENDING, reason=None)
    script = batch.path.with_suffix(".sh")
    try:
        files.write_text(script, _build_script(batch, request, tasks[0].code))
        answer = run_command("sbatch", str(script), timeout=120, asked={*request, *request["additional_parameters"]})
        batch.note_id(SlurmExecutor._get_job_id_from_submission_command(answer))
    except BaseException:
        if batch.id is None:
            with contextlib.suppress(SlurmSilent):  # we may have been interrupted, or too impatient
                cancel_by_name(batch.name)
            script.unlink(missing_ok=True)
            batch.path.unlink()
            for task in tasks:
                task.run.path(JOB).unlink()
        raise
    return batch


def _create_batch(folder: Path, request: dict[str, Any], shares: Sequence[Sequence[RunTask]], packed: bool) -> Batch:
    """Write the file of a new batch."""
    numbers = [int(path.stem[6:]) for path in folder.glob("batch-*.json") if path.stem[6:].isdigit()]
    path = folder / f"batch-{max(numbers, default=0) + 1:04}.json"
    members = [[task.run.name for task in share] for share in shares]
    inside = shares[0][0].run.directory.parent.name
    batch = Batch(path, f"gradsweep-{uuid.uuid4().hex[:12]}", members, request, packed, folder=inside)
    batch.write()
    return batch


def _build_script(batch: Batch, request: Mapping[str, Any], code: str | None) -> str:
    """What sbatch is given. The job's Python takes the place of the shell, so that signals come to it."""
    packages = build_python_environment(code)["PYTHONPATH"].split(":")[0]
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
                "output": f"{batch.path.parent}/%A_%a.log".replace("%", "%%").replace("%%A_%%a.log", "%A_%a.log"),
                **request["additional_parameters"],
            },
        }
    )
    executor.parameters["map_count"] = len(batch.tasks)
    return executor._make_submission_file_text(f"exec {command}", "")
