"""Choose the engine of a simulation."""

from __future__ import annotations

from reports.scaling.simulator import asynchronous, event_engine, round_engine
from reports.scaling.simulator.cluster import Cluster
from reports.scaling.simulator.result import Course
from reports.scaling.simulator.step import Asynchronous, Step

MOST_EVENTS = 12_000
"""The most messages of all steps that `auto` hands to the discrete events."""


def simulate(cluster: Cluster, step: Step | Asynchronous, steps: int, seed: int = 0, engine: str = "auto") -> Course:
    """Simulate steps that all workers begin at the same time; return the times of each worker.

    Args:
        steps: the number of steps, 1 or more.
        seed: of the times to compute; the same seed gives the same times.
        engine: `rounds`, `events`, or `auto`: rounds where they are exact, else events up to MOST_EVENTS messages,
            and beyond that rounds, whose course then says that it is not exact.

    Raises:
        ValueError: the cluster lacks endpoints that the exchange needs, or a number is out of range.
    """
    if steps < 1:
        raise ValueError(f"steps={steps}: valid is 1 or more")
    if engine not in ("auto", "rounds", "events"):
        raise ValueError(f"engine={engine}: valid is one of auto, rounds, events")
    if isinstance(step, Asynchronous):
        if not cluster.servers or step.staleness < 0:
            raise ValueError(
                f"staleness={step.staleness}, servers={cluster.servers}: valid is 0 or more, and 1 or more"
            )
        return asynchronous.play(cluster, step, steps, seed)
    needed = max(schedule.endpoints for schedule in step.schedules)
    if needed > cluster.endpoints:
        raise ValueError(f"the exchange is one of {needed} endpoints, the cluster has {cluster.endpoints}")
    if engine == "events":
        return event_engine.play(cluster, step, steps, seed)
    course = round_engine.play(cluster, step, steps, seed)
    schedules = step.schedules
    events = sum(schedules[number % len(schedules)].messages for number in range(steps))
    if engine == "rounds" or course.exact or events > MOST_EVENTS:
        return course
    return event_engine.play(cluster, step, steps, seed)
