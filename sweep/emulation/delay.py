"""How long packets take between two hosts: measured, and delayed until it is what the network is to have."""

from __future__ import annotations

import array
import os
import socket
import statistics
import subprocess
import time
from pathlib import Path
from typing import Protocol

from sweep.emulation import commands, native, sandbox
from sweep.emulation.building import Built, batch
from sweep.emulation.cluster import Cluster, Host

PORT = 7
BYTES = 8
LEAST, MOST = 5, 400
"""Round trips of a measurement."""
LONG_S = 0.08
"""For a measurement, after the least."""
SURE_S = 0.02
"""A latency from here on is not measured again: what the machine takes is next to nothing of it."""
ROUNDS = 3


class Delayer(Protocol):
    """What delays the packets between the hosts."""

    name: str

    def set(self, own: float) -> None:
        """Delay so that, with the `own` time of the machine (s), each pair of hosts has its latency."""

    def remove(self) -> None:
        """Leave the ports to the kernel's bridge, as they were."""


class Netem:
    """The kernel's own, at the switch's ports: the same for all pairs of hosts."""

    name = "netem"

    def __init__(self, built: Built) -> None:
        self.cluster = built.cluster
        batch("tc", commands.switch_shapes(self.cluster, self.cluster.latency))

    def set(self, own: float) -> None:
        batch("tc", commands.changed_delay(self.cluster, max(0.0, self.cluster.latency - own)))

    def remove(self) -> None:
        batch("tc", commands.switch_shapes(self.cluster))


class Switch:
    """Ours (switch.c), in the place of the kernel's bridge.

    Raises:
        NotCompiled: it cannot be had.
        RuntimeError: it does not start.
    """

    name = "switch"

    def __init__(self, built: Built) -> None:
        self.cluster = built.cluster
        path = native.program("switch", built.place)
        batch("ip", commands.without_bridge(self.cluster))
        ports = [host.port for host in (*self.cluster.hosts, self.cluster.switch)]
        self.process = subprocess.Popen(
            [path, repr(self.cluster.loss), *ports], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=False
        )

    def set(self, own: float) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(delays(self.cluster, own).tobytes())
            self.process.stdin.flush()
        except OSError:
            pass
        if not self.process.stdout.readline():
            raise RuntimeError("the switch has ended; its reason is above")

    def remove(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        batch("ip", commands.with_bridge(self.cluster))


def delays(cluster: Cluster, own: float) -> array.array[int]:
    """What switch.c is told: ns from each port to each, the last port being that of no host.

    Args:
        own: s that the machine takes by itself.
    """
    places = (*cluster.hosts, cluster.switch)

    def between(one: Host, other: Host) -> int:
        if cluster.switch in (one, other):
            return 0  # what starts the ranks is no part of the network that is emulated
        return round(1e9 * max(0.0, cluster.latency_between(one, other) - own))

    return array.array("q", [between(one, other) for one in places for other in places])


def delayed(built: Built, has_netem: bool) -> tuple[Delayer | None, float | None]:
    """Set up what delays and drops packets, where the network asks for that; the time that a small message takes then.

    What cannot be had is noted in `built.problems`.

    Returns:
        what delays (None: nothing has to, or can), and the one-way time in s that was measured between the first two
        hosts; None with a single host.
    """
    cluster = built.cluster
    if len(cluster.hosts) < 2:
        return None, None
    one, other = cluster.hosts[:2]
    wanted = cluster.latency_between(one, other)
    bare = one_way(built, one, other)
    longest = max(host.latency for host in cluster.hosts)
    if not cluster.loss and longest <= bare:
        return None, bare
    delayer = _delayer(built, has_netem)
    if delayer is None:
        return None, bare
    own, took = bare, wanted
    delayer.set(own)
    if 0 < longest < SURE_S:
        for _ in range(ROUNDS):
            took = one_way(built, one, other)
            own += took - wanted
            delayer.set(own)
        took = one_way(built, one, other)
    if cluster.is_uniform and not cluster.loss and abs(bare - wanted) < abs(took - wanted):
        delayer.remove()  # even without a delay it takes longer than the kernel's bridge
        return None, bare
    return delayer, took


def _delayer(built: Built, has_netem: bool) -> Delayer | None:
    cluster = built.cluster
    if has_netem and cluster.is_uniform and not cluster.loss:
        return Netem(built)
    try:
        return Switch(built)
    except native.NotCompiled as error:
        if has_netem:
            if not cluster.is_uniform:
                built.problems.append(f"network.hosts: latency is that of the others: {error}")
            return Netem(built)
        if cluster.has_latency:
            built.problems.append(f"latency is not emulated: {error}, and the kernel has no netem (sch_netem)")
        if cluster.loss:
            built.problems.append(f"loss is not emulated: {error}, and the kernel has no netem (sch_netem)")
        return None


def one_way(built: Built, one: Host, other: Host) -> float:
    """Seconds that a small message takes from one host to another: half a round trip of TCP, the median of many."""
    results, into = os.pipe()

    def answer() -> None:
        sandbox.enter(built.net(other))
        with socket.create_server((other.address, PORT)) as server:
            link, _ = server.accept()
            with link:
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while message := link.recv(BYTES):
                    link.sendall(message)

    def ask() -> None:
        sandbox.enter(built.net(one))
        with _connected(other.address) as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            times: list[float] = []
            begun = time.perf_counter()
            while len(times) < LEAST or (len(times) < MOST and time.perf_counter() < begun + LONG_S):
                before = time.perf_counter()
                link.sendall(bytes(BYTES))
                link.recv(BYTES)
                times.append(time.perf_counter() - before)
        os.write(into, repr(statistics.median(times) / 2).encode())

    waits = [sandbox.start(answer), sandbox.start(ask)]
    os.close(into)
    with os.fdopen(results) as file:
        text = file.read()
    for wait in waits:
        wait()
    return float(text)


def _connected(address: str) -> socket.socket:
    """A connection to a server that may not listen yet."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=10)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.002)


def preload(place: Path) -> str:
    """The library that lets ranks wait asleep (idle.c).

    Raises:
        NotCompiled: it cannot be had.
    """
    return str(native.program("idle", place))
