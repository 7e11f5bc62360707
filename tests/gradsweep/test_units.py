"""Bandwidths and times as they are typed and shown."""

from __future__ import annotations

import pytest

from gradsweep.options import units


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1gbit", 1e9),
        ("100mbit", 1e8),
        ("2.5Gbps", 2.5e9),
        ("100 Mbit/s", 1e8),
        (".5tbit", 5e11),
        ("10kbit", 1e4),
        ("8bit", 8.0),
        ("0gbit", 0.0),
    ],
)
def test_bandwidths(text: str, rate: float) -> None:
    assert units.bits_per_second(text) == pytest.approx(rate)


@pytest.mark.parametrize(
    "text", ["1", 1, 1e9, None, "", "gbit", "-1gbit", "1gb", "1gbyte", "1 g bit", "1e9bit", "infgbit", "125MBps"]
)
def test_what_is_no_bandwidth(text: object) -> None:
    assert units.bits_per_second(text) is None


@pytest.mark.parametrize(
    ("text", "time"),
    [("50us", 50e-6), ("50µs", 50e-6), ("1.5 ms", 1.5e-3), ("0s", 0.0), ("10s", 10.0), ("100ns", 1e-7)],
)
def test_times(text: str, time: float) -> None:
    assert units.seconds(text) == pytest.approx(time)


@pytest.mark.parametrize("text", ["1", 0, None, "-1ms", "1m", "1min", "ms"])
def test_what_is_no_time(text: object) -> None:
    assert units.seconds(text) is None


@pytest.mark.parametrize("text", ["1gbit", "2.5gbit", "100mbit", "10kbit", "1tbit", "8bit"])
def test_what_is_shown_may_be_typed(text: str) -> None:
    assert units.format_bandwidth(units.bits_per_second(text) or 0.0) == text


@pytest.mark.parametrize("text", ["50us", "1.5ms", "1s", "100ns", "0s"])
def test_times_that_are_shown_may_be_typed(text: str) -> None:
    time = units.seconds(text)
    assert time is not None and units.format_time(time) == text


def test_quantities_are_spelled_as_people_write_them() -> None:
    assert units.spell_quantities("emulated 100mbit 200us") == "emulated 100 Mbit/s 200 µs"
    assert units.spell_quantities("10gbit, 1.5ms") == "10 Gbit/s, 1.5 ms"
    assert units.spell_quantities("ethernet_1g v2.5gbit 3steps") == "ethernet_1g v2.5gbit 3steps", "names stay"
