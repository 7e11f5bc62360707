"""Ranks correct the delay: what they say, and what listens to that."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import cast

import pytest

from gradsweep import run_directory
from sweep.emulation.cluster import Cluster
from sweep.emulation.delay import Delayer
from sweep.emulation.latency_correction import LatencyCorrection
from tests.sweep.emulation.conftest import Emulate, describe_network
from tests.sweep.emulation.test_cluster import TALK, seconds
from trainers.network import links

MS = 1e-3


class Told:
    """What delays, and what it was told: the machine's own time and the loss."""

    name = "switch"

    def __init__(self) -> None:
        self.own, self.all, self.children = 1 * MS, [(1 * MS, 0.25)], threading.Lock()

    def set_delay(self, own: float, loss: float) -> None:
        self.own = own
        self.all.append((own, loss))


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    """Of a cluster with 10 ms and loss, which listens where ranks are told to send corrections."""
    path = tmp_path / ("long" * 30) / "steering"  # for a socket too long
    path.parent.mkdir()
    told = Told()
    cluster = Cluster.from_config(describe_network(latency="10ms", loss=0.25), 2)
    LatencyCorrection(path, cast(Delayer, told), cluster, told.children).start()
    monkeypatch.setenv(run_directory.STEERING_VARIABLE, str(path))
    return told


def test_what_messages_take_too_long_is_delayed_less(told: Told) -> None:
    assert links.correct_latency(12 * MS, 10 * MS) and links.correct_latency(9 * MS, 10 * MS)
    assert told.all == [(1 * MS, 0.25), (pytest.approx(3 * MS), 0.25), (pytest.approx(2 * MS), 0.25)]


def test_a_correction_is_no_more_than_all_of_the_delay(told: Told) -> None:
    """Later ones would have to make up for it."""
    for latency in (500 * MS, 9 * MS, -500 * MS):
        assert links.correct_latency(latency, 10 * MS)
    assert [own for own, _ in told.all[1:]] == [pytest.approx(value * MS) for value in (10, 9, -10)]


def test_what_is_near_or_not_promised_stays(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not links.correct_latency(10.1 * MS, 10 * MS) and not links.correct_latency(12 * MS, None)
    monkeypatch.delenv(run_directory.STEERING_VARIABLE)
    assert not links.correct_latency(12 * MS, 10 * MS)
    assert len(told.all) == 1


def test_nobody_need_listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(run_directory.STEERING_VARIABLE, str(tmp_path / "nothing"))
    assert not links.correct_latency(12 * MS, 10 * MS)


@pytest.mark.parametrize("line", [b"nonsense\n", b"nan\n", b"\xff\n", b""])
def test_nonsense_changes_nothing(told: Told, tmp_path: Path, line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(os.environ[run_directory.STEERING_VARIABLE]).parent)
    with socket.socket(socket.AF_UNIX) as link:
        link.connect("steering")
        link.sendall(line)
    assert links.correct_latency(12 * MS, 10 * MS)
    assert told.all[1:] == [(pytest.approx(3 * MS), 0.25)]


def test_the_delay_may_not_be_settable(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a rank is told nothing, and who comes next is still heard."""

    def set(own: float, loss: float) -> None:
        raise RuntimeError("tc qdisc change: no")

    with monkeypatch.context() as context:
        context.setattr(told, "set_delay", set)
        assert not links.correct_latency(12 * MS, 10 * MS)
    assert links.correct_latency(12 * MS, 10 * MS)


def test_a_status_is_left_to_who_waits_for_it(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Job.run` waits for all processes but while the delay is set, which may take a process (tc)."""
    seen: list[bool] = []
    monkeypatch.setattr(told, "set_delay", lambda own, loss: seen.append(told.children.locked()))
    assert links.correct_latency(12 * MS, 10 * MS)
    assert seen == [True] and told.children.acquire(timeout=10)


@pytest.mark.network
def test_hosts_correct_what_their_packets_take(emulate: Emulate) -> None:
    """A round trip of 60 ms, and of 30 ms after the word that a way takes 15 ms too long."""

    def ask(port: int) -> str:
        return f"on host1 {TALK} echo {port} & on host0 {TALK} ask host1 {port}; kill $!; wait\n"

    code, out, err = emulate(ask(97) + f"on host0 {TALK} steer 0.015\n" + ask(96), latency="30ms").end()
    assert code == 0, err
    before, after = seconds(out)
    assert 0.97 < before / 0.06 < 1.5 and 0.97 < after / 0.03 < 1.5, out
