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
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

PART = "emulation"
NETWORKS = ("100mbit:200us:2,4,8", "1gbit:0s:2,4,8", "1gbit:200us:2,4,8")
EAGER_BYTES = 64 * 1024
COLLECTIVES = {"allreduce": 2, "allgather": 1}
"""By name: times W - 1 steps."""
WARM_UP = 20


def modelled(collective: str, size: float, ranks: int, alpha: float, bandwidth: float) -> float:
    """Seconds that a ring takes: `size` in bytes, alpha in s, bandwidth in bit/s of frames."""
    part = size / ranks
    step = part / (bandwidth / 8 * 1448 / 1514) + (3 if part > EAGER_BYTES else 1) * alpha
    return COLLECTIVES[collective] * (ranks - 1) * step


def busy_s() -> float:
    """Seconds that the cores of this machine have worked so far, all together."""
    times = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(times) - times[3] - times[4]) / os.sysconf("SC_CLK_TCK")


def rank(into: str, bandwidth: str, sizes: str, seconds: str) -> None:
    """What every rank does; rank 0 writes what was measured to the file `into`."""
    import numpy as np
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    me, ranks, last = comm.rank, comm.size, comm.size - 1
    small = np.zeros(8, np.uint8)
    trips = []
    comm.Barrier()
    for _ in range(WARM_UP + 200):
        begun = time.perf_counter()
        if me == 0:
            comm.Send(small, last)
            comm.Recv(small, last)
        elif me == last:
            comm.Recv(small, 0)
            comm.Send(small, 0)
        trips.append(time.perf_counter() - begun)
    alpha = comm.bcast(statistics.median(trips[WARM_UP:]) / 2)
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
            model = modelled(name, size, ranks, alpha, float(bandwidth))
            call()
            times = []
            comm.Barrier()
            before, begun = busy_s(), time.perf_counter()
            for _ in range(max(3, min(50, round(float(seconds) / model)))):
                comm.Barrier()
                start = time.perf_counter()
                call()
                times.append(comm.allreduce(time.perf_counter() - start, MPI.MAX))
            busy = (busy_s() - before) / (time.perf_counter() - begun)
            took = statistics.median(times)
            rows.append({"collective": name, "bytes": size, "time_s": took, "model_s": model, "busy": busy})
    if me == 0:
        Path(into).write_text(json.dumps({"alpha_s": alpha, "rows": rows}))


def measured(bandwidth: str, latency: str, hosts: int, sizes: Sequence[float], seconds: float) -> dict[str, Any]:
    """What the ranks measure in a cluster, and under `emulation` how that was made."""
    import yaml

    from gradsweep import files, run_directory
    from gradsweep.options import units
    from sweep import emulation
    from sweep.settings.mpi import MpiSettings
    from sweep.system.job_environment import build_job_environment

    network = {"bandwidth": bandwidth, "latency": latency, "loss": 0.0, "workers_per_host": 1, "hosts": {}}
    mpi = MpiSettings(**yaml.safe_load((ROOT / "conf/mpi/openmpi.yaml").read_text()))
    with tempfile.TemporaryDirectory() as scratch:
        into = Path(scratch, "measured.json")
        words = [word.replace("{workers}", str(hosts)) for word in mpi.resolve_command()]
        rate = units.bits_per_second(bandwidth)
        words += [sys.executable, __file__, "rank", str(into), str(rate), ",".join(map(str, sizes)), str(seconds)]
        environment = build_job_environment({**mpi.environment, run_directory.ATTEMPT_VARIABLE: scratch}, None, scratch)
        subprocess.run(emulation.build_command(network, hosts, 1, words), env=environment, cwd=ROOT, check=True)
        record = files.read_json(Path(scratch, run_directory.EMULATION))
        return {**json.loads(into.read_text()), "emulation": record}


def table(arguments: argparse.Namespace) -> list[str]:
    """The rows of the table."""
    head = [
        "network, one way",
        "hosts",
        "alpha, us",
        "collective",
        "MB",
        "time, ms",
        "model, ms",
        "error",
        "busy cores",
    ]
    rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for network in arguments.networks:
        bandwidth, latency, counts = network.split(":")
        for hosts in map(int, counts.split(",")):
            found = measured(bandwidth, latency, hosts, arguments.megabytes, arguments.seconds)
            for problem in found["emulation"]["problems"]:
                print(f"{network}: {problem}", file=sys.stderr)
            for row in found["rows"]:
                took, model = row["time_s"], row["model_s"]
                cells = [f"{bandwidth}, {latency}", str(hosts), f"{1e6 * found['alpha_s']:.0f}", row["collective"]]
                cells += [f"{row['bytes'] / 1e6:g}", f"{1e3 * took:.1f}", f"{1e3 * model:.1f}"]
                cells += [f"{100 * (took / model - 1):+.1f} %", f"{row['busy']:.2f}"]
                rows.append("| " + " | ".join(cells) + " |")
                print(rows[-1], flush=True)
    return rows


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), help="(default: %(default)s)")
    parser.add_argument("--megabytes", nargs="+", type=float, default=[10, 44], help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (default: %(default)s)")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put the table between the comments in this page")
    arguments = parser.parse_args(given)
    text = "\n".join(table(arguments))
    if arguments.into:
        from gradsweep.cli import markdown_sections

        markdown_sections.fill(arguments.into, PART, text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank(*sys.argv[2:])
    else:
        main()
