"""The two 8-bit floating-point formats, in plain Python: loads neither torch nor numpy."""

from __future__ import annotations

import dataclasses
import struct


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of a sign, an exponent and `mantissa` bits, with numbers below 2^`least` evenly spaced.

    Args:
        mantissa: bits behind the leading one.
        least: exponent of the smallest number with a leading one.
        top: code of the largest finite magnitude.
    """

    mantissa: int
    least: int
    top: int

    @property
    def shift(self) -> int:
        """The bits of a float32's mantissa that the format does not have."""
        return 23 - self.mantissa

    @property
    def offset(self) -> int:
        """The number to subtract from a shifted float32 for its code, for magnitudes from 2^`least`."""
        return (126 + self.least) << self.mantissa

    @property
    def smallest(self) -> float:
        """The smallest number with a leading one, 2^`least`."""
        return 2.0**self.least

    @property
    def grid(self) -> float:
        """One over the distance of the numbers below `smallest`."""
        return 2.0 ** (self.mantissa - self.least)

    def value(self, code: int) -> float:
        """Return the magnitude of a code from 0 to `top`."""
        exponent, fraction = divmod(code, 1 << self.mantissa)
        if exponent == 0:
            return fraction / self.grid
        return (1 + fraction / (1 << self.mantissa)) * 2.0 ** (exponent - 1 + self.least)

    @property
    def largest(self) -> float:
        """The largest finite magnitude."""
        return self.value(self.top)

    def list_values(self) -> tuple[float, ...]:
        """Return by code, 0 to 255, the value over `largest`, rounded to float32; 0 for codes that are never sent."""
        ratios = [_round(self.value(code) / self.largest) if code <= self.top else 0.0 for code in range(128)]
        return (*ratios, *(-ratio for ratio in ratios))


def _round(value: float) -> float:
    """Return the float32 nearest to a number."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


FORMATS = {"e4m3": Format(mantissa=3, least=-6, top=0x7E), "e5m2": Format(mantissa=2, least=-14, top=0x7B)}
"""Micikevicius et al., "FP8 formats for deep learning", 2022, table 1."""
