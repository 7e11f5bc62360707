"""The mean is a mean, and the bytes that are counted are the bytes that are sent."""

from __future__ import annotations

import pytest

from tests.trainers.start_ranks import MONITORED, run_ranks

pytestmark = pytest.mark.mpi

OF_TWO = "none fp16 intsgd thc powersgd acp_sgd gtopk sign signum terngrad"
"""What is done otherwise by two or four workers than by three: sums, agreements, rounds, votes that can be even."""


@pytest.mark.parametrize(
    ("workers", "functions"),
    [
        (2, f"gradients + same_mean {OF_TWO} + senders + lgreco + uneven_bytes"),
        (3, "gradients + same_mean + senders + lgreco + traffic + algorithms"),
        (4, "traffic + algorithms"),
    ],
)
def test_means_and_bytes_of_all_compressors(workers: int, functions: str) -> None:
    """Workers compute the gradient of one process, and the mean of the decoded payloads; and send what they say."""
    run_ranks(workers, *functions.split(), **MONITORED)
