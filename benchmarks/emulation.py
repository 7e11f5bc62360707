"""Collectives on an emulated network against the alpha-beta model of a ring.

    python benchmarks/emulation.py [--networks 100mbit:200us:2,4,8 1gbit:0s:2,4,8] [--megabytes 10 44] [--into PAGE]

For every network (bandwidth:latency:numbers of hosts) a cluster is built and measured with one rank a host:

- alpha: one way of an 8-byte message between the first and the last host, median, in this very cluster.
- allreduce: 2 (W - 1) steps of n / W bytes; allgather: W - 1 steps of n / W bytes, n bytes being what each gets.
- a step of b bytes takes b / B + alpha, and 3 alpha where b is above 64 KB: Open MPI then asks before it sends.
- B: the bandwidth times 1448 / 1514, TCP's payload of an Ethernet frame.

Figures are medians; `busy` is how many cores of the machine worked meanwhile, whoever had them work.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measuring import make_parser, print_tables, run_on_emulated_hosts  # noqa: E402
from gradsweep import files, run_directory  # noqa: E402
from gradsweep.options import units  # noqa: E402

NETWORKS = ("100mbit:200us:2,4,8", "1gbit:0s:2,4,8", "1gbit:200us:2,4,8")
EAGER_BYTES = 64 * 1024
COLLECTIVES = {"allreduce": 2, "allgather": 1}
"""By name: times W - 1 steps."""


def predict(collective: str, size: float, ranks: int, alpha: float, bandwidth: float) -> float:
    """Return the seconds that a ring takes: `size` in bytes, alpha in s, bandwidth in bit/s of frames."""
    part = size / ranks
    step = part / (bandwidth / 8 * 1448 / 1514) + (3 if part > EAGER_BYTES else 1) * alpha
    return COLLECTIVES[collective] * (ranks - 1) * step


def measure_busy_s() -> float:
    """Return the seconds that all cores of this machine together have worked so far."""
    times = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(times) - times[3] - times[4]) / os.sysconf("SC_CLK_TCK")


def rank(into: str, bandwidth: str, sizes: str, seconds: str) -> None:
    """Measure as one of the ranks; rank 0 writes the figures to the file `into`."""
    import numpy as np
    from mpi4py import MPI

    from benchmarks.simulator_ranks import measure_latency

    comm = MPI.COMM_WORLD
    ranks = comm.size
    alpha = comm.bcast(measure_latency(comm, ranks - 1))
    rows = []
    for size in (int(float(word) * 1e6) for word in sizes.split(",")):
        mine, sums = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32)
        part = np.ones(size // 4 // ranks, np.float32)
        parts = np.empty(part.size * ranks, np.float32)
        calls: dict[str, Callable[[], None]] = {
            "allreduce": lambda a=mine, b=sums: comm.Allreduce(a, b),  # type: ignore[misc]
            "allgather": lambda a=part, b=parts: comm.Allgather(a, b),  # type: ignore[misc]
        }
        for name, call in calls.items():
            model = predict(name, size, ranks, alpha, float(bandwidth))
            call()
            times = []
            comm.Barrier()
            before, begun = measure_busy_s(), time.perf_counter()
            for _ in range(max(3, min(50, round(float(seconds) / model)))):
                comm.Barrier()
                start = time.perf_counter()
                call()
                times.append(comm.allreduce(time.perf_counter() - start, MPI.MAX))
            busy = (measure_busy_s() - before) / (time.perf_counter() - begun)
            took = statistics.median(times)
            rows.append({"collective": name, "bytes": size, "time_s": took, "model_s": model, "busy": busy})
    if comm.rank == 0:
        Path(into).write_text(json.dumps({"alpha_s": alpha, "rows": rows}))


def measure(bandwidth: str, latency: str, hosts: int, sizes: Sequence[float], seconds: float) -> dict[str, Any]:
    """Return what the ranks measure in a cluster, and under `emulation` how the cluster was made."""
    with tempfile.TemporaryDirectory() as scratch:
        into = Path(scratch, "measured.json")
        rate = units.bits_per_second(bandwidth)
        words = [sys.executable, __file__, "rank", str(into), str(rate), ",".join(map(str, sizes)), str(seconds)]
        run_on_emulated_hosts(bandwidth, latency, hosts, words, scratch)
        record = files.read_json(Path(scratch, run_directory.EMULATION))
        return {**json.loads(into.read_text()), "emulation": record}


def table(arguments: argparse.Namespace) -> Iterator[list[str]]:
    """Yield the rows of the table."""
    head = ["network, one way", "hosts", "alpha, us", "collective", "MB", "time, ms", "model, ms", "error"]
    yield [*head, "busy cores"]
    for network in arguments.networks:
        bandwidth, latency, counts = network.split(":")
        for hosts in map(int, counts.split(",")):
            measured = measure(bandwidth, latency, hosts, arguments.megabytes, arguments.seconds)
            for problem in measured["emulation"]["problems"]:
                print(f"{network}: {problem}", file=sys.stderr)
            for row in measured["rows"]:
                took, model = row["time_s"], row["model_s"]
                cells = [f"{bandwidth}, {latency}", str(hosts), f"{1e6 * measured['alpha_s']:.0f}", row["collective"]]
                cells += [f"{row['bytes'] / 1e6:g}", f"{1e3 * took:.1f}", f"{1e3 * model:.1f}"]
                yield [*cells, f"{100 * (took / model - 1):+.1f} %", f"{row['busy']:.2f}"]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), help="(default: %(default)s)")
    parser.add_argument("--megabytes", nargs="+", type=float, default=[10, 44], help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (default: %(default)s)")
    print_tables(parser, "emulation", {"collectives": table})


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank(*sys.argv[2:])
    else:
        main()
