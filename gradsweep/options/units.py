"""Bandwidths, times and sizes with their units: `1gbit`, `50us`, `44MB`. Standard library only."""

from __future__ import annotations

import re

_BITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_BYTES = {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zµ]+)\s*")


def bits_per_second(text: object) -> float | None:
    """Return a bandwidth such as `1gbit`, `100 Mbit/s` or `2.5Gbps` in bit/s; None if the text is no bandwidth.

    Prefixes are decimal, as usual for network rates. Numbers without a unit and bytes per second (`125MBps`) are no
    bandwidth.
    """
    if re.search(r"B(ps|PS)\s*$", str(text)):
        return None
    return _quantity(re.sub(r"(bit/s|bitps|bps)$", "bit", str(text).lower().strip()), _BITS)


def seconds(text: object) -> float | None:
    """Return a time such as `50us`, `1.5 ms` or `0s` in seconds; None if the text is no time."""
    return _quantity(str(text).lower(), _SECONDS)


def byte_count(text: object) -> float | None:
    """Return a size such as `44MB`, `64 KiB` or `8B` in bytes; None if the text is no size."""
    return _quantity(str(text).lower(), _BYTES)


def _quantity(text: str, units: dict[str, float]) -> float | None:
    match = _QUANTITY.fullmatch(text)
    return float(match[1]) * units[match[2]] if match and match[2] in units else None


def format_bandwidth(rate: float) -> str:
    """Format a bandwidth in bit/s as `bits_per_second` reads it: 1gbit, 2.5gbit, 100mbit."""
    for unit, size in reversed(_BITS.items()):
        if rate >= size:
            return f"{rate / size:.4g}{unit}"
    return f"{rate:.4g}bit"


def format_time(value: float) -> str:
    """Format a time in seconds as `seconds` reads it: 50us, 1.5ms, 0s."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value / 1e-9:.4g}ns" if value else "0s"


_SPELLED = {"bit": "bit/s", "kbit": "kbit/s", "mbit": "Mbit/s", "gbit": "Gbit/s", "tbit": "Tbit/s", "us": "µs"}
_TYPED = re.compile(r"(?<![\w.=])(\d+(?:\.\d+)?)(k?bit|[mgt]bit|us|ms|ns|s)\b")


def spell_quantities(text: str) -> str:
    """Return a text with its typed bandwidths and times as people write them: `100mbit 50us` is `100 Mbit/s 50 µs`.

    A setting such as `network.bandwidth=100mbit` stays as it is typed.
    """
    return _TYPED.sub(lambda match: f"{match[1]} {_SPELLED.get(match[2], match[2])}", text)
