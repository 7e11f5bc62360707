"""Training on emulated hosts as a user starts it: `network=...` is an axis of a sweep like another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gradsweep import files, run_directory
from gradsweep.run_directory import Run, runs_of
from sweep.system.processes import find_processes
from tests.conftest import ENDLESS, PLAYED, QUICK, ROOT, Program, eventually
from tests.sweep.emulation.conftest import all_namespaces, interfaces, namespaces_of

pytestmark = [pytest.mark.network, pytest.mark.mpi, pytest.mark.thorough]

SWEEP = "hydra.sweep.dir=sweep"
Start = Callable[..., Program]


@pytest.fixture
def start(start: Start, digits: Path) -> Start:
    return lambda *arguments: start(*arguments, f"data.root={digits}", SWEEP, without=PLAYED)


def run_of(tmp_path: Path) -> Run:
    (run,) = runs_of(tmp_path / "sweep")
    return run


def training(tmp_path: Path) -> Run:
    """The run, once it has taken steps."""

    def ready() -> Run | None:
        runs = runs_of(tmp_path / "sweep")
        return runs[0] if runs and files.last_row(runs[0].path(run_directory.STEPS)) else None

    run = eventually(ready, 240)
    assert isinstance(run, Run)
    return run


def processes(run: Run) -> dict[str, list[int]]:
    """Of its first attempt: the outer process, mpirun, and the ranks."""
    found: dict[str, list[int]] = {"outer": [run.state()["attempts"][0]["pid"]], "mpirun": [], "rank": []}
    for pid in find_processes(run.attempt(1).absolute()):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if words[1:3] == [b"-m", b"trainers"]:
            found["rank"].append(pid)
        elif words[0].endswith((b"mpirun", b"prterun")):
            found["mpirun"].append(pid)
    return found


def namespaces(run: Run) -> set[str]:
    return namespaces_of(find_processes(run.attempt(1).absolute())) - {os.readlink("/proc/self/ns/net")}


def test_a_network_is_an_axis_of_a_sweep(start: Start, tmp_path: Path) -> None:
    """The same numbers on either; the record is beside the logs. In a packed sweep a network has a world of its own."""
    code, out, err = start("-m", *QUICK, "network=wan_100m,none", "seed=1,2", "workers=3", "sweep.pack=true").end(240)
    assert code == 0, out + err
    results, worlds = {}, set()
    for run in runs_of(tmp_path / "sweep"):
        result = run.result()
        assert result is not None
        name = "none" if "network=none" in run.name else "wan_100m"
        if "seed=2" in run.name:
            results[name] = result
        assert (run.attempt(1) / run_directory.EMULATION).exists() == (name == "wan_100m")
        worlds.add((name, run.state()["attempts"][0]["world"]))
    assert len(worlds) == 2, "each network is built once"
    assert results["wan_100m"]["hosts"] == ["host0", "host1", "host2"]
    assert results["wan_100m"]["loss"] == results["none"]["loss"]
    assert results["wan_100m"]["phases_s"]["communicate"] > 0.02, "four messages of 10 ms each, at the least"


def test_workers_of_a_host(start: Start, tmp_path: Path) -> None:
    given = ("network=emulated", "network.workers_per_host=2", "network.hosts={1:{bandwidth:100mbit}}")
    code, out, err = start(*QUICK, *given, "workers=3").end(240)
    result = run_of(tmp_path).result()
    assert code == 0 and result is not None, out + err
    assert result["hosts"] == ["host0", "host1"]
    record = json.loads((run_of(tmp_path).attempt(1) / run_directory.EMULATION).read_text())
    assert record["hosts"] == 2 and record["own"]["host1"]["bandwidth"] == 1e8


@pytest.mark.parametrize("whom", ["outer", "mpirun", "rank", "launcher"])
def test_nothing_is_left_whoever_is_killed(start: Start, tmp_path: Path, whom: str) -> None:
    before = interfaces()
    program = start(*ENDLESS, "network=ethernet_1g", "workers=2", "sweep.retries=0")
    run = training(tmp_path)
    mine, found = namespaces(run), processes(run)
    assert len(mine) >= 3 and len(found["rank"]) == 2 and found["mpirun"]
    os.kill(program.process.pid if whom == "launcher" else found[whom][-1], signal.SIGKILL)
    code, out, err = program.end(120)
    eventually(lambda: not find_processes(run.attempt(1).absolute()), 60)
    assert not mine & all_namespaces() and interfaces() == before
    if whom != "launcher":
        (attempt,) = run.state()["attempts"]
        assert code == 1 and attempt["cause"] == "killed", attempt
        assert ("a rank" if whom == "rank" else "the MPI launcher") + " was killed" in attempt["reason"]


def test_ctrl_c_and_a_resume(start: Start, tmp_path: Path) -> None:
    """The signal to save comes through to the ranks; what was saved goes on on hosts of its own."""
    arguments = (*QUICK[:1], "epochs=40", "network=ethernet_1g", "workers=2", "checkpoint.every_steps=20")
    program = start(*arguments)
    run = training(tmp_path)
    mine = namespaces(run)
    program.process.send_signal(signal.SIGUSR1)
    code, out, err = program.end(120)
    assert (code, run.status()) == (1, run_directory.PREEMPTED), out + err
    assert "SIGUSR1: saved at step" in run.state()["reason"]
    assert not mine & all_namespaces()

    program = start(*arguments, "sweep.resume=sweep")
    eventually(
        lambda: run.status() == run_directory.RUNNING and (run.attempt(2) / run_directory.EMULATION).exists(), 120
    )
    program.process.send_signal(signal.SIGINT)
    program.end(120)
    assert run.status() == run_directory.CANCELLED
    eventually(lambda: not find_processes(run.attempt(2).absolute()), 60)

    code, out, err = start(*arguments, "sweep.resume=sweep").end(240)
    result = run.result()
    assert code == 0 and result is not None, out + err
    assert result["resumed_after"] and result["hosts"] == ["host0", "host1"]


def test_a_probe_measures_the_network_that_was_asked_for(tmp_path: Path) -> None:
    words = ["probe", "workers=2", "network=wan_100m", "--seconds", "8"]
    done = subprocess.run(
        [sys.executable, "-m", "sweep", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    (file,) = tmp_path.glob("output/*/*-probe/probes/*/network.json")
    found = json.loads(file.read_text())
    assert done.returncode == 0 and found["hosts"] == ["host0", "host1"], done.stdout + done.stderr
    assert 0.0097 < found["measured"]["latency_s"] < 0.02
    assert 2e7 < found["measured"]["bandwidth"] < 1e8, "headers travel, too; others may use the machine"
    assert found["collectives"]["allreduce"]["fits"][0]["alpha_s"] > 0.009
