"""The machine's speed is measured on one core, on a free one where there is one, and never gets in the way."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.executors.slots import LockedSlots
from sweep.launch import opening
from sweep.provenance import calibration
from tests.conftest import eventually

RATES = ("copy_gb_s", "matmul_gflop_s", "loop_mops")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADSWEEP_SLOTS", str(tmp_path / "slots"))
    return tmp_path / "slots"


def test_what_it_tells() -> None:
    found = opening.calibrate()
    assert set(found) == {*RATES, "steadiness", "core_was_free", "host", "cores", "time"}
    assert found["host"] == socket.gethostname() and found["cores"] == [min(os.sched_getaffinity(0))]
    assert all(found[rate] > 0 for rate in RATES) and 0 < found["steadiness"] <= 1
    assert found["core_was_free"] is True
    json.dumps(found)


def test_it_says_that_all_cores_were_in_use(place: Path) -> None:
    slots = LockedSlots()
    assert slots.lease(len(slots.cores)) is not None
    try:
        assert opening.calibrate()["core_was_free"] is False
    finally:
        slots.close()


def test_what_is_ones_own_is_not_leased(place: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    slots = LockedSlots()
    assert slots.lease(len(cores)) is not None
    try:
        found = calibration.calibrate_own(cores[-1:])
        assert found["cores"] == cores[-1:] and found["core_was_free"] is True and found["loop_mops"] > 0
        nobodys = calibration.calibrate_own([])
        assert nobodys["cores"] == cores and nobodys["core_was_free"] is None
    finally:
        slots.close()


def test_it_does_not_outlive_who_has_asked(tmp_path: Path) -> None:
    """The one that measures is a shell here that says who it is and stays."""
    program = tmp_path / "python"
    program.write_text(
        f"#!/bin/sh\necho $$ > '{tmp_path}/pid.part'; mv '{tmp_path}/pid.part' '{tmp_path}/pid'\nexec sleep 60\n"
    )
    program.chmod(0o755)
    own = "from sweep.provenance.calibration import calibrate_own; calibrate_own([])"
    code = f"import sys; sys.executable = {str(program)!r}; {own}"
    asking = subprocess.Popen([sys.executable, "-c", code])
    pid = int(str(eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())))
    asking.kill()
    asking.wait()
    eventually(lambda: not Path(f"/proc/{pid}").exists())


def test_its_core_is_free_again_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "measure_core", lambda cores, *_, **__: {"cores": cores})
    first = min(os.sched_getaffinity(0))
    assert opening.calibrate() == {"cores": (first,)} == opening.calibrate()


def test_one_core_and_one_thread_are_measured() -> None:
    code = (
        "import runpy, sys, os\nsys.argv = ['calibration', sys.argv[1]]\n"
        "runpy.run_module('sweep.provenance.calibration', run_name='__main__')\n"
        "print(len(os.sched_getaffinity(0)), 'torch' in sys.modules, file=sys.stderr)"
    )
    core = str(min(os.sched_getaffinity(0)))
    done = subprocess.run([sys.executable, "-c", code, core], capture_output=True, text=True, check=True)
    assert done.stderr.split() == ["1", "False"]


@pytest.mark.parametrize("trouble", ["no such program", "no directory", "not JSON"])
def test_where_it_cannot_be_measured_nothing_breaks(trouble: str, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    if trouble == "no directory":
        place.touch()
        assert opening.calibrate()["core_was_free"] is False
        return
    monkeypatch.setattr(sys, "executable", "/no/such/python" if trouble == "no such program" else "/bin/echo")
    assert opening.calibrate() == {}


def test_the_first_go_does_not_count() -> None:
    calls: list[int] = []
    times = calibration.time_repeatedly(lambda: calls.append(1))
    assert len(calls) == len(times) + 1 >= 1 + calibration.REPEATS[0] and times == sorted(times)
