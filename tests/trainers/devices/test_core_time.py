"""The time of cores and of this process, as the kernel counts them."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradsweep.run_directory import SWITCH_VARIABLE
from trainers.devices import core_time

STAT = """cpu  10 20 30 440 50 60 70 80 0 0
cpu0 5 10 15 220 25 30 35 40 0 0
cpu1 5 10 15 1220 25 30 35 40 0 0
intr 12345 0 0
cpu2 1 2
ctxt 5
"""


@pytest.fixture
def stat(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "stat"
    path.write_text(STAT)
    monkeypatch.setattr(core_time, "_STAT", path)
    return path


def test_time_of_processes_is_neither_that_of_idle_cores_nor_of_interrupts(stat: Path) -> None:
    tick = 1 / os.sysconf("SC_CLK_TCK")
    assert core_time.measure_busy_s({0}) == pytest.approx(tick * (5 + 10 + 15 + 40))
    assert core_time.measure_busy_s({0, 1}) == pytest.approx(tick * 2 * (5 + 10 + 15 + 40))


def test_what_the_kernel_does_not_tell_is_unknown(stat: Path) -> None:
    assert math.isnan(core_time.measure_busy_s({0, 7})), "no such core"
    assert math.isnan(core_time.measure_busy_s({2})), "a short line"
    stat.unlink()
    assert math.isnan(core_time.measure_busy_s({0}))


def test_the_time_of_children_counts_while_they_run_and_afterwards() -> None:
    before = core_time.measure_process_s()
    own = core_time.time.process_time()
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        while core_time._measure_process_s(child.pid) < 0.2:
            pass
        running = core_time.measure_process_s() - before - (core_time.time.process_time() - own)
        assert running >= 0.19
    finally:
        child.kill()
        child.wait()
    ended = core_time.measure_process_s() - before - (core_time.time.process_time() - own)
    assert ended >= running - 0.02, "a tick each way"


def test_a_process_that_has_ended_takes_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert core_time._measure_process_s(child.pid) == 0.0


def test_the_switch_of_an_emulated_network_is_a_process_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH_VARIABLE, raising=False)
    assert core_time.measure_switch_s() == 0.0, "none"
    monkeypatch.setenv(SWITCH_VARIABLE, "")
    assert core_time.measure_switch_s() == 0.0, "the kernel is the switch"
    switch = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        monkeypatch.setenv(SWITCH_VARIABLE, str(switch.pid))
        while core_time.measure_switch_s() < 0.2:
            pass
    finally:
        switch.kill()
        switch.wait()
    assert core_time.measure_switch_s() == 0.0, "it has ended"
