"""Describe the networks of predictions: named, given by bandwidth, or measured by a probe."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradsweep.errors import UsageError, bad_value
from gradsweep.files import read_json
from gradsweep.options import units
from reports.reading.json_values import as_mapping, as_number

PAYLOAD_SHARE = 1448 / 1514
"""The share of an Ethernet frame with its header that TCP over IP leaves for a message (MTU 1500, time stamps)."""

MESSAGE_S = 1.5e-6
"""The CPU's time for a message in s: the overhead o of LogGOPSim (Hoefler, Schneider and Lumsdaine, 2010)."""
BYTE_S = 8 / 42e9
"""The CPU's time for a byte over TCP in s: a core receives 42 Gbit/s (Cai et al., "Understanding Host Network Stack
Overheads", 2021)."""

LOWEST_BIT_S, HIGHEST_BIT_S = 10e3, 1e13
LONGEST_S = 1.0


@dataclasses.dataclass(frozen=True)
class Links:
    """The links between hosts, which all have the same speed.

    Attributes:
        name: their name in tables.
        alpha: one-way latency of a short message, in s.
        beta: s per byte of payload.
        per_message, per_byte: CPU time per message and per byte in s, as usual with such links; used if no run has
            measured it.
        is_typed: `per_message` was typed on the command line, and is used in any case.
        is_emulated: the links were measured on an emulated network.
    """

    name: str
    alpha: float
    beta: float
    per_message: float = MESSAGE_S
    per_byte: float = BYTE_S
    is_typed: bool = False
    is_emulated: bool = False

    @property
    def bandwidth(self) -> float:
        """Bandwidth for payload in bit/s; 0 for links that transfer bytes in no time."""
        return 8 / self.beta if self.beta else 0.0


MEMORY = Links("none", 0.0, 0.0)
"""No network: only MPI's own work costs time."""

NOMINAL: Mapping[str, tuple[float, float, float, float, float]] = {
    "infiniband": (200e9, 1.5e-6, 0.97, 0.0, 0.0),
    "ethernet_100m": (100e6, 200e-6, PAYLOAD_SHARE, MESSAGE_S, BYTE_S),
    "ethernet_1g": (1e9, 200e-6, PAYLOAD_SHARE, MESSAGE_S, BYTE_S),
    "ethernet_10g": (10e9, 50e-6, PAYLOAD_SHARE, MESSAGE_S, BYTE_S),
    "wan_100m": (100e6, 10e-3, PAYLOAD_SHARE, MESSAGE_S, BYTE_S),
}
"""Bit/s, one-way s, the share of the payload, and the CPU's s for a message and a byte. infiniband is HDR, whose
adapters copy without the CPU, and whose one-way time includes the CPU's; the others are those of conf/network."""

_LATENCIES = ((25e9, 10e-6), (5e9, 30e-6), (0.0, 50e-6))
"""One-way s of MPI over TCP in one building, by the least bit/s of the link: 10 us for 100gbit."""


def parse_network(word: str, latency: float | None = None, overhead: float | None = None) -> Links:
    """Return the links for a name of `NOMINAL` or a bandwidth such as `10gbit`.

    Args:
        latency: one-way s, in place of the usual one of such links.
        overhead: the CPU's s for a message, in place of the usual one of such links and of what runs have measured.

    Raises:
        UsageError: it is neither.
    """
    if word in NOMINAL:
        rate, usual, share, per_message, per_byte = NOMINAL[word]
    else:
        found = units.bits_per_second(word)
        if found is None or not LOWEST_BIT_S <= found <= HIGHEST_BIT_S:
            raise bad_value(
                "--network", word, f"{', '.join(NOMINAL)}, or a bandwidth with its unit, from 10kbit to 10tbit: 25gbit"
            )
        rate, share, per_message, per_byte = found, PAYLOAD_SHARE, MESSAGE_S, BYTE_S
        usual = next(time for least, time in _LATENCIES if rate >= least)
    beta = 8 / (rate * share)
    links = Links(word, usual if latency is None else latency, beta, per_message, per_byte)
    return links if overhead is None else dataclasses.replace(links, per_message=overhead, is_typed=True)


