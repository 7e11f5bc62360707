"""Networks by name: none, a real one that is measured, or an emulated one (docs/guide/networks.md)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from gradsweep.options import units
from gradsweep.options.parameters import Checked, Valid, field, integer, number

LOWEST_BIT_S, HIGHEST_BIT_S = 10e3, 1e12
LONGEST_S = 1.0

_BANDWIDTH = Valid(
    "a bandwidth with its unit, such as 100mbit or 1gbit, from 10kbit to 1tbit",
    lambda value: (rate := units.bits_per_second(value)) is not None and LOWEST_BIT_S <= rate <= HIGHEST_BIT_S,
)
_LATENCY = Valid(
    "a one-way time with its unit, such as 200us or 5ms, from 0s to 1s",
    lambda value: (time := units.seconds(value)) is not None and time <= LONGEST_S,
)
_OF_A_HOST = {"bandwidth": _BANDWIDTH, "latency": _LATENCY}


def _is_hosts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        str(host).isdecimal()  # JSON, and keys that are typed, make texts of numbers
        and isinstance(own, Mapping)
        and all(key in _OF_A_HOST and _OF_A_HOST[key].test(item) for key, item in own.items())
        for host, own in value.items()
    )


_HOSTS = Valid(
    "numbers of hosts, from 0, with a bandwidth, a latency or both: {0: {bandwidth: 100mbit}}",
    _is_hosts,
    normalise=lambda hosts: {int(host): dict(own) for host, own in hosts.items()},
)


@dataclasses.dataclass(frozen=True)
class Network(Checked):
    """The base of networks, which carry the messages between ranks."""

    measured: ClassVar[bool] = True
    """Whether the links are measured before the first step."""


@dataclasses.dataclass(frozen=True)
class NoNetwork(Network):
    """The network that MPI finds, neither measured nor shaped: the memory of this machine, or the nodes' network."""

    measured: ClassVar[bool] = False


@dataclasses.dataclass(frozen=True)
class RealNetwork(Network):
    """The network as it is between the ranks, measured before the first step; nothing is shaped."""


@dataclasses.dataclass(frozen=True)
class Emulated(Network):
    """An emulated network: hosts on one Linux machine, each with a shaped link to one switch; ranks use TCP only.

    Args:
        bandwidth: of a host's link in each direction; it counts Ethernet frames with their headers.
        latency: time of a small MPI message between two hosts, one way; 0s: no delay is added.
        loss: share of the packets that the switch drops.
        workers_per_host: number of neighbouring ranks on a host, which share its link.
        hosts: different options of single hosts, by number. The latency between two hosts is the mean of theirs.
    """

    bandwidth: str = field(_BANDWIDTH, default="1gbit")
    latency: str = field(_LATENCY, default="200us")
    loss: float = number(0.0, low=0.0, high=0.5)
    workers_per_host: int = integer(1, low=1, high=1024)
    hosts: dict[int, Any] = field(_HOSTS, default_factory=dict, hash=False)


@dataclasses.dataclass(frozen=True)
class Ethernet100M(Emulated):
    """100 Mbit/s Ethernet through one switch."""

    bandwidth: str = field(_BANDWIDTH, default="100mbit")


@dataclasses.dataclass(frozen=True)
class Ethernet1G(Emulated):
    """Gigabit Ethernet through one switch: the defaults of `Emulated`."""


@dataclasses.dataclass(frozen=True)
class Ethernet10G(Emulated):
    """10 Gbit/s Ethernet through one switch."""

    bandwidth: str = field(_BANDWIDTH, default="10gbit")
    latency: str = field(_LATENCY, default="50us")


@dataclasses.dataclass(frozen=True)
class Wan100M(Emulated):
    """100 Mbit/s over a wide area: 10 ms one way."""

    bandwidth: str = field(_BANDWIDTH, default="100mbit")
    latency: str = field(_LATENCY, default="10ms")


NETWORKS: dict[str, type] = {
    "none": NoNetwork,
    "real": RealNetwork,
    "emulated": Emulated,
    "ethernet_100m": Ethernet100M,
    "ethernet_1g": Ethernet1G,
    "ethernet_10g": Ethernet10G,
    "wan_100m": Wan100M,
}
