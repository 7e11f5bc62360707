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

from sweep import run as rundir
from tests.reports import fabricate

MIB = 2**20


@dataclasses.dataclass(frozen=True)
class Law:
    """A method in s and bytes: of a worker with a core of its own."""

    encode: float
    decode: float  # of one payload
    payload: float
    is_summed: bool


DENSE_BYTES = 44_000_000
METHODS = {
    "none": Law(0.004, 0.010, DENSE_BYTES, True),
    "qsgd": Law(0.045, 0.020, DENSE_BYTES / 7.9, False),
    "topk": Law(0.120, 0.004, DENSE_BYTES / 50, False),
    "powersgd": Law(0.060, 0.030, DENSE_BYTES / 60, True),
    "sign": Law(0.030, 0.015, DENSE_BYTES / 31, False),
}
NETWORKS: dict[str, tuple[float, float] | None] = {
    "none": None,
    "ethernet_1g": (1e9, 220e-6),
    "wan_100m": (1e8, 10e-3),
}
"""Bit/s and one-way s; None: the memory of the machine."""
FORWARD, BACKWARD, UPDATE, FIXED = 0.0011, 0.0022, 0.006, 0.004  # s a sample, s a sample, s, s
CPU_MESSAGE, CPU_BYTE = 4e-6, 3e-10  # what MPI itself takes on one core
CORES = 2


def parts_of(size: float) -> list[float]:
    """A message in parts of between 1 and 2 MiB, as the exchange posts them."""
    count = max(1, round(size / (1.55 * MIB)))
    return [size / count] * count


def ring_step(size: float, network: tuple[float, float] | None, crowd: float) -> float:
    """One step of a ring in which all send so many bytes."""
    own = (CPU_MESSAGE + CPU_BYTE * size) * crowd
    if network is None:
        return own
    rate, latency = network
    trips = 3 if size > 65536 else 1
    return own + trips * latency + 8 * size / (rate * 1448 / 1514)


def communication(law: Law, name: str, workers: int, network: tuple[float, float] | None, crowd: float) -> list[float]:
    """Seconds of each collective."""
    times = []
    for size in [law.payload / 2] * 2 if name == "powersgd" else parts_of(law.payload):
        steps = 2 * (workers - 1) if law.is_summed else workers - 1
        times.append(sum(ring_step(size / workers if law.is_summed else size, network, crowd) for _ in range(steps)))
        if name == "topk":  # the sizes of the payloads, before them
            times[-1] += sum(ring_step(64, network, crowd) for _ in range(workers - 1))
    return times


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
    law = METHODS[name]
    crowd = max(1.0, workers / cores) ** kappa if cores else 1.0
    found = {"data": 0.0002 * crowd, "forward": (FORWARD * samples + FIXED) * crowd, "update": UPDATE * crowd}
    found |= {"backward": BACKWARD * samples * crowd, "encode": law.encode * crowd}
    found["decode"] = law.decode * (1 if law.is_summed else workers) * crowd
    times = communication(law, name, workers, network, crowd)
    found["communicate"] = sum(times)
    if overlap:
        work = found["backward"] + found["encode"]
        clock = 0.0  # of the link
        for number, time in enumerate(times, 1):
            clock = max(clock, work * number / len(times)) + time
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
) -> Path:
    """A sweep of these, of 32 samples a worker, or of a global batch; `noise` is relative, of each phase."""
    (directory / rundir.RUNS).mkdir(parents=True)
    rundir.write_text(directory / rundir.SWEEP, "format: 1\nswept: [compressor, workers, network, seed]\n")
    draw = random.Random(7)
    for name in methods:
        for count in workers:
            for network in networks:
                for seed in range(seeds):
                    samples = global_batch / count if global_batch else 32.0
                    found = phases(name, count, NETWORKS[network], samples, overlap=overlap, kappa=kappa)
                    found = {phase: value * draw.lognormvariate(0, noise) for phase, value in found.items()}
                    _write(directory, name, count, network, seed, samples, found, overlap, marks)
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
) -> None:
    config = fabricate.config(name, workers, seed=seed)
    config["exchange"] = {"name": "auto", "granularity": "layer", "overlap": overlap}
    config["network"] = {"name": network}
    place = (
        sweep
        / rundir.RUNS
        / f"compressor={name},workers={workers},network={network},seed={seed}-{_hash(name, workers, network, seed)}"
    )
    place.mkdir()
    rundir.write_json(place / rundir.CONFIG, config)  # JSON is YAML
    attempt = {"number": 1, "status": "done", "cores": list(range(CORES)), "host": "node7"}
    state = {
        "format": 1,
        "status": "done",
        "workers": workers,
        "oversubscribed": workers > CORES,
        "attempts": [attempt],
    }
    rundir.write_json(place / rundir.STATE, state)
    law = METHODS[name]
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
    rundir.write_json(place / rundir.RESULT, result)


def _hash(*values: object) -> str:
    return f"{math.floor(random.Random(repr(values)).random() * 2**32):08x}"
