"""Exchanges by name; built by trainers/exchange.py."""

from __future__ import annotations

import dataclasses

from compressors.parameters import boolean, choice, number
from trainers.options.base import Part


@dataclasses.dataclass(frozen=True)
class Exchange(Part):
    """How payloads become the mean gradient, and what one payload covers."""

    granularity: str = choice("layer", "layer", "bucket", "model")
    bucket_mib: float = number(4.0, 0.0, above=True)
    overlap: bool = boolean(False)


@dataclasses.dataclass(frozen=True)
class Auto(Exchange):
    """`allreduce` where the network can sum all payloads, `allgather` where it can sum none, else `mixed`."""


@dataclasses.dataclass(frozen=True)
class Allreduce(Exchange):
    """The network sums the payloads (or does the rounds of a cooperative compressor): only where it can."""


@dataclasses.dataclass(frozen=True)
class Allgather(Exchange):
    """Every worker receives every payload and decodes them all into the mean."""


@dataclasses.dataclass(frozen=True)
class Mixed(Exchange):
    """What the network can sum goes by allreduce, the rest by allgather."""


EXCHANGES: dict[str, type] = {"auto": Auto, "allreduce": Allreduce, "allgather": Allgather, "mixed": Mixed}
