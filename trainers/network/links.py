"""Measure the links between the hosts of a run before its first step, and compare them with the expected figures.

The figures are those that ranks experience: payload over the MPI of the run, while the processes of the training exist
(docs/guide/networks.md). Loads no torch, so that any program with a communicator can measure.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import socket
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradsweep.options import units
from gradsweep.run_directory import FORMAT, STEERING_VARIABLE
from trainers.config.groups import get_name
from trainers.options.networks import Emulated

if TYPE_CHECKING:
    from mpi4py import MPI

TOLERANCE = 0.10
"""Relative: what is farther from what it should be is marked."""

PAYLOAD = 1448 / 1514
"""Share of TCP's payload in a full Ethernet frame as Linux's tbf counts it: headers of Ethernet, IP and TCP are not."""

ALL_BUSY, ONE_BUSY = 0.8, 0.9
"""Share of the time of all cores together, or of the busiest, from which on the CPUs can be what others wait for."""

TRIES = 3
"""At the most: something else on the machine may have been in the way for a moment."""

CORRECTIONS = 3
"""Of the latency, at the most, before it is measured."""
NEAR = 0.02
"""Relative: what is as near to what it should be is not corrected."""
PATIENCE_S = 10.0

PING_BYTES = 8
PINGS_S, FEWEST_PINGS, MOST_PINGS = 0.3, 5, 300

STREAM_S = 0.3
"""That a stream takes, and eight times the latency; in about CHUNKS chunks of SMALLEST to LARGEST bytes."""
CHUNKS, SMALLEST, LARGEST = 64, 1 << 10, 1 << 20
IN_FLIGHT = 64
"""Chunks that are under way at once, at the most."""

_GROWTH, _LARGEST_TRY, _LONG_ENOUGH_S = 4, 4 << 20, 0.05
_TAG = 8


@dataclasses.dataclass(frozen=True)
class Links:
    """The measured figures of links; bandwidths in bit/s of payload.

    Attributes:
        latency_s: median time of a message of 8 bytes between the first two hosts, one way.
        bandwidth: from the first to the second host, while nothing else is sent.
        ring_bandwidth: the rate at which the slowest host receives while each host sends to the next.
        busy_cores: mean number of busy cores of the first host's machine during the measurement; None: unknown.
        busiest_core: share of the time in which the busiest core of this machine was busy.
        cores: number of cores of this machine.
    """

    latency_s: float
    bandwidth: float
    ring_bandwidth: float
    busy_cores: float | None
    busiest_core: float | None
    cores: int | None


@dataclasses.dataclass(frozen=True)
class Expected:
    """The expected figures of a network, in the units of `Links`; None for a figure that it does not promise."""

    latency_s: float | None
    bandwidth: float | None
    ring_bandwidth: float | None


def choose_ends(hosts: Sequence[str]) -> list[int]:
    """Return the ranks between which links are measured: the first rank of each host, or two ranks of a single host."""
    firsts = sorted({host: rank for rank, host in reversed(list(enumerate(hosts)))}.values())
    return firsts if len(firsts) > 1 else list(range(len(hosts)))[:2]


def measure(comm: MPI.Comm, correct: Callable[[float], bool] | None = None) -> tuple[int, Links | None]:
    """Measure the links; return the number of hosts and what was measured (None on ranks other than 0).

    All ranks call this. With one rank there is nothing to measure: None.

    Takes about a second; more below 100 kbit/s, or where a message takes more than 50 ms one way.

    Args:
        correct: rank 0 calls it with the measured latency in s; it returns whether it has changed the latency.
    """
    from mpi4py import MPI

    hosts = comm.allgather(MPI.Get_processor_name())
    ends = choose_ends(hosts)
    if len(ends) < 2:
        return len(set(hosts)), None
    first, second = ends[:2]
    latency, plan = math.nan, (0, 0)
    if comm.rank == first:
        latency = _latency(comm, second)
        for _ in range(CORRECTIONS):
            if correct is None or not correct(latency):
                break
            latency = _latency(comm, second)
        plan = _plan_chunks(_estimate(comm, second, latency), latency)
        comm.Send(_bytes(0), second, _TAG)
    elif comm.rank == second:
        _answer(comm, first)
    plan = _receive_plan(comm, plan)
    bandwidth = None
    if comm.rank in (first, second):
        other = {first: (second, None), second: (None, first)}[comm.rank]
        bandwidth = _stream(comm, *other, *plan)
    bandwidths = _gather(comm, bandwidth)
    if comm.rank == first:
        plan = _plan_chunks(bandwidths[second] / 8, latency)
    plan = _receive_plan(comm, plan)
    began = _core_times()
    rate = None
    if comm.rank in ends:
        place = ends.index(comm.rank)
        rate = _stream(comm, ends[(place + 1) % len(ends)], ends[place - 1], *plan)
    rates = _gather(comm, rate)
    if comm.rank != first:
        return len(set(hosts)), None
    slowest = min(rates[end] for end in ends)
    return len(set(hosts)), Links(latency, bandwidths[second], slowest, *_count_busy(began, _core_times()))


def measure_run(comm: MPI.Comm, network: Any, emulation: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Measure the links, and repeat this if a figure deviates from the expected one.

    The measurement with the fewest deviations (marks) counts. All ranks call this.

    Args:
        network: options of the group `network`.
        emulation: content of emulation.json, on rank 0 only; None if nothing was emulated.

    Returns:
        The content of network.json, on rank 0 only.
    """
    wanted = compute_expected(network, 2, emulation)
    attempts: list[dict[str, Any]] = []
    while True:
        hosts, links = measure(comm, lambda latency: correct_latency(latency, wanted.latency_s if wanted else None))
        if comm.rank == 0:
            attempts.append(describe(network, hosts, links, emulation))
        if comm.bcast(not attempts or not attempts[-1]["marks"] or len(attempts) == TRIES):
            if not attempts:
                return None
            return {**min(attempts, key=lambda attempt: len(attempt["marks"])), "tries": len(attempts)}


