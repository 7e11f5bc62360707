"""Sum over a whole tensor in float64, in an order that every implementation keeps.

The elements are divided into chunks of CHUNK. In a chunk, element i goes to lane i mod LANES, each lane is summed from
left to right, and one half of the lanes is added to the other until one is left. The totals of the chunks are summed by
the same rule, until one number is left.
"""

from __future__ import annotations

import torch

from compressors.kernels.reference.primitives.buckets import lane_sums, rows

CHUNK = 4096
LANES = 16


def total(values: torch.Tensor) -> torch.Tensor:
    """Return the sum of `values` (n,), float64, as a tensor without dimensions."""
    values = values.double()
    if not len(values):
        return values.new_zeros(())
    while True:
        values = torch.cat([lane_sums(part, LANES) for _, part in rows(values, CHUNK)])
        if len(values) == 1:
            return values[0]


def moments(x: torch.Tensor) -> tuple[float, float, float]:
    """Return the sums of x, |x| and x^2 of `x` (n,) float32; NaN or Inf if `x` holds one."""
    wide = x.double()
    return float(total(wide)), float(total(wide.abs())), float(total(wide.square()))
