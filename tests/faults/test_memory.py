"""No memory left: what ranks say themselves, and what only the kernel's counter tells."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from gradsweep import failure_causes
from sweep.system import oom_kills
from tests.faults.conftest import StandInOf, attempts, ranks
from trainers.training.failure_cause import find_cause

ROOT = Path("/sys/fs/cgroup")


@pytest.fixture
def group() -> Iterator[tuple[Path, str]]:
    """A memory cgroup of our own, and the name of its limit; skips where none can be made."""
    parent = None
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            parent, limit = ROOT / "memory" / path.lstrip("/"), "memory.limit_in_bytes"
        elif not controllers and (ROOT / "cgroup.subtree_control").exists():
            parent, limit = ROOT, "memory.max"
    made = None if parent is None else parent / f"gradsweep-{uuid.uuid4().hex[:8]}"
    try:
        if made is None:
            raise FileNotFoundError("there is no memory cgroup")
        made.mkdir()
        (made / limit).write_text(str(200 << 20))
    except OSError as error:
        pytest.skip(f"needs a memory cgroup of its own: {error}")
    yield made, limit
    made.rmdir()


def test_a_rank_that_the_kernel_kills_for_memory_is_tried_once_more_and_alone(
    stand_in: StandInOf, group: tuple[Path, str]
) -> None:
    """The launcher and its ranks share a limit, as in a container."""
    eat = f'{shlex.quote(sys.executable)} -S -c "b = bytearray(400 << 20)"'
    sweep = stand_in(f'case "$4" in *seed=1*) {eat} || exit $?;; esac; {ranks(2, 0)}', points=3, retries=5)
    procs = str(group[0] / "cgroup.procs")
    code, out = sweep.finish(preexec_fn=lambda: Path(procs).write_text(str(os.getpid())))
    assert code == 1, out
    eater = next(run for run in sweep.runs if "seed=1" in run.name)
    assert attempts(eater) == [("failed", failure_causes.MEMORY)] * 2
    assert eater.state()["reason"] == "a rank was killed by the kernel: no memory was left"
    assert "retry 1 of 5 in 0 s with nothing beside it" in out and "retry 2" not in out
    assert all(attempts(run) == [("done", None)] for run in sweep.runs if run != eater)


def test_a_kill_by_somebody_else_is_none_for_memory(stand_in: StandInOf, group: tuple[Path, str]) -> None:
    sweep = stand_in("kill -9 $$", retries=0)
    procs = str(group[0] / "cgroup.procs")
    assert sweep.finish(preexec_fn=lambda: Path(procs).write_text(str(os.getpid())))[0] == 1
    assert attempts(sweep.run) == [("failed", failure_causes.KILLED)]


def test_ranks_say_so_themselves() -> None:
    with pytest.raises(RuntimeError) as found:
        torch.empty(1 << 58, dtype=torch.uint8)
    assert find_cause(found.value) == failure_causes.MEMORY
    assert find_cause(torch.OutOfMemoryError("CUDA out of memory")) == failure_causes.MEMORY
    assert find_cause(MemoryError()) == failure_causes.MEMORY
    assert find_cause(OSError(12, "Cannot allocate memory")) == failure_causes.MEMORY
    assert find_cause(RuntimeError("shapes do not fit")) == failure_causes.ERROR


def test_a_limit_of_the_shells_is_felt_as_such() -> None:
    """ulimit -v: what a rank then raises, in a process of its own."""
    load = "from trainers.training.failure_cause import find_cause"
    code = f"{load}\ntry: bytearray(1 << 31)\nexcept MemoryError as e: print(find_cause(e))"
    done = subprocess.run(
        ["bash", "-c", 'ulimit -v 1000000; exec "$0" -c "$1"', sys.executable, code], capture_output=True, text=True
    )
    assert done.stdout == "memory\n", done.stderr


@pytest.mark.parametrize(
    ("cgroups", "file"),
    [
        ("0::/user.slice/x.scope\n", "user.slice/x.scope/memory.events"),
        ("4:cpu:/a\n3:memory:/b\n0::/\n", "memory/b/memory.oom_control"),
        ("2:cpu,memory:/gone\n", "memory/memory.oom_control"),  # a container that sees its own part only
        ("0::/system.slice/job_7/step_batch/user/task_0\n", "system.slice/job_7/memory.events"),
    ],
)
def test_where_the_kernel_counts(tmp_path: Path, cgroups: str, file: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("low 0\noom_kill 3\n")
    assert oom_kills.find_counter_file(cgroups, tmp_path) == tmp_path / file


def test_without_a_counter_nothing_is_claimed(tmp_path: Path) -> None:
    assert oom_kills.find_counter_file("0::/x\n", tmp_path) is None