def correct_latency(latency: float, wanted: float | None) -> bool:
    """Correct an emulated latency by its measured deviation; return whether it was corrected.

    sweep.emulation has set the delay by messages over a plain connection, but messages of MPI take longer. Therefore it
    accepts corrections at the socket that the environment variable STEERING_VARIABLE names.
    """
    path = os.environ.get(STEERING_VARIABLE)
    if not path or not wanted or abs(latency / wanted - 1.0) <= NEAR:
        return False
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as link:  # nobody need listen
        link.settimeout(PATIENCE_S)
        place = os.open(os.path.dirname(path), os.O_DIRECTORY)
        try:
            link.connect(f"/proc/self/fd/{place}/{os.path.basename(path)}")  # the path itself may be too long
        finally:
            os.close(place)
        link.sendall(f"{latency - wanted!r}\n".encode())
        return bool(link.recv(16))
    return False


def compute_expected(network: Any, hosts: int, emulation: Mapping[str, Any] | None) -> Expected | None:
    """Return the figures to expect for the links by a run's options; None without an emulated network.

    No latency is expected if it is 0 or could not be emulated. No bandwidth is expected if packets get lost, because it
    then depends on TCP's reaction to losses.

    Args:
        network: options of the group `network`.
        emulation: content of emulation.json.
    """
    if not isinstance(network, Emulated) or hosts < 2:
        return None

    def of(host: int, key: str) -> Any:
        return network.hosts.get(host, {}).get(key, getattr(network, key))

    latency = statistics.mean(units.seconds(of(host, "latency")) or 0.0 for host in (0, 1))
    built = emulation or {"latency_s": latency}
    if None in [part.get("latency_s") for part in (built, *built.get("own", {}).values())]:
        latency = 0.0
    rates = [PAYLOAD * (units.bits_per_second(of(host, "bandwidth")) or math.nan) for host in range(hosts)]
    reliable = network.loss == 0.0
    return Expected(latency or None, min(rates[:2]) if reliable else None, min(rates) if reliable else None)


