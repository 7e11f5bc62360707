"""Sweeps whose times follow laws that are known: written out message by message, with none of the model's own code.

A cluster has hosts behind links of so many bit/s, one worker a host, or all on one machine whose cores they share.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gradsweep import files, run_directory
from tests.reports import fabricate

MIB = 2**20


@dataclasses.dataclass(frozen=True)
class Law:
    """A method in s and bytes: of a worker with a core of its own.

    `calls` is how many collectives ResNet-18 takes with it and few workers (trainers/exchange/base.py): a part leaves
    when it may have 1 MiB, and sums are cut after 2 MiB. Where `is_sized`, another one before each tells the sizes.
    Where `in_rounds`, all take place after backward.
    """

    encode: float
    decode: float  # of one payload
    payload: float
    is_summed: bool
    calls: int
    is_sized: bool = False
    in_rounds: bool = False

    def count_calls(self, workers: int) -> int:
        """Calls among so many: with more than 32 workers, parts are longer in proportion."""
        return self.calls if workers <= 32 or self.in_rounds else math.ceil(32 * self.calls / workers)

    @property
    def early(self) -> int:
        """Calls that can leave while backward goes on."""
        return 0 if self.in_rounds else self.calls - 1


DENSE_BYTES = 44_000_000
METHODS = {
    "none": Law(0.004, 0.010, DENSE_BYTES, True, 27),
    "qsgd": Law(0.045, 0.020, DENSE_BYTES / 7.9, False, 5),
    "topk": Law(0.120, 0.004, DENSE_BYTES / 50, False, 1, is_sized=True),
    "powersgd": Law(0.060, 0.030, DENSE_BYTES / 60, True, 2, in_rounds=True),
    "sign": Law(0.030, 0.015, DENSE_BYTES / 31, False, 2),
}
LAWS = {**METHODS, "svd": Law(0.080, 0.020, DENSE_BYTES / 60, False, 11, is_sized=True)}
"""And one whose payloads may be as long as the gradient: many short parts."""
NETWORKS: dict[str, tuple[float, float] | None] = {
    "none": None,
    "ethernet_1g": (1e9, 220e-6),
    "wan_100m": (1e8, 10e-3),
}
"""Bit/s and one-way s; None: the memory of the machine."""
FORWARD, BACKWARD, UPDATE, FIXED = 0.0011, 0.0022, 0.006, 0.004  # s a sample, s a sample, s, s
CPU_MESSAGE, CPU_BYTE = 4e-6, 3e-10  # what MPI itself takes on one core
CORES = 2


def ring_step(size: float, network: tuple[float, float] | None, crowd: float) -> float:
    """One step of a ring in which all send so many bytes."""
    own = (CPU_MESSAGE + CPU_BYTE * size) * crowd
    if network is None:
        return own
    rate, latency = network
    trips = 3 if size > 65536 else 1
    return own + trips * latency + 8 * size / (rate * 1448 / 1514)


def communication(law: Law, workers: int, network: tuple[float, float] | None, crowd: float) -> list[float]:
    """Seconds of each part."""
    calls = law.count_calls(workers)
    size = law.payload / calls
    steps = 2 * (workers - 1) if law.is_summed else workers - 1
    time = sum(ring_step(size / workers if law.is_summed else size, network, crowd) for _ in range(steps))
    if law.is_sized:
        time += sum(ring_step(64, network, crowd) for _ in range(workers - 1))
    return [time] * calls


def phases(
    name: str,
    workers: int,
    network: tuple[float, float] | None,
    samples: float,
    *,
    cores: int | None = CORES,
    overlap: bool = False,
    kappa: float = 1.0,
) -> dict[str, float]:
    """A step's phases in s, without noise; `cores` None: every worker has its own."""
    law = LAWS[name]
    crowd = max(1.0, workers / cores) ** kappa if cores else 1.0
    found = {"data": 0.0002 * crowd, "forward": (FORWARD * samples + FIXED) * crowd, "update": UPDATE * crowd}
    found |= {"backward": BACKWARD * samples * crowd, "encode": law.encode * crowd}
    found["decode"] = law.decode * (1 if law.is_summed else workers) * crowd
    times = communication(law, workers, network, crowd)
    found["communicate"] = sum(times)
    if overlap:
        work = found["backward"] + found["encode"]
        clock = 0.0  # of the link
        for number, time in enumerate(times, 1):
            posted = work if law.in_rounds else work * number / len(times)
            clock = max(clock, posted) + time
        found["communicate"] = clock - work
    return found


