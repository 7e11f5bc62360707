"""What is told to ip, tc, the kernel and mpirun: by the numbers, netem included, whatever this machine can do."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
from pathlib import Path

import pytest

from gradsweep.run_directory import CORES_VARIABLE
from sweep import emulation
from sweep.attempts.run_task import RunTask
from sweep.emulation import delay, ip_tc_commands
from sweep.emulation.cluster import Cluster, Shape, compute_packet_bytes
from tests.sweep.emulation.conftest import describe_network
from trainers.mpi import process


def cluster(ranks: int = 3, **changes: object) -> Cluster:
    return Cluster.from_config(describe_network(**changes), ranks)


def test_ranks_fill_hosts_in_their_order() -> None:
    assert [host.name for host in cluster(5, workers_per_host=2).hosts] == ["host0", "host1", "host2"]
    assert (
        ip_tc_commands.build_hostfile(cluster(5, workers_per_host=2)) == "host0 slots=2\nhost1 slots=2\nhost2 slots=2\n"
    )
    assert len(cluster(4, workers_per_host=4).hosts) == 1


@pytest.mark.parametrize("number", [1, "1"])
def test_a_host_may_have_a_link_of_its_own(number: object) -> None:
    """By its number, which JSON makes a text; the latency between two hosts is the mean of theirs."""
    found = cluster(3, latency="1ms", hosts={number: {"bandwidth": "100mbit", "latency": "3ms"}, 7: {"latency": "1s"}})
    one, own, _ = found.hosts
    assert (one.bandwidth, own.bandwidth) == (1e9, 1e8)
    assert found.compute_latency(one, own) == pytest.approx(0.002)
    assert not found.is_uniform and cluster(3, latency="1ms").is_uniform


def test_a_latency_that_all_hosts_have_is_the_network_s() -> None:
    """Whatever hosts would have that no rank is on."""
    found = cluster(2, latency="1ms", hosts={0: {"latency": "3ms"}, 1: {"latency": "3ms"}, 2: {"latency": "1s"}})
    assert found.is_uniform and found.latency == pytest.approx(0.003)
    assert cluster(3, latency="1ms", hosts={0: {"latency": "3ms"}}).latency == pytest.approx(0.001)


def test_the_hosts_have_addresses_of_their_own() -> None:
    hosts = (*cluster(600).hosts, cluster(600).switch)
    assert len({host.address for host in hosts}) == len({host.mac for host in hosts}) == 601
    assert all(0 < int(byte) < 255 for host in hosts for byte in host.address.split(".")[3:])
    assert hosts[258].mac == "02:00:0a:4d:01:02", "switch.c reads the number from it"


def test_a_packet_fits_into_the_bucket() -> None:
    """A larger one would be cut into frames; where packets get lost, they are frames."""
    for rate in ("10kbit", "1mbit", "100mbit", "1gbit", "10gbit", "1tbit"):
        found = cluster(2, bandwidth=rate)
        assert compute_packet_bytes(found) <= 65536 and Shape.from_rate(
            found.bandwidth, compute_packet_bytes(found)
        ).burst > compute_packet_bytes(found)
    slowest = cluster(2, hosts={1: {"bandwidth": "100mbit"}})
    assert compute_packet_bytes(slowest) == 6250 and compute_packet_bytes(cluster(2)) == 62500
    assert compute_packet_bytes(cluster(2, loss=0.01)) == 1514


@pytest.mark.parametrize(("rate", "limit"), [(1e6, 4_000_000), (1e10, 125_000_000), (4e11, 2**32 - 1)])
def test_so_much_may_wait_as_a_deep_switch_has(rate: float, limit: int) -> None:
    """And as the kernel has bits for."""
    assert Shape.from_rate(rate, 1514).limit == limit


def test_links_and_shapes_of_a_host() -> None:
    found = cluster(2, bandwidth="100mbit", hosts={1: {"bandwidth": "10mbit"}})
    lines = ip_tc_commands.build_host_links(found, found.hosts[1], "/proc/1/ns/net")
    assert (
        "link add eth0 mtu 1500 address 02:00:0a:4d:00:01 type veth peer name port1 mtu 1500 netns /proc/1/ns/net"
        in lines
    )
    assert "addr add 10.77.0.2/16 dev eth0" in lines and "link set eth0 gso_max_size 3000" in lines
    assert "neigh replace 10.77.0.1 lladdr 02:00:0a:4d:00:00 dev eth0 nud permanent" in lines
    (shape,) = ip_tc_commands.build_host_shapes(found, found.hosts[1])
    assert shape == "qdisc replace dev eth0 root handle 1: tbf rate 10000000bit burst 3488 limit 4000000"
    assert [line.split()[3] for line in ip_tc_commands.build_switch_shapes(found)] == ["port0", "port1"]
    assert "link set eth0 gso_max_segs 1" in ip_tc_commands.build_host_links(cluster(2, loss=0.1), found.hosts[0], "x")


def test_netem_delays_before_the_bucket() -> None:
    found = cluster(2, latency="5ms", loss=0.01)
    first, second = ip_tc_commands.build_switch_shapes(found, 0.004)[:2]
    assert first == "qdisc replace dev port0 root handle 1: netem limit 1000000 delay 4000us"
    assert second.startswith("qdisc replace dev port0 parent 1:1 handle 10: tbf rate 1000000000bit ")
    assert ip_tc_commands.build_delay_change(found, 0.0045, 0.01)[1] == (
        "qdisc change dev port1 root handle 1: netem limit 1000000 delay 4500us loss 1%"
    )


def test_the_switch_is_told_of_every_pair() -> None:
    found = cluster(2, latency="1ms", hosts={1: {"latency": "3ms"}})
    told = list(delay.build_table(found, 100e-6, 0.25))
    assert told == [2**30, 900_000, 1_900_000, 0, 1_900_000, 2_900_000, 0, 0, 0, 0], "the last port is no host's"
    assert list(delay.build_table(found, 5.0, 0.0)) == [0] * 10


def test_what_others_do_for_a_moment_is_not_measured() -> None:
    quiet, busy = [1.0, 1.1, 0.9] * 25, [5.0] * 60
    assert delay.compute_typical(busy + quiet + busy) == 1.0
    assert delay.compute_typical([3.0, 1.0, 2.0]) == 2.0, "few are one block"


def test_settings_of_the_kernel() -> None:
    wide = ip_tc_commands.build_host_settings(cluster(2, bandwidth="10gbit", latency="50ms"), [0, 1])
    assert wide["net/ipv4/tcp_rmem"].split()[2] == "250000000", "twice what is on its way"
    assert ip_tc_commands.build_host_settings(cluster(), [0, 1])["net/ipv4/tcp_limit_output_bytes"] == "125000"
    lossy = ip_tc_commands.build_host_settings(cluster(loss=0.01), [0, 1])
    assert lossy["net/ipv4/tcp_limit_output_bytes"] == "125000", "many frames may wait, if each by itself"
    assert ip_tc_commands.format_mask([0, 1]) == "00000003" and ip_tc_commands.format_mask([33]) == "00000002,00000000"


def test_mpirun_is_told_behind_its_name() -> None:
    words = ip_tc_commands.build_mpi_arguments("hosts", "agent", "idle.so")
    given = dict(zip(words[1::3], words[2::3], strict=False))
    assert ("--hostfile", "hosts") in zip(words, words[1:], strict=False)
    assert given["plm_ssh_agent"] == "agent" and "LD_PRELOAD=idle.so" in words
    assert ("btl", "tcp,self") in zip(words, words[1:], strict=False)
    assert "-x" not in ip_tc_commands.build_mpi_arguments("hosts", "agent", None)


def test_an_mpi_run_with_a_network_starts_the_emulation() -> None:
    plain = RunTask("directory", 4, 2, ["mpirun", "-n", "{workers}"], {})
    words = dataclasses.replace(plain, network=describe_network()).build_command()
    assert words[1:3] == ["-m", "sweep.emulation"] and words[4:] == plain.build_command()
    assert '"ranks": 4, "threads": 2' in words[3]


@pytest.mark.parametrize(("name", "is_one"), [("none", False), ("real", False), ("emulated", True)])
def test_which_networks_are_emulated(name: str, is_one: bool) -> None:
    network = describe_network() if is_one else {"name": name}
    assert (emulation.find_emulation({"network": network}) is not None) == is_one
    assert emulation.find_emulation({}) is None, "a config of an earlier version"


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in for ssh, for two hosts with two ranks each; nsenter only says how it was called."""
    (tmp_path / "nsenter").write_text('#!/bin/sh\necho "$1 $2 cores=$GRADSWEEP_CORES"\nshift 2\nexec "$@"\n')
    (tmp_path / "agent").write_text(
        ip_tc_commands.build_agent(cluster(4, workers_per_host=2), [4, 5, 6, 7], 1, "/a place", "/an mpi", "/m")
    )
    for name in ("nsenter", "agent"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "agent"


def test_the_agent_enters_a_host_as_ssh_would(agent: Path) -> None:
    """Options are its own; what it is to run is a line of shell; each host has its part of the cores."""
    words = [agent, "-x", "-p", "22", "host1", "A=1;", "echo", "$A", "'b  c'"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stdout == "--net=/a place/host1.net --uts=/a place/host1.uts cores=6,7\n1 b  c\n", done.stderr
    done = subprocess.run([agent, "host1", "P=/an mpi;", "echo", "$P", "/an mpi/bin"], capture_output=True, text=True)
    assert done.stdout.splitlines()[1:] == ["/m /m/bin"], "Open MPI does not quote where it lies"
    done = subprocess.run([agent, "host2", "true"], capture_output=True, text=True)
    assert done.returncode == 255 and done.stderr == "no such host: host2\n"
    done = subprocess.run([agent, "host1", "echo", "$GRADSWEEP_STEERING"], capture_output=True, text=True)
    assert done.stdout.splitlines()[1:] == ["/a place/steering"]


def test_an_agent_that_cannot_start_a_host_says_so(agent: Path) -> None:
    """Where it ended as if all was well, mpirun would wait for the host for ever."""
    done = subprocess.run([agent, "host1", "true"], env={"PATH": str(agent.parent)}, capture_output=True, text=True)
    assert done.returncode == 127 and "sed" in done.stderr


@pytest.mark.parametrize(
    ("leased", "ranks", "each", "expected"),
    [
        ([0, 1], 4, 1, [[0], [1], None, None]),
        ([0, 1, 2, 3], 6, 1, [[0], [1], [2], [3], None, None]),
        ([0, 1, 2], 3, 2, [[0], [1], None]),
        ([2, 3], 2, 1, [[2], [3]]),
        ([], 2, 1, [None, None]),
    ],
)
def test_hosts_share_cores_where_there_are_too_few(
    leased: list[int], ranks: int, each: int, expected: list[list[int] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks of a host without cores of its own stay on all that are leased: every host's first rank is its rank 0."""
    pinned: list[list[int]] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cores: pinned.append(cores))
    text = ip_tc_commands.build_agent(cluster(ranks, workers_per_host=each), leased, 1, "place", "/usr", "/m")
    told = re.findall(rf"^host\d+\) {CORES_VARIABLE}=(\S*) ;;$", text, re.MULTILINE)
    found = []
    for number in range(ranks):
        pinned.clear()
        monkeypatch.setenv(CORES_VARIABLE, told[number // each])
        process.pin(number % each, 1)
        found.append(pinned[0] if pinned else None)
    assert found == expected
