"""Closed forms of collectives: those of the cost model, and of others that the simulator has (W workers, n bytes)."""

from __future__ import annotations

from collections.abc import Callable

from reports.scaling.measured.collectives import COLLECTIVES, CollectiveCost, Stage
from reports.scaling.simulator import Schedule, schedules


def lg(w: int) -> int:
    return (w - 1).bit_length()


FORMS: dict[str, dict[str, Callable[[float, int], CollectiveCost]]] = {
    **COLLECTIVES,
    "reduce_scatter": {
        "ring": lambda n, w: CollectiveCost((Stage(w - 1, n / w),), n * (w - 1) / w, n * (w - 1)),
    },
    "bcast": {
        "binomial": lambda n, w: CollectiveCost((Stage(lg(w), n),), wire=(w - 1) * n),
        "linear": lambda n, w: CollectiveCost((Stage(1, n, w - 1),), wire=(w - 1) * n),
    },
    "reduce": {"binomial": lambda n, w: CollectiveCost((Stage(lg(w), n),), lg(w) * n, (w - 1) * n)},
    "gather": {"linear": lambda n, w: CollectiveCost((Stage(1, n, w - 1),), wire=(w - 1) * n)},
}

SCHEDULES: dict[str, dict[str, Callable[[int, float], Schedule]]] = {
    "allreduce": {
        "ring": schedules.allreduce_ring,
        "recursive_doubling": schedules.allreduce_doubling,
        "rabenseifner": schedules.allreduce_rabenseifner,
    },
    "reduce_scatter": {"ring": schedules.reduce_scatter_ring},
    "allgather": {"ring": schedules.allgather_ring, "bruck": schedules.allgather_bruck},
    "alltoall": {"pairwise": schedules.alltoall_pairwise, "linear": schedules.alltoall_linear},
    "bcast": {"binomial": schedules.bcast_binomial, "linear": schedules.bcast_linear},
    "reduce": {"binomial": schedules.reduce_binomial},
    "gather": {"linear": schedules.gather_linear},
}
"""Algorithms of collectives, by the same names: functions of workers and n."""


def compute_cost(collective: str, algorithm: str, n: float, workers: int) -> CollectiveCost:
    return FORMS[collective][algorithm](n, workers) if workers > 1 else CollectiveCost()


def count_steps(cost: CollectiveCost) -> float:
    return sum(stage.steps for stage in cost.stages)


def compute_time(
    collective: str, algorithm: str, n: float, workers: int, alpha: float, beta: float, gamma: float = 0.0
) -> float:
    """Return seconds, with `alpha` s a step, `beta` s a byte, `gamma` s a summed byte."""
    cost = compute_cost(collective, algorithm, n, workers)
    return alpha * count_steps(cost) + beta * cost.bytes + gamma * cost.reduced
