"""Clusters built for real: hosts, shaped links, delays, losses. A shell plays mpirun, and Python's sockets talk."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from sweep.emulation import compile_c
from tests.sweep.emulation.conftest import Emulate, interfaces

pytestmark = [pytest.mark.network, pytest.mark.thorough]

WORDS = (sys.executable, str(Path(__file__).with_name("talk.py")))
TALK = " ".join(shlex.quote(shlex.quote(word)) for word in WORDS)  # for this shell, and for that on the host


def send(number: int, sender: str = "host0", receiver: str = "host1") -> str:
    return f"on {receiver} {TALK} serve 99 & on {sender} {TALK} send {receiver} 99 {number}; wait\n"


def seconds(out: str) -> list[float]:
    return [float(line) for line in out.split()]


def test_the_hosts(emulate: Emulate) -> None:
    """Each has its name and address and sees no other network; the names lead to the addresses."""
    before = interfaces()
    each_host = 'for host in host0 host1 host2; do on $host "hostname; ip -br -4 addr"; done'
    script = f'hostname; {each_host}; getent hosts host1; echo "$@"'
    job = emulate(script, ranks=5, workers_per_host=2)
    code, out, err = job.end()
    lines = [re.sub(r"\s+", " ", line).strip() for line in out.splitlines()]
    each = [[f"host{i}", "lo UNKNOWN 127.0.0.1/8", f"eth0@if{i} UP 10.77.0.{i + 1}/16"] for i in range(3)]
    assert code == 0 and lines[0] == "switch", err
    assert [re.sub("@if[0-9]+", "", line) for line in lines[1:10]] == [
        re.sub("@if[0-9]+", "", line) for line in sum(each, [])
    ]
    assert lines[10] == "10.77.0.2 host1"
    assert lines[11].startswith("--prtemca plm ssh") and lines[11].endswith("of the user"), "ours stand behind its name"
    assert job.record()["hosts"] == 3 and job.record()["problems"] == []
    assert interfaces() == before


def test_a_link_is_as_slow_as_asked_for(emulate: Emulate) -> None:
    """Each way: 1 MB takes no less than at the whole rate, but for the bucket, and both at once no longer than one."""
    both = f"on host0 {TALK} serve 98 & on host1 {TALK} send host0 98 1000000 &\n"
    code, out, err = emulate(both + send(1_000_000), bandwidth="10mbit").end()
    bits = 8 * 1e6 * 1514 / 1448
    assert code == 0 and len(seconds(out)) == 2, err
    assert all(0.95 * bits / 10e6 < took < 1.9 * bits / 10e6 for took in seconds(out)), "one after the other is 2"


def test_a_host_may_have_a_slower_link(emulate: Emulate) -> None:
    job = emulate(send(1_000_000) + send(1_000_000, "host0", "host2"), ranks=3, hosts={1: {"bandwidth": "10mbit"}})
    code, out, err = job.end()
    assert code == 0, err
    slow, fast = seconds(out)
    assert slow > 0.8 > 0.4 > fast
    assert job.record()["own"] == {"host1": {"bandwidth": 10e6, "latency_s": 0.0}}


def test_who_shares_a_host_shares_its_link(emulate: Emulate) -> None:
    """Two that send take at least the time of all that they send, from when the first begins to when the last ends."""
    both = f"date +%s.%N; on host1 {TALK} serve 98 & on host0 {TALK} send host1 98 1000000 >&2 &\n"
    script = both + send(1_000_000).replace("; wait", " >&2; wait; date +%s.%N")
    code, out, err = emulate(script, ranks=4, workers_per_host=2, bandwidth="10mbit").end()
    begun, ended = seconds(out)
    assert code == 0 and ended - begun > 1.6, err


@pytest.mark.parametrize("kind", ["switch", "uneven"])
def test_packets_take_the_time_asked_for(emulate: Emulate, kind: str) -> None:
    """No round trip is shorter than twice the latency; nor much longer, though machines of tests may be busy."""
    hosts = {1: {"latency": "60ms"}} if kind == "uneven" else {}
    script = "".join(
        f"on {other} {TALK} echo 97 & on host0 {TALK} ask {other} 97; kill $!; wait\n" for other in ("host1", "host2")
    )
    job = emulate(script, ranks=3, latency="20ms", hosts=hosts)
    code, out, err = job.end()
    wanted = [0.04, 0.02] if kind == "uneven" else [0.02, 0.02]
    assert code == 0, err
    for took, one_way in zip(seconds(out), wanted, strict=True):
        assert 0.97 < took / 2 / one_way < 1.5, out
    record = job.record()
    assert record["latency_s"] == pytest.approx(0.02) and record["delay"] in ("switch", "netem")
    assert kind == "switch" or record["delay"] == "switch", "netem has one latency for all"


def test_packets_get_lost(emulate: Emulate) -> None:
    """Of 2,000 datagrams three in ten, but for the luck of the draw (5 standard deviations are 5 %)."""
    script = f"on host1 {TALK} count 96 3 & sleep 1; on host0 {TALK} shower host1 96 2000; wait"
    code, out, err = emulate(script, loss=0.3).end()
    assert code == 0 and 0.65 < int(out) / 2000 < 0.75, out + err


def test_without_a_compiler_there_is_bandwidth_only(emulate: Emulate, tmp_path: Path) -> None:
    """And a record that says so; a kernel with netem needs none."""
    for name in compile_c.COMPILERS:
        (tmp_path / name).write_text("#!/bin/sh\necho 'error: no headers' >&2; exit 1\n")
        (tmp_path / name).chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    job = emulate(send(1_000_000), latency="20ms", bandwidth="10mbit", environment=path)
    code, out, err = job.end()
    record = job.record()
    assert code == 0 and seconds(out)[0] > 0.8, err
    if record["delay"] != "netem":
        assert (record["delay"], record["latency_s"]) == ("none", None)
        assert "latency is not emulated: " in record["problems"][0] and "error: no headers" in record["problems"][0]
    assert "ranks that wait take CPU time" in record["problems"][-1]


@pytest.mark.parametrize("bandwidth", ["400gbit", "1tbit"])
def test_the_fastest_links(emulate: Emulate, bandwidth: str) -> None:
    """What may wait there is more than the kernel can count."""
    code, out, err = emulate(send(1_000_000), bandwidth=bandwidth).end()
    assert code == 0 and len(seconds(out)) == 1, err


def test_one_host_has_no_network(emulate: Emulate) -> None:
    job = emulate("on host0 hostname", ranks=2, workers_per_host=2, latency="20ms")
    assert job.end()[:2] == (0, "host0\n")
    assert (job.record()["delay"], job.record()["small_message_s"]) == ("none", None)


def test_two_at_once(emulate: Emulate) -> None:
    jobs = [
        emulate(send(1_000_000), name=name, bandwidth=rate) for name, rate in (("one", "10mbit"), ("other", "20mbit"))
    ]
    (slow,), (fast,) = (seconds(job.end()[1]) for job in jobs)
    assert slow > 0.8 and fast > 0.4


def test_what_the_kernel_refuses_is_the_reason(emulate: Emulate) -> None:
    """Here a bucket that is too small for it: nothing is started, and the launcher is told why."""
    job = emulate("echo started", bandwidth="0.001bit")
    code, out, err = job.end()
    assert code == 1 and "started" not in out
    report = (job.attempt / "failure-network.json").read_text()
    assert "the network could not be emulated: tc qdisc replace dev" in report and '"cause": "start"' in report