def find_marks(measured: Links, wanted: Expected | None, usable: float | None = None) -> list[str]:
    """Return which figures deviate: some of `latency`, `bandwidth`, and `cpu` if the CPUs were the limit.

    Args:
        usable: number of cores that the run may use, if it may be less than the machine has.
    """
    if wanted is None:
        return []
    marks = []
    if _is_off(measured.latency_s, wanted.latency_s):
        marks.append("latency")
    pairs = ((measured.bandwidth, wanted.bandwidth), (measured.ring_bandwidth, wanted.ring_bandwidth))
    if any(_is_off(*pair) for pair in pairs):
        marks.append("bandwidth")
    cores = min(usable or math.inf, measured.cores or 1)
    is_busy = measured.busy_cores is not None and (
        measured.busy_cores >= ALL_BUSY * cores or (measured.busiest_core or 0.0) >= ONE_BUSY
    )
    if is_busy and any(_is_off(is_rate, rate) and is_rate < (rate or 0.0) for is_rate, rate in pairs):
        marks.append("cpu")
    return marks


def _is_off(value: float, wanted: float | None) -> bool:
    return wanted is not None and abs(value / wanted - 1.0) > TOLERANCE


def describe(network: Any, hosts: int, links: Links | None, emulation: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the content of network.json.

    Args:
        network: options of the group `network`.
        links: the result of `measure`; None if there was nothing to measure.
        emulation: content of emulation.json; None if nothing was emulated.
    """
    wanted = compute_expected(network, hosts, emulation)
    return {
        "format": FORMAT,
        "network": {"name": get_name(network), **dataclasses.asdict(network)},
        "emulation": emulation,
        "hosts": hosts,
        "measured": None if links is None else dataclasses.asdict(links),
        "expected": None if wanted is None else dataclasses.asdict(wanted),
        "marks": [] if links is None else find_marks(links, wanted, (emulation or {}).get("cores")),
    }


def _bytes(size: int) -> np.ndarray:
    return np.zeros(size, np.uint8)


def _wait_quietly(comm: MPI.Comm) -> None:
    """Wait for all ranks without using a core: ranks that are not measured must not take it from measured ranks."""
    waiting = comm.Ibarrier()
    while not waiting.Test():
        time.sleep(0.001)


def _receive_plan(comm: MPI.Comm, plan: tuple[int, int]) -> tuple[int, int]:
    """Wait until all ranks are here, and return what rank 0 has planned."""
    _wait_quietly(comm)
    found: tuple[int, int] = comm.bcast(plan)
    return found


def _gather(comm: MPI.Comm, value: float | None) -> list[Any]:
    _wait_quietly(comm)
    return comm.gather(value) or []


def _ask(comm: MPI.Comm, peer: int, message: np.ndarray, answer: np.ndarray) -> float:
    """Send a message to `peer`; return the seconds until its answer has arrived."""
    began = time.perf_counter()
    comm.Send(message, peer, _TAG)
    comm.Recv(answer, peer, _TAG)
    return time.perf_counter() - began


def _answer(comm: MPI.Comm, peer: int) -> None:
    """Answer every message of `peer` with a short one, until an empty message arrives."""
    from mpi4py import MPI

    status, message, answer = MPI.Status(), _bytes(_LARGEST_TRY), _bytes(PING_BYTES)
    while True:
        comm.Recv(message, peer, _TAG, status)
        if not status.Get_count(MPI.BYTE):
            return
        comm.Send(answer, peer, _TAG)


def _latency(comm: MPI.Comm, peer: int) -> float:
    """Return half the median round-trip time of a short message; a first message opens the connection."""
    ping, pong = _bytes(PING_BYTES), _bytes(PING_BYTES)
    times: list[float] = []
    until = time.perf_counter() + PINGS_S
    while len(times) < FEWEST_PINGS or (len(times) < MOST_PINGS and time.perf_counter() < until):
        times.append(_ask(comm, peer, ping, pong) / 2)
    return statistics.median(times)


def _estimate(comm: MPI.Comm, peer: int, latency: float) -> float:
    """Estimate the bytes per second to `peer` by messages that grow until one takes long enough.

    They also open TCP's window.
    """
    size, answer = SMALLEST, _bytes(PING_BYTES)
    while True:
        whole = _ask(comm, peer, _bytes(size), answer)
        taken = max(whole - 2 * latency, whole / 10)  # a lucky one may take less than the median of small ones
        if taken > _LONG_ENOUGH_S or size >= _LARGEST_TRY:
            return size / max(taken, 1e-6)
        size *= _GROWTH


def _plan_chunks(rate: float, latency: float) -> tuple[int, int]:
    """Return the size in bytes and the number of chunks for the measurement of a stream of `rate` bytes per second.

    The stream is so long that bytes in flight during a latency, and the initial burst of a token bucket, hardly count.
    """
    total = rate * (STREAM_S + 8 * latency)
    chunk = min(max(int(total / CHUNKS), SMALLEST), LARGEST)
    return chunk, max(math.ceil(total / chunk), CHUNKS // 4)


def _stream(comm: MPI.Comm, target: int | None, source: int | None, chunk: int, count: int) -> float | None:
    """Send chunks to one rank while receiving as many from another; return the bit/s received, None without a `source`.

    The first quarter of the chunks does not count: during it, connections are made, TCP's windows open and token
    buckets empty.
    """
    from mpi4py import MPI

    window = min(max(count // 4, 1), IN_FLIGHT)
    outgoing, rooms = _bytes(chunk), [_bytes(chunk) for _ in range(window if source is not None else 0)]
    receives = [comm.Irecv(room, source, _TAG) for room in rooms] if source is not None else []
    sends = [comm.Isend(outgoing, target, _TAG) for _ in range(window)] if target is not None else []
    requests, received, to_send = [*receives, *sends], [], count - window
    while (done := MPI.Request.Waitany(requests)) != MPI.UNDEFINED:
        if source is not None and done < len(rooms):
            received.append(time.perf_counter())
            if len(received) + window <= count:
                requests[done] = comm.Irecv(rooms[done], source, _TAG)
        elif target is not None and to_send:
            requests[done] = comm.Isend(outgoing, target, _TAG)
            to_send -= 1
    if source is None:
        return None
    return 8 * chunk * _rate(np.array(received[count // 4 :]))


def _rate(times: np.ndarray) -> float:
    """Return arrivals per second: the slope of a line fitted to all `times`, as single arrivals may be noticed late."""
    late = times - times.mean()
    return float(late @ np.arange(len(times)) / max(late @ late, 1e-18))


def _core_times() -> list[tuple[float, float]]:
    """Return the busy ticks and all ticks of every core since boot; empty if the system does not show them."""
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    ticks_of_cores = []
    for line in lines:
        name, *ticks = line.split()
        if name.startswith("cpu") and name != "cpu":
            user, nice, system, idle, waiting, irq, softirq = map(float, ticks[:7])
            busy = user + nice + system + irq + softirq
            ticks_of_cores.append((busy, busy + idle + waiting))
    return ticks_of_cores


def _count_busy(
    before: Sequence[tuple[float, float]], after: Sequence[tuple[float, float]]
) -> tuple[float | None, float | None, int | None]:
    """Return the mean number of busy cores, the busy share of the busiest core, and the number of cores."""
    if not before or len(before) != len(after):
        return None, None, None
    shares = [
        (busy - old_busy) / max(total - old_total, 1.0)
        for (old_busy, old_total), (busy, total) in zip(before, after, strict=True)
    ]
    return sum(shares), max(shares), len(shares)
