"""`python -m sweep probe` as a user types it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gradsweep import files, run_directory
from gradsweep.run_directory import Run, runs_of
from sweep.system.processes import find_processes
from tests.conftest import ROOT, eventually

pytestmark = pytest.mark.thorough

Probe = Callable[..., "subprocess.Popen[str]"]

PLAYED = """#!/bin/sh
# mpirun -n WORKERS python -m trainers.training.probe SECONDS DIRECTORY
[ "$1" = --version ] && exit
echo "$1 $4 $5" >> "$PLAYED/told"
for last; do :; done
case $last in *seed=9*) echo 'no such cable' >&2; exit 3;; *seed=8*) sleep 1000 & wait;; esac
echo '{"status": "done"}' > "$last/result.json"
cp "$PLAYED/network.json" "$last"
"""


@pytest.fixture
def probe(tmp_path: Path) -> Iterator[Probe]:
    """Start a probe in the test's directory."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str) -> subprocess.Popen[str]:
        program = subprocess.Popen(
            [sys.executable, "-m", "sweep", "probe", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PLAYED": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(program)
        return program

    yield begin
    for program in started:
        if program.poll() is None:
            program.send_signal(signal.SIGTERM)
            program.communicate(timeout=120)


@pytest.fixture
def played(probe: Probe, tmp_path: Path) -> Probe:
    """Probes whose ranks are a shell: seed 9 fails, seed 8 takes for ever."""
    (tmp_path / "ranks.sh").write_text(PLAYED)
    os.chmod(tmp_path / "ranks.sh", 0o755)
    found = {"format": 1, "kind": "probe", "network": {"name": "none"}, "workers": 2, "hosts": ["a"], "collectives": {}}
    (tmp_path / run_directory.NETWORK).write_text(json.dumps(found))
    return lambda *words: probe(f"mpi.command=[{tmp_path}/ranks.sh,'{{workers}}']", *words)


def end(program: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = program.communicate(timeout=240)
    return program.returncode, out, err


def probes(tmp_path: Path) -> list[Run]:
    return [run for path in sorted(tmp_path.glob("output/*/*-probe")) for run in runs_of(path, run_directory.PROBES)]


def found(run: Run) -> dict[str, Any]:
    network = files.read_json(run.path(run_directory.NETWORK))
    assert network is not None
    return network


@pytest.mark.mpi
def test_two_ranks_are_probed_for_real(probe: Probe, tmp_path: Path) -> None:
    code, out, err = end(probe("workers=2", "--seconds", "12"))
    assert (code, err) == (0, ""), out + err
    (run,) = probes(tmp_path)
    network = found(run)
    assert (network["kind"], network["workers"], network["network"]) == ("probe", 2, {"name": "none"})
    assert network["settings"]["OMPI_MCA_coll_tuned_allreduce_algorithm"] == "4"
    assert network["measured"]["latency_s"] > 0 and network["machine"]["cpu"]["cores"] == os.cpu_count()
    for name in ("allreduce", "allgather", "alltoall", "bcast"):
        assert network["collectives"][name]["points"] and name in out
    assert {fit["algorithm"] for fit in network["collectives"]["allreduce"]["fits"]} <= {"ring"}
    assert run.path("network.png").read_bytes().startswith(b"\x89PNG")
    assert (
        "network=none, 2 workers on 1 host" in out and str(run.path(run_directory.NETWORK).relative_to(tmp_path)) in out
    )
    record = files.read_json(run.attempt(1) / run_directory.PROVENANCE)
    assert record is not None and record["git"] is not None and record["overrides"] == ["workers=2"]


def test_several_values_are_several_probes_one_after_the_other(played: Probe, tmp_path: Path) -> None:
    code, out, err = end(played("workers=2,3", "network=real", "sweep.name=lab", "--seconds", "7", "--quiet"))
    assert (code, err) == (0, "")
    assert (tmp_path / "told").read_text().splitlines() == [
        "2 trainers.training.probe 7",
        "3 trainers.training.probe 7",
    ]
    assert [run.state()["workers"] for run in probes(tmp_path)] == [2, 3]
    assert [run.directory.parent.parent.name.endswith("-lab-probe") for run in probes(tmp_path)] == [True, True]
    assert out.splitlines() == [str(run.path(run_directory.NETWORK).relative_to(tmp_path)) for run in probes(tmp_path)]


def test_who_looks_at_sweeps_sees_no_probe(played: Probe, tmp_path: Path) -> None:
    assert end(played("workers=2"))[0] == 0
    (run,) = probes(tmp_path)
    directory = run.directory.parent.parent

    def ask(*words: object) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", *map(str, words)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        return done.returncode, (done.stdout + done.stderr).strip()

    assert ask("reports", "list") == (0, "output: no sweeps")
    code, said = ask("sweep", "status")
    assert code == 2 and said.startswith("last: there is no sweep")
    code, said = ask("sweep", "status", directory)
    assert code == 2 and "there is no sweep in it" in said
    code, said = ask("reports", "output")
    assert code == 2 and "no runs here" in said
    assert {path.name for path in directory.iterdir()} == {run_directory.PROBES}


def test_what_failed_is_told_and_the_others_are_probed(played: Probe, tmp_path: Path) -> None:
    code, out, err = end(played("seed=9,1", "--quiet"))
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert lines[0].startswith("failed: output/") and "seed=9" in lines[0]
    assert "  | no such cable" in lines
    assert lines[-1].endswith(f"/{run_directory.NETWORK}") and "seed=1" in lines[-1]
    assert [run.status() for run in probes(tmp_path)] == [run_directory.DONE, run_directory.FAILED]


def test_ctrl_c_ends_it(played: Probe, tmp_path: Path) -> None:
    program = played("seed=8,1")
    eventually(lambda: [run.status() for run in probes(tmp_path)] == [run_directory.PENDING, run_directory.RUNNING])
    (_, running) = probes(tmp_path)
    attempt = running.attempt(1).absolute()
    eventually(lambda: find_processes(attempt))
    program.send_signal(signal.SIGINT)
    code, out, err = end(program)
    assert code == 130 and "interrupted; the probe has been ended" in out and err == ""
    assert running.status() == run_directory.CANCELLED and not find_processes(attempt)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["workers=1"], "workers=1: valid is an integer from 2 up: a network is between two"),
        (["workers=2,1"], "workers=1: valid is an integer from 2 up: a network is between two"),
        (["workers=x"], "workers=x: valid is an integer from 1 to 4096"),
        (["workers"], "probe=workers: valid is KEY=VALUE, such as workers=4 or network=ethernet_1g"),
        (["--seconds", "0.1"], "--seconds=0.1: valid is a number from 1 to 3600"),
        (["--seconds", "soon"], "python -m sweep probe: --seconds soon: valid is a number"),
        (["--what"], "python -m sweep probe: --what: unknown; valid is one of --help, --seconds, "),
        (["sweep.wait=false"], "sweep.wait=false: valid is true, where the network is probed"),
        (["sweep.dry_run=true"], "sweep.dry_run=true: valid is false, where the network is probed"),
        (["sweep.resume=last"], "sweep.resume=last: valid is null, where the network is probed"),
        (["network.bandwidth=1gbit"], "network.bandwidth=1gbit: unknown key of network=none; network=emulated, "),
        (["mpi.command=[nowhere,'{workers}']"], "mpi.command=nowhere: not found beside "),
        (["--config-dir", "nowhere"], "--config-dir=nowhere: valid is a directory"),
    ],
)
def test_what_cannot_be_probed_is_told_in_a_line(probe: Probe, tmp_path: Path, words: list[str], line: str) -> None:
    code, out, err = end(probe(*words))
    assert (code, out) == (2, "")
    assert err.startswith(line) and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_directory_that_has_something_in_it_is_refused(played: Probe, tmp_path: Path) -> None:
    assert end(played("hydra.sweep.dir=here"))[0] == 0
    code, _, err = end(played("hydra.sweep.dir=here"))
    assert (code, err) == (2, "hydra.sweep.dir=here: valid is a directory without a sweep or probes\n")
    assert len(runs_of(tmp_path / "here", run_directory.PROBES)) == 1


def test_what_goes_together_in_training_makes_no_difference(played: Probe) -> None:
    code, _, err = end(played("workers=200", "network=real", "batch.size=128"))  # a worker would have no sample
    assert (code, err) == (0, "")


def test_own_networks_are_found(played: Probe, tmp_path: Path) -> None:
    (tmp_path / "mine/network").mkdir(parents=True)
    (tmp_path / "mine/network/office.yaml").write_text("defaults: [/schema/network/real@_here_]\n")
    code, _, err = end(played("--config-dir", "mine", "network=office"))
    assert (code, err) == (0, "")
