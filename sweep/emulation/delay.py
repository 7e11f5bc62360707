"""Measure the latency between emulated hosts, and delay packets so that it becomes the requested latency."""

from __future__ import annotations

import array
import contextlib
import socket
import statistics
import subprocess
import time
from collections.abc import Sequence

from sweep.emulation import compile_c, ip_tc_commands, namespaces
from sweep.emulation.build_cluster import BuiltCluster, name_module, run_batch
from sweep.emulation.cluster import Cluster, Host, Shape, compute_packet_bytes

PORT = 7
BYTES = 8
LEAST, MOST = 3, 400
"""Numbers of round trips of a measurement."""
BLOCK = 25
ENOUGH_S = 0.06
"""Seconds of a measurement, where LEAST round trips have been made."""
SHORT_S = 0.001
"""The longest delay at which the machine's own time is measured: with longer ones too few messages come."""
LONG_S = 0.05
"""Latencies above it are not measured again."""
LOOKS, ROUNDS = 2, 3
PATIENCE_S = 10.0
MOST_HELD = 64 << 20
"""Bytes that switch.c asks room for at each port (BUFFER)."""


class Netem:
    """Delays packets by the kernel's netem at the switch's ports, equally for all pairs of hosts.

    Attributes:
        own: the latency in s without an added delay, as given to the last call of `set_delay`.
    """

    name = "netem"

    def __init__(self, built: BuiltCluster) -> None:
        self.cluster = built.cluster
        self.own = 0.0
        run_batch("tc", ip_tc_commands.build_switch_shapes(self.cluster, self.cluster.latency))

    def set_delay(self, own: float, loss: float) -> None:
        """Delay packets by the requested latency minus `own`, the machine's latency in s; drop a fraction `loss`."""
        self.own = own
        run_batch("tc", ip_tc_commands.build_delay_change(self.cluster, max(0.0, self.cluster.latency - own), loss))

    def remove(self) -> None:
        """Remove netem from the ports."""
        run_batch("tc", ip_tc_commands.build_switch_shapes(self.cluster))


