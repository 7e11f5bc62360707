"""The simulator against exchanges on emulated hosts, and how long it takes.

    python benchmarks/simulator.py [emulated] [speed] [--networks 100mbit 1gbit] [--hosts 2 4 8] [--into PAGE]

- emulated: exchanges by plain MPI between hosts that sweep/emulation makes, of ranks that begin together, and of
  stragglers: ranks that sleep for the log-normal times that the simulator draws, and exchange, step after step.
  Simulated with the latency that was measured beside them, the nominal bandwidth less the headers of Ethernet, IP and
  TCP, and messages above 64 KiB that are announced first, as Open MPI does over TCP. Sleeping takes no CPU, so that
  hosts of one machine do not slow each other down as computing ones would. A figure is measured / simulated - 1: of
  the time of an exchange (median of the repeats) and of the time of a step with stragglers.
- speed: seconds of CPU time to simulate.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np  # noqa: E402

from benchmarks.measuring import make_parser, print_tables, run_on_emulated_hosts  # noqa: E402
from gradsweep.options import units  # noqa: E402
from reports.scaling.measured import traffic  # noqa: E402
from reports.scaling.measured.links import PAYLOAD_SHARE  # noqa: E402
from reports.scaling.simulator import (  # noqa: E402
    Asynchronous,
    Cluster,
    Compute,
    Link,
    Schedule,
    Step,
    graphs,
    schedules,
    simulate,
)
from reports.scaling.simulator.exchanges import EXCHANGES, SimulatedTraining  # noqa: E402


def measure_exchanges(network: str, latency: str, hosts: int, asked: dict[str, Any]) -> dict[str, Any]:
    """Run benchmarks/simulator_ranks.py on so many emulated hosts with a rank each, and return what it measured."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "measured.json"
        words = [sys.executable, "-m", "benchmarks.simulator_ranks", json.dumps(asked), str(file)]
        run_on_emulated_hosts(network, latency, hosts, words, scratch)
        return dict(json.loads(file.read_text(encoding="utf-8")))


def make_schedule(name: str, workers: int, n: float) -> Schedule:
    """Return the schedule of the exchange that the ranks know by this name."""
    return {
        "allreduce": lambda: schedules.allreduce_ring(workers, n),
        "allgather": lambda: schedules.allgather_ring(workers, n),
        "server": lambda: schedules.server(workers, n),
        "gossip_ring": lambda: schedules.gossip(graphs.ring(workers), n),
        "gossip_exponential": lambda: schedules.gossip(graphs.exponential(workers), n),
    }[name]()


def compare_with_emulation(arguments: argparse.Namespace) -> Iterator[list[str]]:
    """Yield the rows of the table of exchanges on emulated hosts."""
    head = ["network", "hosts", "exchange", "measured, ms", "simulated", "off"]
    yield [*head, "step with stragglers", "simulated", "off"]
    for network in arguments.networks:
        rate = units.bits_per_second(network)
        assert rate, network
        n = round(rate / 8 * arguments.seconds) // 4 * 4  # a message takes as long on every network
        asked = {"bytes": n, "repeats": arguments.repeats, "steps": arguments.steps}
        asked |= {"compute_s": 2 * arguments.seconds, "sigma": 0.5, "seed": 1}
        for hosts in arguments.hosts:
            measured = measure_exchanges(network, arguments.latency, hosts, asked)
            link = Link(measured["latency_s"], 8 / (rate * PAYLOAD_SHARE))
            cluster = Cluster(hosts, link, eager_bytes=traffic.EAGER)
            for name in measured["alike"]:
                schedule = make_schedule(name, hosts, n)
                once = simulate(cluster, Step(Compute(0.0), schedule), 1).finished.max()
                late = Compute(asked["compute_s"], asked["sigma"])
                steps = simulate(cluster, Step(late, schedule), arguments.steps, asked["seed"]).step_s
                seen = statistics.median(measured["alike"][name])
                seen_steps = np.mean(measured["stragglers"][name][-1]) / arguments.steps
                cells = [f"{network}, {1e3 * link.latency_s:.2f} ms", str(hosts), name]
                for real, simulated in ((seen, once), (seen_steps, steps)):
                    cells += [f"{1e3 * real:.1f}", f"{1e3 * simulated:.1f}", f"{100 * (real / simulated - 1):+.1f} %"]
                yield cells


def time_simulations(arguments: argparse.Namespace) -> Iterator[list[str]]:
    """Yield the rows of the table of CPU seconds to simulate."""
    link, compute, n, many = Link(20e-6, 8e-10), Compute(0.1, 0.1), 44e6, 1024
    plain, served = Cluster(many, link), Cluster(many, link, servers=1)
    announced, nodes = Cluster(many, link, eager_bytes=0), Cluster(many, link, per_node=8, inner=Link(2e-6, 8e-12))
    trained = SimulatedTraining(compute, n, n, part_bytes=traffic.PART)
    ring = EXCHANGES["ring"].schedule(plain, trained)
    usual = Cluster(many, link, eager_bytes=traffic.EAGER)
    cases: list[tuple[str, Cluster, Schedule | Asynchronous, int]] = [
        ("allreduce, ring", plain, schedules.allreduce_ring(many, n), 100),
        ("the same, 16,384 workers", Cluster(16384, link), schedules.allreduce_ring(16384, n), 100),
        ("the same, 8 workers a node", nodes, schedules.allreduce_ring(many, n), 10),
        ("as in training, in 28 parts", usual, ring, 100),
        ("the same, 8 workers a node", dataclasses.replace(nodes, eager_bytes=traffic.EAGER), ring, 10),
        ("gossip, ring, announced", usual, schedules.gossip(graphs.ring(many), n), 5),
        ("gossip, exponential", plain, schedules.gossip(graphs.exponential(many), n), 100),
        ("alltoall, pairwise, announced", announced, schedules.alltoall_pairwise(many, n), 1),
        ("parameter server", served, schedules.server(many, n, dedicated=True), 5),
        ("asynchronous server", served, Asynchronous(compute, push_bytes=n, pull_bytes=n), 5),
        ("allreduce, recursive doubling", plain, schedules.allreduce_doubling(many, n), 1),
    ]
    yield ["1,024 workers, stragglers", "engine", "exact", "steps", "CPU seconds"]
    for name, cluster, exchange, steps in cases:
        step = Step(compute, exchange) if isinstance(exchange, Schedule) else exchange
        begun = time.process_time()
        course = simulate(cluster, step, steps, seed=1)
        took = time.process_time() - begun
        yield [name, course.engine, "yes" if course.exact else "no", str(steps), f"{took:.2f}"]


def main(given: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--networks", nargs="+", default=["100mbit", "1gbit"], help="bandwidths")
    parser.add_argument("--latency", default="200us", help="one way (default: %(default)s)")
    parser.add_argument("--hosts", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--seconds", type=float, default=0.1, help="of a message alone (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="with stragglers")
    print_tables(parser, "simulator", {"emulated": compare_with_emulation, "speed": time_simulations}, given)


if __name__ == "__main__":
    main()
