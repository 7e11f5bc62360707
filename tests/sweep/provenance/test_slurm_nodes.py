"""What the nodes of a job tell of themselves; a script plays srun, which starts the real program for each."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from gradsweep.run_directory import OTHER_NODES, nodes_of
from sweep.provenance import slurm_nodes
from sweep.system.slurm_allocation import Allocation
from tests.conftest import ROOT
from tests.sweep.fake_slurm import FakeSlurm, fake

__all__ = ["fake"]

SKIP = 'while [ "${1#-}" != "$1" ]; do shift; done\n'
EACH = 'for n in 2 3; do SLURMD_NODENAME=n$n "$@"'


@pytest.fixture
def allocation(fake: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Allocation:
    (fake.here / "hosts").write_text("n1\nn2\nn3\n")
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(slurm_nodes, "PATIENCE_S", 60.0)
    return Allocation("7", 3, 6, confined=False, restarts=0, hosts="n[1-3]")


def plays(fake: FakeSlurm, body: str) -> None:
    """Have srun do that."""
    (fake.bin / "srun").unlink()
    (fake.bin / "srun").write_text(f'#!/bin/sh\necho "srun $*" >> "{fake.here}/asked"\n{SKIP}{body}\n')
    (fake.bin / "srun").chmod(0o755)


def test_what_is_alike_is_recorded_once(fake: FakeSlurm, allocation: Allocation) -> None:
    plays(fake, f'{EACH} | sed "s/^/$n: /"; done')
    found = slurm_nodes.describe_job(["sh"], allocation)
    assert set(found) == {"mpi", "calibration", OTHER_NODES} and set(found[OTHER_NODES]) == {"n2", "n3"}
    for node in found[OTHER_NODES].values():
        assert set(node) == {"calibration"} and set(node["calibration"]) == set(slurm_nodes.RATES)
        assert node["calibration"]["loop_mops"] > 0
    (asked,) = fake.asked("srun")
    assert "--nodes=2 --ntasks=2" in asked and "--nodelist=n2,n3" in asked


def test_what_is_different_is_told_also_in_a_line_that_comes_in_pieces(
    fake: FakeSlurm, allocation: Allocation, tmp_path: Path
) -> None:
    mpi = tmp_path / "mpi"
    mpi.write_text("#!/bin/sh\necho of $SLURMD_NODENAME\n")
    mpi.chmod(0o755)
    plays(fake, f'{EACH} | fold -w 50 | sed "s/^/ $n: /"; echo; done')
    found = slurm_nodes.describe_job([str(mpi)], allocation)
    assert found["mpi"] == f"{mpi}: of n1"
    assert [node["mpi"] for node in found[OTHER_NODES].values()] == [f"{mpi}: of n2", f"{mpi}: of n3"]
    assert [node["mpi"][-2:] for node in nodes_of(found)] == ["n1", "n2", "n3"]


@pytest.mark.parametrize(
    ("body", "known"),
    [
        ("exit 1", []),
        (f'{EACH} | sed "s/^/$n: /"; break; done; echo "3: error: {{"; echo "4: [1]"; exit 1', ["n2"]),
    ],
)
def test_nodes_that_do_not_answer_are_named(fake: FakeSlurm, allocation: Allocation, body: str, known: Any) -> None:
    plays(fake, body)
    found = slurm_nodes.describe_job(["sh"], allocation)
    assert found["calibration"]["loop_mops"] > 0
    assert {name for name, node in found[OTHER_NODES].items() if node is None} == {"n2", "n3"} - set(known)
    assert len(nodes_of(found)) == 1 + len(known)


def test_nobody_waits_for_a_node_that_hangs(
    fake: FakeSlurm, allocation: Allocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where srun is a script, whose end is not that of the real one."""
    monkeypatch.setattr(slurm_nodes, "PATIENCE_S", 0.1)
    plays(fake, f"sleep 1000 & echo $! > {tmp_path}/pid; wait")
    assert slurm_nodes.describe_job(["sh"], allocation)[OTHER_NODES] == {"n2": None, "n3": None}
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)  # it is still there


def test_where_there_is_no_srun_nobody_is_asked(fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    (fake.bin / "srun").unlink()
    monkeypatch.setenv("PATH", str(fake.bin))
    assert slurm_nodes._ask(["sh"], ["n2"]) is None


def test_one_node_is_asked_nothing(fake: FakeSlurm) -> None:
    plays(fake, "exit 1")
    found = slurm_nodes.describe_job(["sh"], Allocation("7", 1, 1, confined=False, restarts=0, hosts="n1"))
    assert set(found) == {"mpi", "calibration"} and not fake.asked("srun")