def parse_time(option: str, text: str | None, what: str, example: str) -> float | None:
    """Return a time of a message in s; None if it was not typed. `what` names it.

    Raises:
        UsageError: the text is no time, or above LONGEST_S.
    """
    found = None if text is None else units.seconds(text)
    if text is not None and (found is None or found > LONGEST_S):
        raise bad_value(option, text, f"{what} with its unit, from 0s to 1s: {example}")
    return found


def parse_overhead(text: str | None) -> float | None:
    """Return the CPU time per message in s; None if it was not typed.

    Raises:
        UsageError: the text is no time, or above LONGEST_S.
    """
    return parse_time("--overhead", text, "a time", "2us")


def parse_networks(words: str, latency: str | None, probe: Path | None, overhead: str | None = None) -> list[Links]:
    """Return the links that a command line names, without repetitions, those from probes first.

    Raises:
        UsageError: a word is no network, a time is not valid, or the probe cannot be read.
    """
    one_way, each = parse_time("--latency", latency, "a one-way time", "50us"), parse_overhead(overhead)
    found = [] if probe is None else [read_probe(probe)]
    return [*found, *(parse_network(word, one_way, each) for word in dict.fromkeys(filter(None, words.split(","))))]


def read_probe(path: Path) -> Links:
    """Return the links that `python -m sweep probe` has measured.

    Raises:
        UsageError: there is no such file, or it holds no measurement of links.
    """
    if not path.is_file():
        raise UsageError(f"--probe {path}: no such file; valid is a network.json of a probe or a run")
    content = read_json(path) or {}
    links = read_links(content, f"probe ({as_mapping(content.get('network')).get('name', 'real')})")
    if links is None:
        raise UsageError(f"--probe {path}: no latency and bandwidth in it; valid is a network.json of a probe or a run")
    return links


def read_links(content: Mapping[str, Any], name: str, figures_of: str = "measured") -> Links | None:
    """Return the links in the content of a network.json; None if there are none.

    The bandwidth is that of a ring, in which all hosts send at once, as in training.

    Args:
        figures_of: the entry to read: `measured`, or `expected` for the configured links.
    """
    figures = as_mapping(content.get(figures_of))
    rates = (as_number(figures.get(key)) for key in ("ring_bandwidth", "bandwidth"))
    rate, latency = next((rate for rate in rates if rate > 0), 0.0), as_number(figures.get("latency_s"))
    is_emulated = figures_of == "measured" and any(as_mapping(content.get(key)) for key in ("emulation", "expected"))
    return Links(name, latency, 8 / rate, is_emulated=is_emulated) if rate and latency > 0 else None


def take_median(name: str, links: Sequence[Links]) -> Links:
    """Return links with the median latency and the median bandwidth of one or more links."""
    alpha, beta = (statistics.median(getattr(one, figure) for one in links) for figure in ("alpha", "beta"))
    return Links(name, alpha, beta, is_emulated=any(one.is_emulated for one in links))


def is_same_latency(one: float, other: float) -> bool:
    """Tell whether two one-way times differ by at most 10 %."""
    return abs(one - other) <= 0.1 * max(one, other)


LARGEST = 2**20  # workers


def parse_workers(typed: str) -> list[int]:
    """Return the numbers of workers typed as `2..1024` (its powers of two, and both ends) or `2,4,96`, ascending.

    Raises:
        UsageError: there are none, or one is below 1 or above 2^20.
    """
    found: set[int] = set()
    for word in typed.split(","):
        ends = word.split("..")
        if not all(end.isdecimal() and 1 <= int(end) <= LARGEST for end in ends) or len(ends) > 2:
            raise bad_value("--workers", typed, f"numbers from 1 to {LARGEST}, such as 2..1024 or 2,4,96")
        low, high = int(ends[0]), int(ends[-1])
        if low > high:
            raise bad_value("--workers", typed, "a range that goes up, such as 2..1024")
        found |= {low, high, *(2**power for power in range(21) if low <= 2**power <= high)}
    return sorted(found)


def describe_links(links: Sequence[Links]) -> list[str]:
    """Return the name and figures of each network, for a note."""
    return [
        f"{one.name}: {units.format_bandwidth(one.bandwidth)} of payload, {units.format_time(one.alpha)} one way"
        for one in links
        if one.beta
    ]
