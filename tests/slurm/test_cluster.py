"""The throw-away cluster itself: what the other tests of SLURM, and docs/guide/slurm-laptop.md, build upon."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, eventually
from tests.slurm.conftest import CLUSTER, CPUS, NODES, Slurm

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]

HELLO = "from mpi4py import MPI; import socket; print(MPI.COMM_WORLD.size, socket.gethostname(), flush=True)"
# for Open MPI started by hand, where it is root and there are more ranks than cores
BY_HAND = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="host names of their own for the nodes: only root can give them")


def test_nodes_answer_and_run_commands(slurm: Slurm) -> None:
    nodes = slurm.ask("sinfo", "--noheader", "--Node", "--partition=debug", "--format=%N %T %c").splitlines()
    assert nodes == [f"{name} idle {CPUS}" for name in NODES]
    assert slurm.ask("srun", "-n", "2", "echo", "here").split() == ["here", "here"]


@as_root
def test_mpirun_of_our_environment_spans_two_nodes(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in BY_HAND.items():
        monkeypatch.setenv(name, value)
    script = tmp_path / "job"
    mpirun = Path(sys.executable).with_name("mpirun")
    command = shlex.join([str(mpirun), sys.executable, "-c", HELLO])
    script.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
    slurm.ask("sbatch", "--wait", "--nodes=2", "--ntasks-per-node=1", f"--output={tmp_path}/out", str(script))
    assert sorted((tmp_path / "out").read_text(encoding="utf-8").splitlines()) == ["2 n1", "2 n2"]


@as_root
def test_srun_starts_ranks_of_one_world(slurm: Slurm) -> None:
    said = slurm.ask("srun", "--nodes=2", "--ntasks=2", "--mpi=pmix", sys.executable, "-c", HELLO)
    assert sorted(said.splitlines()) == ["2 n1", "2 n2"]


@as_root
def test_failed_node_takes_its_processes_along_and_comes_back(slurm: Slurm) -> None:
    slurm.ask("sbatch", "--nodes=1", "--nodelist=n3", "--no-requeue", "--output=/dev/null", "--wrap", "sleep 1000")
    eventually(lambda: any("sleep 1000" in line for line in slurm.processes()))
    slurm.cluster("fail", "n3")
    assert slurm.processes() == []
    slurm.cluster("up")
    assert slurm.ask("srun", "--nodelist=n3", "hostname").strip() == "n3"


def cluster(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of tests/slurm/cluster for a cluster in `directory`."""
    command = [sys.executable, str(CLUSTER), *arguments, "--directory", str(directory)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def running(directory: Path) -> list[str]:
    """The command lines that name a directory."""
    done = subprocess.run(["ps", "-ww", "-eo", "args"], stdout=subprocess.PIPE, text=True, check=True)
    return [line for line in done.stdout.splitlines() if str(directory) in line]


def test_two_clusters_side_by_side(slurm: Slurm, tmp_path: Path) -> None:
    other = tmp_path / "other"
    before = slurm.ask("sinfo", "--noheader", "--Node", "--format=%N")
    up = cluster(other, "up", "--nodes", "1", "--gpus", "2")
    assert up.returncode == 0, up.stderr
    environment = {**os.environ, "SLURM_CONF": str(other / "slurm.conf")}
    asked = ["srun", "--gres=gpu:2", "sh", "-c", "echo $SLURM_JOB_NODELIST; sleep 1000 </dev/null >/dev/null 2>&1 &"]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, timeout=120)
    daemons = len(running(other))
    down = cluster(other, "down")
    assert (done.stdout, down.returncode) == ("n1\n", 0), done.stderr
    assert daemons >= 3
    assert not other.exists()
    assert running(other) == []
    assert slurm.ask("sinfo", "--noheader", "--Node", "--format=%N") == before


def test_cluster_goes_with_its_owner(slurm_cluster: Slurm, tmp_path: Path) -> None:
    owner = subprocess.Popen(["sleep", "1000"])
    try:
        up = cluster(tmp_path / "owned", "up", "--nodes", "1", "--owner", str(owner.pid))
        assert up.returncode == 0, up.stderr
    finally:
        owner.kill()
        owner.wait()
    eventually(lambda: not (tmp_path / "owned").exists() and not running(tmp_path))


def test_foreign_files_are_left_alone(slurm_cluster: Slurm, tmp_path: Path) -> None:
    (tmp_path / "thesis").touch()
    up = cluster(tmp_path, "up")
    assert (up.returncode, up.stderr) == (
        1,
        f"cluster: {tmp_path}: has other files; valid is a new or empty directory\n",
    )
    assert cluster(tmp_path, "down").returncode == 0
    assert (tmp_path / "thesis").exists()


def test_without_the_programs_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # and /usr/sbin, which it looks into in any case
    up = cluster(tmp_path / "none", "up")
    assert up.returncode == 77
    assert "sbatch, srun not found" in up.stderr
    assert "slurmctld slurmd slurm-client munge libpmix-dev" in up.stderr
    assert not (tmp_path / "none").exists()
