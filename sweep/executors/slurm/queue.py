"""Runs SLURM's commands: lists jobs, reads accounting, cancels jobs. All raise SlurmSilent without an answer."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence

from gradsweep import failure_causes, run_directory
from gradsweep.errors import UsageError
from sweep.system.job_environment import clean_environment

ENDED = {
    "BOOT_FAIL": (run_directory.FAILED, failure_causes.LOST, "its nodes did not boot"),
    "CANCELLED": (run_directory.CANCELLED, None, "cancelled in SLURM"),
    "COMPLETED": (run_directory.FAILED, failure_causes.UNKNOWN, "its job ended without a result"),
    "DEADLINE": (run_directory.TIMEOUT, failure_causes.TIME, "its deadline in SLURM passed"),
    "FAILED": (run_directory.FAILED, failure_causes.UNKNOWN, "its job ended before it could say why"),
    "NODE_FAIL": (run_directory.FAILED, failure_causes.LOST, "a node failed"),
    "OUT_OF_MEMORY": (run_directory.FAILED, failure_causes.MEMORY, "SLURM killed it for want of memory"),
    "PREEMPTED": (run_directory.FAILED, failure_causes.LOST, "SLURM preempted it and did not queue it again"),
    "REVOKED": (run_directory.FAILED, failure_causes.LOST, "revoked by SLURM"),
    "TIMEOUT": (run_directory.TIMEOUT, failure_causes.TIME, "SLURM killed it at its time limit"),
}
"""Status, cause and reason of a run by the state of a job that has ended without writing any; others are alive."""

MOST_IDS = 500  # of one scancel

GONE = (run_directory.FAILED, failure_causes.LOST, "SLURM does not know its job any more, and it has left no result")

_DEFAULTS = ("account", "partition", "qos", "reservation", "constraint")  # that a user may have set for sbatch
_SHOWN = ("SQUEUE_", "SACCT_", "SCONTROL_", "SCANCEL_")  # a user's defaults, which would change the answers


class SlurmSilent(Exception):
    """SLURM did not answer, or refused; `str()` is its message in one line."""


@dataclasses.dataclass(frozen=True)
class ListedJob:
    """A job, or a task of an array, as squeue lists it."""

    id: str
    name: str
    state: str
    reason: str

    @property
    def alive(self) -> bool:
        return self.state not in ENDED

    @property
    def waits_for(self) -> str | None:
        """Why the job does not run, in SLURM's words; None if it runs."""
        if self.state in ("RUNNING", "COMPLETING"):
            return None
        return self.state.lower() if self.reason in ("None", "") else f"{self.state.lower()}: {self.reason}"


def build_environment(environment: Mapping[str, str], asked: Collection[str] = ()) -> dict[str, str]:
    """Return the environment for SLURM's commands: without the variables of an allocation and of output formats.

    A user's SBATCH_ACCOUNT and the like are kept. They are removed if this process is in an allocation, or if the batch
    script has the option (`asked`), because for sbatch the variable would take precedence.
    """
    own = {f"SBATCH_{option.upper()}" for option in _DEFAULTS if option not in asked}
    kept = {} if "SLURM_JOB_ID" in environment else {name: environment[name] for name in own & environment.keys()}
    clean = clean_environment(environment).items()
    return {**{name: value for name, value in clean if not name.startswith(_SHOWN)}, **kept}


def run_command(*command: str, timeout: float = 60, asked: Collection[str] = ()) -> str:
    """Run one of SLURM's commands and return its output.

    Args:
        asked: the options in sbatch's batch script.

    Raises:
        SlurmSilent: there is no such program, it failed, or it did not answer for `timeout` seconds.
    """
    try:
        done = subprocess.run(
            command,
            env=build_environment(os.environ, asked),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        raise SlurmSilent(f"{command[0]} did not answer for {timeout:.0f} s") from None
    except OSError as error:
        raise SlurmSilent(f"{command[0]}: {error.strerror}") from None
    if done.returncode:
        lines = [re.sub(r"^\w+: (error: )?", "", line.strip()) for line in done.stderr.splitlines()]
        reason = "; ".join(line for line in lines if line and not line.startswith("Try "))
        program = command[0]
        raise SlurmSilent(f"{program}: {reason}" if reason else f"{program} exited with {done.returncode}")
    return done.stdout


def require_slurm() -> None:
    """Raise UsageError if this machine cannot submit jobs."""
    for program in ("sbatch", "squeue", "scancel", "scontrol"):
        if shutil.which(program) is None:
            raise UsageError(
                f"hydra/launcher=slurm: there is no {program} on PATH; valid is a machine from which jobs can be "
                f"submitted, or hydra/launcher=local"
            )


def list_jobs() -> dict[str, ListedJob]:
    """Return all jobs of this user that SLURM still has, by id, such as 123_4.

    Raises:
        SlurmSilent: there was no answer.
    """
    lines = run_command(
        "squeue", "-h", "-a", "-r", "-t", "all", "-u", str(os.getuid()), "-o", "%i|%j|%T|%r"
    ).splitlines()
    jobs = [ListedJob(*line.split("|", 3)) for line in lines if line.count("|") >= 3]
    return {job.id: job for job in jobs}


def read_accounting(ids: Sequence[str]) -> dict[str, ListedJob]:
    """Return sacct's records of jobs that squeue no longer lists; empty without accounting."""
    try:
        lines = run_command("sacct", "-n", "-X", "-P", "-j", ",".join(ids), "-o", "JobID,JobName,State").splitlines()
    except SlurmSilent:
        return {}
    jobs = {}
    for line in lines:
        if line.count("|") >= 2:
            id, name, state = line.split("|")[:3]
            jobs[id] = ListedJob(id, name, state.split(" ")[0].rstrip("+"), "")  # CANCELLED by 1000
    return jobs


def scancel(ids: Sequence[str], *options: str) -> None:
    """Run scancel for jobs, which may have ended; the id of an array stands for all of its tasks.

    Raises:
        SlurmSilent: there was no answer.
    """
    for start in range(0, len(ids), MOST_IDS):
        try:
            run_command("scancel", *options, *ids[start : start + MOST_IDS])
        except SlurmSilent as silent:
            if "nvalid job id" not in str(silent) and "already" not in str(silent):  # it has not ended
                raise


def read_array_limit() -> int:
    """Return the largest number of tasks of a job array (MaxArraySize).

    Raises:
        SlurmSilent: there was no answer.
    """
    match = re.search(r"^MaxArraySize\s*=\s*(\d+)", run_command("scontrol", "show", "config"), re.MULTILINE)
    return max(1, int(match[1])) if match else 1001
