"""The rows of bench.csv."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Row:
    """One method's figures; this is also a line of bench.csv, which ends with what they were taken on."""

    method: str
    units: str  # "flat" or "layers"
    elements: int
    payload_bytes: int
    bits_per_element: float
    error: float | None  # ||x - Q(x)|| / ||x||; None where only directions are kept
    encode_s: float
    decode_s: float
    encode_per_copy: float
    decode_per_copy: float
    per_copy: float
    gigabytes_per_s: float  # float32 bytes through encode and decode
    pays_below_bit_per_s: float | None  # None where the payload is not smaller
    kernels: str  # numba, triton or torch; several with a + between
