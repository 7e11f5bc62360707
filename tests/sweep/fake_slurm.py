"""A stand-in for SLURM's commands: scripts on PATH that answer from files and write down what they were asked."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradsweep import run_directory
from gradsweep.files import write_json
from sweep.attempts.run_task import RunTask
from sweep.executors.slurm.executor import SlurmJob, SlurmRunExecutor
from tests.conftest import eventually

Make = Callable[..., RunTask]

COMMANDS = {
    "sbatch": """n=$(ls "$HERE"/array.* 2>/dev/null | wc -l); n=$((n + 1))
if [ -e "$HERE/refuse" ] && [ $n -ge "$(cat "$HERE/refuse")" ]; then
  echo "sbatch: error: no such partition" >&2; echo "sbatch: error: Batch job submission failed" >&2; exit 1
fi
cp "$1" "$HERE/array.$n"; env > "$HERE/environment"
echo "Submitted batch job $((n * 100))" """,
    "squeue": """[ ! -e "$HERE/down" ] || { echo "squeue: error: Unable to contact slurm controller" >&2; exit 1; }
cat "$HERE/queue" 2>/dev/null || true""",
    "sacct": """cat "$HERE/history" 2>/dev/null || { echo "Slurm accounting storage is disabled" >&2; exit 1; }""",
    "scancel": "",
    "scontrol": """case "$*" in
"show config") echo "MaxArraySize            = 3";;
"show job"*) cat "$HERE/job" 2>/dev/null;;
"show node"*) cat "$HERE/node" 2>/dev/null;;
"show hostnames"*) cat "$HERE/hosts" 2>/dev/null;;
"requeue"*) [ ! -e "$HERE/once" ] || { echo "Requested operation is presently disabled" >&2; exit 1; }
  [ ! -e "$HERE/ends" ] || kill -TERM $$;;
esac""",
}


class FakeSlurm:
    """The commands in `here`/bin, which has to be on PATH."""

    def __init__(self, here: Path) -> None:
        self.here, self.bin = here, here / "bin"
        self.bin.mkdir(parents=True)
        for name, body in COMMANDS.items():
            text = f'#!/bin/sh\nHERE={here}\necho "{name} $*" >> "$HERE/asked"\n{body}\n'
            (self.bin / name).write_text(text, encoding="utf-8")
            (self.bin / name).chmod(0o755)
        (self.bin / "srun").symlink_to("/bin/true")

    def asked(self, of: str) -> list[str]:
        """The arguments of every call of a command."""
        lines = (self.here / "asked").read_text(encoding="utf-8").splitlines() if (self.here / "asked").exists() else []
        return [line.partition(" ")[2] for line in lines if line.partition(" ")[0] == of]

    def queue(self, **jobs: str) -> None:
        """What squeue lists: states by id, such as _100_0="RUNNING"; a reason, a name after commas."""
        lines = []
        for id, about in jobs.items():
            state, reason, name = (*about.split(","), "None", "name")[:3]
            lines.append(f"{id[1:]}|{name}|{state}|{reason}\n")
        (self.here / "queue").write_text("".join(lines), encoding="utf-8")

    def refuses(self, name: str) -> None:
        """Have a command fail from now on."""
        (self.bin / name).write_text("#!/bin/sh\necho 'slurm_error: no controller' >&2; exit 1\n", encoding="utf-8")

    def arrays(self) -> list[str]:
        """The scripts that sbatch has accepted."""
        return [path.read_text(encoding="utf-8") for path in sorted(self.here.glob("array.*"))]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    fake = FakeSlurm(tmp_path / "fake")
    monkeypatch.setenv("PATH", f"{fake.bin}:{os.environ['PATH']}")
    return fake


def read(path: Path) -> dict[str, object]:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.executors.slurm.executor.LOOK_S", 0.01)
    monkeypatch.setattr("sweep.executors.slurm.executor.GONE_S", 0.1)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def task(name: str, workers: int = 1, **options: Any) -> RunTask:
        directory = tmp_path / "sweep" / run_directory.RUNS / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / run_directory.CONFIG).touch()
        return RunTask(str(directory), workers, 1, ["true"], {}, launcher={"cluster": "slurm", **options})

    return task


@pytest.fixture
def executor(tmp_path: Path, fake: FakeSlurm) -> SlurmRunExecutor:
    return SlurmRunExecutor(tmp_path / "sweep", 0.05)


def submit(executor: SlurmRunExecutor, *tasks: RunTask) -> list[SlurmJob]:
    jobs = executor.submit_runs(tasks)
    assert all(isinstance(job, SlurmJob) for job in jobs)
    return [job for job in jobs if isinstance(job, SlurmJob)]


def began(task: RunTask, job: str, status: str = run_directory.RUNNING, **more: Any) -> None:
    """The run's state as its job writes it."""
    attempt = {"number": 1, "status": status, "reason": None, "job": job, **more}
    state = {"status": status, "reason": more.get("reason"), "attempts": [attempt]}
    write_json(task.run.path(run_directory.STATE), state)


def polled(executor: SlurmRunExecutor, condition: Callable[[], object]) -> None:
    def look() -> object:
        executor.poll()
        return condition()

    eventually(look)