class Switch:
    """Delays packets by our own switch (switch.c) in place of the kernel's bridge; each pair of hosts has its delay.

    Raises:
        NotCompiled: the switch cannot be compiled.
        RuntimeError: the switch does not start.
    """

    name = "switch"

    def __init__(self, built: BuiltCluster) -> None:
        self.cluster, self.own = built.cluster, 0.0
        path = compile_c.compile_program("switch", built.place)
        run_batch("ip", ip_tc_commands.build_port_links(self.cluster, "nomaster"))
        ports = [host.port for host in (*self.cluster.hosts, self.cluster.switch)]
        self.process = subprocess.Popen([path, *ports], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if problem := explain_small_buffer(self.cluster, int(self._read_answer())):
            built.problems.append(problem)

    def set_delay(self, own: float, loss: float) -> None:
        assert self.process.stdin is not None
        self.own = own
        with contextlib.suppress(OSError):
            self.process.stdin.write(build_table(self.cluster, own, loss).tobytes())
            self.process.stdin.flush()
        self._read_answer()

    def _read_answer(self) -> bytes:
        assert self.process.stdout is not None
        if not (line := self.process.stdout.readline()):
            raise RuntimeError("the switch has ended; its reason is above")
        return line

    def remove(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        run_batch("ip", ip_tc_commands.build_port_links(self.cluster, f"master {ip_tc_commands.BRIDGE}"))


Delayer = Netem | Switch
"""Delays the packets between the hosts."""


def explain_small_buffer(cluster: Cluster, held: int) -> str | None:
    """Return a warning if our switch's buffer for a port (`held` bytes) is smaller than the emulated queue; else None.

    The kernel limits the buffers of sockets (rmem_max, wmem_max) unless the user is root.
    """
    packet = compute_packet_bytes(cluster)
    wanted = min(MOST_HELD, max(Shape.from_rate(host.bandwidth, packet).limit for host in cluster.hosts))
    if held >= wanted:
        return None
    return (
        f"{held / 1e6:.2g} instead of {wanted / 1e6:.3g} MB may wait at the switch before packets get lost: more takes"
        f" root, or `sysctl -w net.core.rmem_max={wanted} net.core.wmem_max={wanted}` by root"
    )


def build_table(cluster: Cluster, own: float, loss: float) -> array.array[int]:
    """Return the table for switch.c: the loss times 2^32, then the delay in ns from each port to each port, row by row.

    The last port belongs to no host: from it ranks are started, without delay.

    Args:
        own: the latency in s without an added delay.
        loss: the fraction of the packets between hosts to drop.
    """
    places = (*cluster.hosts, cluster.switch)

    def compute_delay(one: Host, other: Host) -> int:
        if cluster.switch in (one, other):
            return 0  # the switch's own place, from where ranks start, is not emulated
        return round(1e9 * max(0.0, cluster.compute_latency(one, other) - own))

    return array.array("q", [round(loss * 2**32), *(compute_delay(one, other) for one in places for other in places)])


def start_delay(built: BuiltCluster, has_netem: bool) -> tuple[Delayer | None, float | None]:
    """Start to delay and drop packets, if the network asks for it; return the delayer and the measured latency.

    Latencies and losses that cannot be emulated are noted in `built.problems` and removed from `built.cluster`.

    Returns:
        The delayer (None: not needed or not possible), and the measured one-way time in s of a small message between
        the two farthest hosts (None with a single host, and if the latency is too long to measure).
    """
    if len(built.cluster.hosts) < 2:
        return None, None
    bare = min(measure_one_way(built, *built.cluster.farthest) for _ in range(LOOKS))
    if not built.cluster.loss and built.cluster.compute_latency(*built.cluster.farthest) <= bare:
        return None, bare
    delayer = _start_delayer(built, has_netem)
    if delayer is None:
        return None, bare
    cluster = built.cluster
    one, other = cluster.farthest  # the longest latency decides whether a delay is needed
    wanted = cluster.compute_latency(one, other)
    own, short = bare, min(wanted, SHORT_S)
    estimates: list[float] = []
    for _ in range(ROUNDS):
        added = max(0.0, short - own)
        delayer.set_delay(wanted - added, 0.0)
        estimates.append(measure_one_way(built, one, other) - added)
        own = min(estimates)  # other work on the machine can only add to it
    if wanted > LONG_S:
        delayer.set_delay(own, cluster.loss)
        return delayer, None
    delayer.set_delay(own, 0.0)
    took = min(measure_one_way(built, one, other) for _ in range(LOOKS))
    if own >= wanted and cluster.is_uniform and not cluster.loss and wanted - bare < took - wanted:
        delayer.remove()  # even without a delay it takes longer than the kernel's bridge
        return None, bare
    delayer.set_delay(own, cluster.loss)
    return delayer, took


def _start_delayer(built: BuiltCluster, has_netem: bool) -> Delayer | None:
    cluster = built.cluster
    if has_netem and cluster.is_uniform and not cluster.loss:
        return Netem(built)
    try:
        return Switch(built)
    except compile_c.NotCompiled as error:
        if has_netem:
            if not cluster.is_uniform:
                built.problems.append(f"network.hosts: all have the latency of network.latency: {error}")
            if cluster.loss:
                built.problems.append(f"loss: packets that start and end the ranks get lost, too: {error}")
            built.cluster = cluster.replace_latency(cluster.latency, cluster.loss)
            return Netem(built)
        if cluster.has_latency:
            built.problems.append(f"latency is not emulated: {error}, and no {name_module('sch_netem')}")
        if cluster.loss:
            built.problems.append(f"loss is not emulated: {error}, and no {name_module('sch_netem')}")
        built.cluster = cluster.replace_latency(0.0, 0.0)
        return None


def measure_one_way(built: BuiltCluster, one: Host, other: Host) -> float:
    """Return the typical latency in s of a small message from one host to another: half of a round trip by TCP."""

    def answer() -> None:
        namespaces.enter(built.find_namespace(other))
        with socket.create_server((other.address, PORT)) as server:
            server.settimeout(2 * PATIENCE_S)  # the other end may have failed
            link, _ = server.accept()
            with link:
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while message := link.recv(BYTES):
                    link.sendall(message)

    def ask() -> float:
        namespaces.enter(built.find_namespace(one))
        with _connect(other.address) as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            times: list[float] = []
            begun = time.perf_counter()
            while len(times) < LEAST or (len(times) < MOST and time.perf_counter() < begun + ENOUGH_S):
                before = time.perf_counter()
                link.sendall(bytes(BYTES))
                link.recv(BYTES)
                times.append(time.perf_counter() - before)
        return compute_typical(times) / 2

    wait_for_end, wait_for_time = namespaces.start(answer), namespaces.start(ask)
    wait_for_end()
    return wait_for_time()


def compute_typical(times: Sequence[float]) -> float:
    """Return the smallest median of consecutive blocks, which ignores short disturbances by other programs."""
    blocks = [times[start : start + BLOCK] for start in range(0, max(1, len(times) - BLOCK + 1), BLOCK)]
    return min(map(statistics.median, blocks))


def _connect(address: str) -> socket.socket:
    """Connect to a server, and retry until it listens."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=PATIENCE_S)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.002)
