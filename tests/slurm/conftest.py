"""A real SLURM for the tests that ask for it: three nodes on this machine, started by tests/slurm/cluster.

Every pytest process (one, or each worker of pytest-xdist) that comes to such a test starts a cluster of its own,
which takes a second, so that one test may break what another one needs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import eventually

CLUSTER = Path(__file__).with_name("cluster")
NODES = ("n1", "n2", "n3")
CPUS = 8
MAX_ARRAY = 20
NOT_INSTALLED = 77


class Refused(Exception):
    """A command of SLURM, or of tests/slurm/cluster, failed; `str()` says why."""


@dataclasses.dataclass(frozen=True)
class Slurm:
    """A running cluster. `environment` is what its commands need; the fixture `slurm` has it in os.environ."""

    directory: Path
    environment: dict[str, str]

    def ask(self, *command: str) -> str:
        """What a command prints.

        Raises:
            Refused: it failed.
        """
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode:
            raise Refused(f"{command} exited with {done.returncode}: {done.stderr}")
        return done.stdout

    def cluster(self, *arguments: str) -> None:
        """A command of tests/slurm/cluster for this cluster: `up` (again), `fail NODE`."""
        self.ask(sys.executable, str(CLUSTER), *arguments, "--directory", str(self.directory))

    def queue(self) -> dict[str, str]:
        """The state of each job that has not ended, by its id (of an array 123_4)."""
        lines = self.ask("squeue", "--noheader", "--array", "--format=%i %T").splitlines()
        return {job: state for job, state in map(str.split, lines)}

    def states(self) -> dict[str, str]:
        """The state of each job that this cluster has ever had, by its id."""
        lines = self.ask("squeue", "--noheader", "--array", "--states=all", "--format=%i %T").splitlines()
        return {job: state for job, state in map(str.split, lines)}

    def pid(self, daemon: str) -> int:
        """The process id of `slurmctld` or `slurmd.NODE`."""
        return int((self.directory / f"{daemon}.pid").read_text(encoding="ascii"))

    def processes(self) -> list[str]:
        """The command lines of what jobs of this cluster run."""
        mark = os.fsencode(f"SLURM_CONF={self.environment['SLURM_CONF']}")
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                words = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
                if mark in words and any(word.startswith(b"SLURM_JOB_ID=") for word in words):
                    found.append(f"{entry.name} {(entry / 'cmdline').read_bytes().replace(bytes(1), b' ').decode()}")
        return found


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[Slurm]:
    """A cluster for this pytest process; skips where SLURM is not installed."""
    directory = Path(tempfile.mkdtemp(prefix="gradsweep-slurm-"))  # a short name: it holds a socket
    options = ["--nodes", str(len(NODES)), "--cpus", str(CPUS), "--max-array", str(MAX_ARRAY), "--patience", "10"]
    command = [sys.executable, str(CLUSTER), "up", *options, "--directory", str(directory), "--owner", str(os.getpid())]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    if done.returncode == NOT_INSTALLED:
        directory.rmdir()
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    exports = (shlex.split(line)[1].partition("=") for line in done.stdout.splitlines())
    try:
        yield Slurm(directory, {name: value for name, _, value in exports})
    finally:
        subprocess.run(
            [sys.executable, str(CLUSTER), "down", "--directory", str(directory)],
            stdin=subprocess.DEVNULL,
            check=True,
            timeout=120,
        )
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def slurm(slurm_cluster: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """The cluster, with all nodes well and no job, known to every command that the test starts.

    Whatever the test has done, it must not leave a process of a job behind.
    """
    for name, value in slurm_cluster.environment.items():
        monkeypatch.setenv(name, value)
    yield slurm_cluster
    slurm_cluster.cluster("up")
    slurm_cluster.ask("scancel", "--user", str(os.geteuid()))
    eventually(lambda: not slurm_cluster.queue())
    for node in NODES:
        with contextlib.suppress(Refused):  # it is up already
            slurm_cluster.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")
    idle = ("sinfo", "--noheader", "--Node", "--responding", "--partition=debug", "--states=idle", "--format=%N")
    eventually(lambda: len(slurm_cluster.ask(*idle).split()) == len(NODES))
    assert not list_leftovers(slurm_cluster), "of a job is left"


def list_leftovers(cluster: Slurm) -> list[str]:
    """The processes of jobs that do not end by themselves now that all jobs have ended."""
    with contextlib.suppress(AssertionError):
        eventually(lambda: not cluster.processes())
    return cluster.processes()
