"""The hosts of an emulated cluster and their links as numbers: computes only, without side effects."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gradsweep.options import units

SUBNET = "10.77.0.0/16"
PREFIX = 16
MTU = 1500
FRAME_BYTES = 1514
"""Size of a full Ethernet frame as the kernel's shapers count it: without preamble, checksum and gap."""


MOST_WAITING = 2**32 - 1
"""Bytes that may wait at most, in the kernel's 32 bits: those of 344 Gbit/s and more."""


@dataclasses.dataclass(frozen=True)
class Host:
    """An emulated host: a network namespace with one interface, `eth0`.

    Attributes:
        number: counted from 0; the last number is the switch itself, from which the ranks are started.
        bandwidth: the bandwidth of its link in each direction, in bit/s.
        latency: the host's own one-way latency, in s; `Cluster.compute_latency` combines those of two hosts.
    """

    number: int
    bandwidth: float = 0.0
    latency: float = 0.0

    @property
    def name(self) -> str:
        return f"host{self.number}"

    @property
    def port(self) -> str:
        """The name of the switch's interface at the host's link."""
        return f"port{self.number}"

    @property
    def address(self) -> str:
        return f"10.77.{self.number // 250}.{self.number % 250 + 1}"

    @property
    def mac(self) -> str:
        """The MAC address; its last two bytes are the host's number, so that the switch need not learn addresses."""
        return f"02:00:0a:4d:{self.number >> 8:02x}:{self.number & 255:02x}"


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The hosts of an emulated cluster: rank r is on host r // workers_per_host.

    Attributes:
        bandwidth: the default bandwidth of a host's link, in bit/s.
        latency: the default one-way latency between two hosts, in s; if all hosts have the same latency, that one.
        loss: the fraction of the packets between hosts that the switch drops.
    """

    hosts: tuple[Host, ...]
    bandwidth: float
    latency: float
    loss: float
    workers_per_host: int

    @classmethod
    def from_config(cls, network: Mapping[str, Any], ranks: int) -> Cluster:
        """Return the cluster described by the section `network` of a config, with as many hosts as the ranks fill."""
        bandwidth, latency = _read_link(network)
        own = network.get("hosts") or {}
        hosts = []
        for number in range(count_hosts(network, ranks)):
            differing = {**network, **own.get(number, own.get(str(number), {}))}  # JSON makes texts of numbers
            hosts.append(Host(number, *_read_link(differing)))
        if len(common := {host.latency for host in hosts}) == 1:
            (latency,) = common
        return cls(tuple(hosts), bandwidth, latency, float(network["loss"]), int(network["workers_per_host"]))

    @property
    def switch(self) -> Host:
        """The switch itself as a host, from which ranks are started; its link has no limits."""
        return Host(len(self.hosts))

    def compute_latency(self, one: Host, other: Host) -> float:
        """Return the one-way latency in s: the mean of the two hosts' latencies."""
        return (one.latency + other.latency) / 2

    @property
    def farthest(self) -> tuple[Host, Host]:
        """The two hosts with the largest latency between them."""
        one, other = sorted(self.hosts, key=lambda host: -host.latency)[:2]
        return one, other

    def replace_latency(self, latency: float, loss: float) -> Cluster:
        """Return this cluster with the same latency (s) for all hosts, and with another fraction of lost packets."""
        hosts = tuple(dataclasses.replace(host, latency=latency) for host in self.hosts)
        return dataclasses.replace(self, hosts=hosts, latency=latency, loss=loss)

    @property
    def has_latency(self) -> bool:
        """Whether there is a latency between any two hosts."""
        return len(self.hosts) > 1 and any(host.latency > 0 for host in self.hosts)

    @property
    def is_uniform(self) -> bool:
        """Whether all pairs of hosts have the same latency."""
        return len({host.latency for host in self.hosts}) == 1


def count_hosts(network: Mapping[str, Any], ranks: int) -> int:
    """Return the number of hosts for this number of ranks."""
    return -(-ranks // int(network["workers_per_host"]))


def _read_link(section: Mapping[str, Any]) -> tuple[float, float]:
    """Return a section's bandwidth in bit/s and latency in s, which trainers/options/networks.py has checked."""
    rate, time = units.bits_per_second(section["bandwidth"]), units.seconds(section["latency"])
    assert rate is not None and time is not None, section
    return rate, time


@dataclasses.dataclass(frozen=True)
class Shape:
    """The parameters of a token bucket (tc-tbf), which limits a link's rate.

    Attributes:
        rate: the link's bandwidth, in bit/s.
        burst: the size of the bucket, in bytes: so much an idle link sends at once.
        limit: the size of the queue, in bytes; packets beyond it are dropped.
    """

    rate: float
    burst: int
    limit: int

    @classmethod
    def from_rate(cls, rate: float, packet: int) -> Shape:
        """Return a bucket that holds packets of up to `packet` bytes: larger ones are split, at ten times the CPU time.

        The bucket also holds what the link sends in 150 us, because timers may be late by that time. The queue holds
        what the link sends in 100 ms, at least 4 MB, as in a switch with deep buffers: packets are lost only if many
        hosts send to one. In our own switch (switch.c) the sockets' buffers may be smaller
        (`delay.explain_small_buffer`).
        """
        return cls(rate, round(packet * 1.1 + rate / 8 * 150e-6), min(round(max(rate / 8 * 0.1, 4e6)), MOST_WAITING))


def compute_packet_bytes(cluster: Cluster) -> int:
    """Return the size of the largest packet that the kernel may pass on before it cuts it into frames (GSO).

    With packet loss this is the size of one frame, so that single frames are lost.
    """
    return FRAME_BYTES if cluster.loss else compute_bulk_bytes(cluster)


def compute_bulk_bytes(cluster: Cluster) -> int:
    """Return how many bytes the slowest link sends in 500 us, but at least two frames and at most 64 KiB."""
    slowest = min(host.bandwidth for host in cluster.hosts)
    return int(min(max(slowest / 8 * 500e-6, 2 * MTU), 65536))
