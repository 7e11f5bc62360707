"""The job of `python -m sweep.emulation`, without a cluster: its signals, and what it says was built."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gradsweep import run_directory
from sweep.emulation import __main__ as program
from sweep.emulation.build_cluster import BuiltCluster
from sweep.emulation.delay import Delayer
from sweep.system import cgroups
from tests.sweep.emulation.conftest import describe_network


def test_a_signal_takes_no_end_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes when mpirun has just ended: whoever waits for its exit status would wait for ever."""
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    signals = program.Signals()
    signals._pass_on(signal.SIGUSR1, None)
    process = subprocess.Popen(["sh", "-c", "exit 7"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    signals.attach(process)
    signals._pass_on(signal.SIGUSR1, None)
    assert os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1]) == 7
    signals._pass_on(signal.SIGUSR1, None)  # to nobody
    process.returncode = 7


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> program.Job:
    monkeypatch.setenv(run_directory.ATTEMPT_VARIABLE, str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    network = describe_network(latency="1ms", loss=0.1, hosts={1: {"latency": "3ms"}})
    return program.Job({"network": network, "ranks": 3, "threads": 1}, ["mpirun"])


def record(job: program.Job, delayer: str | None, **had: float) -> dict[str, Any]:
    """What emulation.json says where only one latency and loss could be had."""
    cluster = job.cluster.replace_latency(**had) if had else job.cluster
    built = SimpleNamespace(cluster=cluster, problems=[])
    return job._build_record(
        cast(BuiltCluster, built), cast(Delayer, SimpleNamespace(name=delayer)) if delayer else None, None
    )


def test_what_was_not_built_is_null(job: program.Job) -> None:
    own = {"host1": {"bandwidth": 1e9, "latency_s": pytest.approx(3e-3)}}
    found = record(job, "switch")
    assert (found["latency_s"], found["loss"], found["own"]) == (pytest.approx(1e-3), 0.1, own)
    found = record(job, "netem", latency=job.cluster.latency, loss=0.1)
    own["host1"]["latency_s"] = None
    assert (found["latency_s"], found["loss"], found["own"]) == (pytest.approx(1e-3), 0.1, own)
    found = record(job, None, latency=0.0, loss=0.0)
    assert (found["delay"], found["latency_s"], found["loss"], found["own"]) == ("none", None, None, own)


@pytest.mark.parametrize(("quota", "cores"), [(None, 3.0), (1.5, 1.5), (64.0, 3.0)])
def test_the_cores_that_hosts_have_together(
    job: program.Job, quota: float | None, cores: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {4, 5, 6})
    monkeypatch.setattr(cgroups, "read_cpu_limit", lambda: quota)
    assert record(job, None)["cores"] == cores
