"""Simulate steps of training with thousands of workers: stragglers, incast, hierarchical networks, gossip.

    from reports.scaling.simulator import Cluster, Compute, Link, Step, schedules, simulate

    cluster = Cluster(workers=1024, link=Link(latency_s=20e-6, s_per_byte=8 / 10e9))
    step = Step(Compute(0.1, sigma=0.1), schedules.allreduce_ring(1024, 44e6))
    course = simulate(cluster, step, steps=20, seed=1)
    course.durations    # (steps, workers), in seconds

A collective is a schedule: rounds of messages. No worker waits for all others: it begins its next round, and at the end
its next step, when its own messages of the round have left and come. A message of n bytes takes latency + n x
s_per_byte: it goes through its sender's link, the core of the network and its receiver's link at once (cut through, as
the packets of a long message do), links are full duplex, and messages that meet on one share it by max-min fairness, as
TCP connections roughly do (`sharing.py`; Bertsekas and Gallager, "Data Networks", 1992, 6.5.2).

There are two engines for the same model. `rounds.py` has recurrences over arrays, exact where no two workers' messages
compete for a link, or only messages that begin and end together; it checks whether that was so. `events.py` has
discrete events, for the rest. `simulate` takes the first if it is exact, the second where there are not too many
messages, and marks all other results as not exact.
"""

from reports.scaling.simulator import graphs, schedules
from reports.scaling.simulator.cluster import Cluster, Link
from reports.scaling.simulator.result import Course
from reports.scaling.simulator.schedules import Round, Schedule
from reports.scaling.simulator.simulation import simulate
from reports.scaling.simulator.step import Asynchronous, Compute, Step

__all__ = [
    "Asynchronous",
    "Cluster",
    "Compute",
    "Course",
    "Link",
    "Round",
    "Schedule",
    "Step",
    "graphs",
    "schedules",
    "simulate",
]
