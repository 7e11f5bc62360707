"""The performance model of Agarwal, Wang, Venkataraman and Papailiopoulos, "On the Utility of Gradient Compression in
Distributed Training Systems" (MLSys 2022), for comparison; written from the paper's formulas.

Without compression, gradients leave in k buckets while backward goes on, which slows it down by gamma:

    T = T_forward + max(gamma T_backward, (k - 1) T_ring(bucket)) + T_ring(last bucket)

With compression, nothing overlaps:

    T = T_forward + T_backward + T_encode-decode + T_comm

where T_comm is a ring allreduce of each factor for PowerSGD, and an allgather of the payload for top-k and sign, with

    T_ring(b) = alpha (p - 1) + 2 b (p - 1) / (p BW)        T_gather(b) = alpha (p - 1) + b (p - 1) / BW

for p workers. The paper's time is of backward and all that follows; forward and update are added here, which it leaves
out on both sides, so that steps can be compared.
"""

from __future__ import annotations

from reports.scaling.measured.links import Links
from reports.scaling.measured.traffic import Traffic

GAMMA = 1.05
"""The slow-down of backward by overlap; the paper measures a few percent."""
BUCKET = 25 * 2**20
"""Bytes of a bucket of PyTorch's DistributedDataParallel, as in the paper."""


def time_ring(size: float, workers: int, links: Links) -> float:
    """Return the seconds of a ring allreduce of `size` bytes."""
    return links.alpha * (workers - 1) + 2 * size * (workers - 1) / workers * links.beta


def time_gather(size: float, workers: int, links: Links) -> float:
    """Return the seconds of an allgather to which each worker contributes `size` bytes."""
    return links.alpha * (workers - 1) + size * (workers - 1) * links.beta


def predict_uncompressed(
    compute: float, backward: float, size: float, workers: int, links: Links, *, gamma: float = GAMMA
) -> float:
    """Return the seconds of a step of synchronous SGD without compression.

    Args:
        compute: seconds of all work on the model.
        backward: the seconds of it in backward.
        size: bytes of the gradient.
    """
    full, rest = divmod(size, BUCKET)
    last = rest or min(size, BUCKET)
    others = full if rest else max(full - 1, 0)
    hidden = max(gamma * backward, others * time_ring(BUCKET, workers, links))
    return compute - backward + hidden + time_ring(last, workers, links)


def predict_compressed(compute: float, codec: float, traffic: Traffic, workers: int, links: Links) -> float:
    """Return the seconds of a step with compression: `compute` s, `codec` s to encode and decode, and the messages."""
    sums = traffic.rounds if traffic.summed else 0
    time = sum(time_ring(traffic.summed / sums, workers, links) for _ in range(sums))
    return compute + codec + time + (time_gather(traffic.gathered, workers, links) if traffic.gathered else 0.0)