def step_s(*arguments: Any, **options: Any) -> float:
    return sum(phases(*arguments, **options).values())


def sweep(
    directory: Path,
    methods: Iterable[str] = METHODS,
    workers: Sequence[int] = (2, 4, 8),
    networks: Iterable[str] = NETWORKS,
    *,
    noise: float = 0.02,
    seeds: int = 1,
    overlap: bool = False,
    kappa: float = 1.0,
    global_batch: int | None = None,
    marks: Sequence[str] = (),
    counts: bool = True,
) -> Path:
    """A sweep of these, of 32 samples a worker, or of a global batch; `noise` is relative, of each phase.

    Without `counts` its runs are of a version that counted no calls.
    """
    (directory / run_directory.RUNS).mkdir(parents=True)
    files.write_text(directory / run_directory.SWEEP, "format: 1\nswept: [compressor, workers, network, seed]\n")
    draw = random.Random(7)
    for name in methods:
        for count in workers:
            for network in networks:
                for seed in range(seeds):
                    samples = global_batch / count if global_batch else 32.0
                    found = phases(name, count, NETWORKS[network], samples, overlap=overlap, kappa=kappa)
                    found = {phase: value * draw.lognormvariate(0, noise) for phase, value in found.items()}
                    _write(directory, name, count, network, seed, samples, found, overlap, marks, counts)
    return directory


def _write(
    sweep: Path,
    name: str,
    workers: int,
    network: str,
    seed: int,
    samples: float,
    found: dict[str, float],
    overlap: bool,
    marks: Sequence[str],
    counts: bool,
) -> None:
    config = fabricate.config(name, workers, seed=seed)
    config["exchange"] = {"name": "auto", "granularity": "layer", "overlap": overlap}
    config["network"] = {"name": network}
    place = (
        sweep
        / run_directory.RUNS
        / f"compressor={name},workers={workers},network={network},seed={seed}-{_hash(name, workers, network, seed)}"
    )
    place.mkdir()
    files.write_json(place / run_directory.CONFIG, config)  # JSON is YAML
    attempt = {"number": 1, "status": "done", "cores": list(range(CORES)), "host": "node7"}
    state = {
        "format": 1,
        "status": "done",
        "workers": workers,
        "oversubscribed": workers > CORES,
        "attempts": [attempt],
    }
    files.write_json(place / run_directory.STATE, state)
    law = LAWS[name]
    sent = law.payload * (2 * (workers - 1) / workers if law.is_summed else workers - 1)
    step = sum(found.values())
    result = {"format": 1, "status": "done", "steps": 40, "epochs": 1, "parameters": DENSE_BYTES // 4}
    result |= {"iterations_per_second": 1 / step, "samples_per_second": samples * workers / step, "warmup_steps": 10}
    result |= {"payload_bytes": law.payload, "sent_bytes": sent, "compression_ratio": DENSE_BYTES / law.payload}
    result |= {"time_s": 40 * step, "total_s": 41 * step, "evaluate_s": 0.1, "accuracy": 0.9, "phases_s": found}
    if (links := NETWORKS[network]) is not None:
        rate = links[0] * 1448 / 1514
        measured = {"latency_s": links[1], "bandwidth": rate, "ring_bandwidth": rate, "busy_cores": 0.5, "cores": CORES}
        section = {"network": {"name": network}, "hosts": workers}
        result["network"] = {**section, "measured": measured, "marks": list(marks)}
    if counts:
        kind = "rounds" if law.in_rounds else "allreduce" if law.is_summed else "allgather"
        result["collectives_per_step"] = {kind: law.calls, **({"sizes": law.calls} if law.is_sized else {})}
        if overlap:
            result["early_collectives_per_step"] = {kind: law.early} if law.early else {}
    files.write_json(place / run_directory.RESULT, result)


def _hash(*values: object) -> str:
    return f"{math.floor(random.Random(repr(values)).random() * 2**32):08x}"
