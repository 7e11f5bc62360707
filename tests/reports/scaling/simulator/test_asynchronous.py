"""Asynchronous training in the simulator: bounded staleness against one server."""

from __future__ import annotations

import numpy as np
import pytest

from reports.scaling.simulator import Asynchronous, Cluster, Compute, Course, Link, simulate

LINK = Link(latency_s=1e-3, s_per_byte=1e-9)


def course(workers: int, steps: int, staleness: int, compute: Compute, server_s: float = 0.0) -> Course:
    step = Asynchronous(compute, push_bytes=1e6, pull_bytes=2e6, staleness=staleness, server_s=server_s)
    return simulate(Cluster(workers, LINK, servers=1), step, steps, seed=2)


def test_one_worker_waits_for_its_messages_and_the_server() -> None:
    found = course(1, 4, 0, Compute(0.1), server_s=0.02)
    assert found.durations == pytest.approx(np.full((4, 1), 0.1 + 1e-3 + 1e-3 + 0.02 + 1e-3 + 2e-3))


def test_long_messages_are_announced_both_ways() -> None:
    """Of a gradient of 1 MB and parameters of 2 MB: neither, only these, both; two latencies each."""
    step = Asynchronous(Compute(0.1), push_bytes=1e6, pull_bytes=2e6)
    took = [
        simulate(Cluster(1, LINK, servers=1, eager_bytes=eager), step, 1).finished[0, 0] for eager in (3e6, 1e6, 1e5)
    ]
    assert np.diff(took) == pytest.approx([2e-3, 2e-3])


def test_a_server_takes_one_gradient_after_another() -> None:
    """Eight come together: they share the link for 8 ms, and the last is taken after 8 x 20 ms."""
    found = course(8, 1, 100, Compute(0.1), server_s=0.02)
    assert found.finished.max() == pytest.approx(0.1 + 1e-3 + 8e-3 + 0.16 + 1e-3 + 2e-3)
    assert found.finished.min() == pytest.approx(0.1 + 1e-3 + 8e-3 + 0.02 + 1e-3 + 2e-3)


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_nobody_is_more_steps_ahead_of_the_slowest_than_allowed(staleness: int) -> None:
    found = course(6, 20, staleness, Compute(0.1, 0.5, slow={2: 3.0}))
    ahead = 0
    for step, worker in np.ndindex(*found.finished.shape):
        # what the slowest has sent before this one goes on; its last message may still be on the way
        pushed = (found.ready <= found.finished[step, worker]).sum(axis=0).min()
        ahead = max(ahead, step + 1 - int(pushed))
    assert ahead <= staleness
    assert ahead == staleness  # and the bound is used


def test_without_a_bound_a_slow_worker_delays_nobody() -> None:
    quick, slow = (course(4, 10, 100, Compute(0.1, slow=slow)) for slow in ({}, {3: 5.0}))
    assert slow.finished[-1, :3].max() <= quick.finished[-1, :3].max()
    bound = course(4, 10, 0, Compute(0.1, slow={3: 5.0}))
    assert bound.finished[-1, :3].min() > 4 * quick.finished[-1, :3].max()


def test_a_server_is_needed() -> None:
    with pytest.raises(ValueError, match="servers=0"):
        simulate(Cluster(4, LINK), Asynchronous(Compute(0.1)), 1)
