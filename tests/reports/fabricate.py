"""Run directories as a sweep leaves them, with made-up but plausible numbers.

`python tests/reports/fabricate.py DIRECTORY` writes one to look at; a word behind it, `methods`, another one.
"""

from __future__ import annotations

import math
import random
import sys
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from gradsweep import csv_columns, files, run_directory

GRADIENT_BYTES = 310_248
STEPS_PER_EPOCH = 12
CORES = 2

_HYPER: dict[str, dict[str, Any]] = {
    "qsgd": {"levels": 7, "bucket_size": 512, "norm": "max"},
    "svd": {"rank": 3, "budget": None},
}
_RATIO = {"none": 1.0, "qsgd": 7.9, "svd": 5.2}
_ENCODE_S = {"none": 0.00002, "qsgd": 0.0004, "svd": 0.0031}
_FINAL = {"none": 0.9861, "qsgd": 0.9833, "svd": 0.975}
_ERROR = {"none": 0.0, "qsgd": 0.21, "svd": 0.64}
_MEASURED_EVERY = 4  # steps
_DEGREE = {"ring": 2, "torus": 3, "star": 2, "complete": 7}
_GAP = {"ring": 0.195, "torus": 0.5, "star": 0.1, "complete": 1.0}


def config(compressor: str = "none", workers: int = 2, **changes: Any) -> dict[str, Any]:
    """A resolved config; `changes` are dotted keys with `__` for the dot."""
    resolved: dict[str, Any] = {
        "workers": workers,
        "seed": 0,
        "epochs": 15,
        "max_steps": None,
        "threads_per_worker": 1,
        "batch": {"size": 128, "per": "global"},
        "model": {"name": "wideresnet", "depth": 10, "widen": 1, "dropout": 0.0},
        "dataset": {"name": "digits"},
        "compressor": {"name": compressor, **_HYPER.get(compressor, {})},
        "memory": {"name": "none"},
        "exchange": {"name": "allreduce" if compressor == "none" else "allgather", "granularity": "layer"},
        "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.0005},
        "schedule": {"name": "cosine", "warmup_epochs": 1},
        "data": {"root": "data"},
        "sweep": {"max_parallel": None, "share_cores": False},
        "mpi": {"command": "mpirun"},
    }
    for key, value in changes.items():
        *groups, last = key.split("__")
        place = resolved
        for group in groups:
            place = place[group]
        place[last] = value
    return resolved


def of_method(algorithm: str, topology: str, compressor: str, workers: int, **changes: Any) -> dict[str, Any]:
    """The config of a run with this algorithm; that of a centralised one has no topology."""
    resolved = config(compressor, workers, **changes)
    if algorithm in ("sgd", "local_sgd"):
        return {**resolved, "algorithm": {"name": algorithm}, "topology": {"name": "none"}}
    stepsize = {"consensus_stepsize": 0.5} if algorithm == "choco" else {}
    return {
        **resolved,
        "algorithm": {"name": algorithm, **stepsize, "evaluate_local": True},
        "topology": {"name": topology, "weights": "uniform", "lazy": False},
        "exchange": {"name": "gossip", "granularity": "layer", "overlap": False},
    }


def methods(directory: Path, topologies: Iterable[str] = ("ring", "torus"), **info: Any) -> Path:
    """Decentralised algorithms beside centralised SGD, whose runs have no topology."""
    found = {
        repr(one): one
        for algorithm in ("sgd", "dpsgd", "choco")
        for topology in topologies
        for compressor in ("none", "topk")
        for workers in (4, 8)
        if (one := of_method(algorithm, topology, compressor, workers))
    }
    command = "python multirun.py -m algorithm=sgd,dpsgd,choco topology=ring,torus compressor=none,topk workers=4,8"
    swept = ["algorithm", "topology", "compressor", "workers"]
    return sweep(directory, found.values(), **{"command": command, "swept": swept, **info})


def sweep(directory: Path, configs: Iterable[Mapping[str, Any]], **info: Any) -> Path:
    """A sweep's directory with one finished run per config; `info` goes into sweep.yaml."""
    (directory / run_directory.RUNS).mkdir(parents=True)
    content = {
        "format": 1,
        "created": "2026-11-20T14:03:22.000+00:00",
        "command": "python multirun.py -m compressor=qsgd,svd,none workers=2,4,8",
        "overrides": ["compressor=qsgd,svd,none", "workers=2,4,8"],
        "git": {"commit": "3f9a2c1e0b7d", "branch": "main", "dirty": ["conf/config.yaml"]},
        "packages": {"torch": "2.13.0", "mpi4py": "4.1.0", "numba": "0.63.1"},
        "python": "3.11.7",
        "host": "node7",
        "platform": "Linux-6.1-x86_64",
        "cpu": {"model": "AMD EPYC 7B13", "cores": CORES},
        "mpi": "Open MPI v5.0.11",
        **info,
    }
    files.write_text(directory / run_directory.SWEEP, yaml.safe_dump(content, sort_keys=False))
    for one in configs:
        run(directory, one)
    return directory


def run(
    sweep: Path, config: Mapping[str, Any], status: str = run_directory.DONE, reason: str | None = None, name: str = ""
) -> Path:
    """The directory of one run.

    A `failed` run stops after a third of its epochs, without result; a `diverged` one has a result
    without accuracy; a `pending` one has not begun.
    """
    seed = zlib.crc32(repr(config).encode())
    name = name or f"compressor={config['compressor']['name']},workers={config['workers']}-{seed:08x}"
    directory = sweep / run_directory.RUNS / name
    directory.mkdir()
    files.write_text(directory / run_directory.CONFIG, yaml.safe_dump(dict(config), sort_keys=False))
    attempt = {"number": 1, "status": status, "reason": reason, "started": "2026-11-20T14:03:25.000+00:00"}
    attempt |= {"ended": "2026-11-20T14:05:01.123+00:00", "host": "node7", "cores": [0, 1]}
    state = {"format": 1, "status": status, "reason": reason, "workers": config["workers"]}
    state |= {
        "oversubscribed": config["workers"] > CORES,
        "attempts": [] if status == run_directory.PENDING else [attempt],
    }
    files.write_json(directory / run_directory.STATE, state)
    if status == run_directory.PENDING:
        return directory
    (directory / "attempt-1").mkdir()
    stopped = status not in run_directory.COMPLETE
    epochs = config["epochs"] // 3 if status != run_directory.DONE else config["epochs"]
    steps, evaluated = _training(config, epochs, random.Random(seed))
    files.append_rows(directory / run_directory.STEPS, csv_columns.STEP_COLUMNS, steps)
    columns = (*csv_columns.EPOCH_COLUMNS, *(csv_columns.LOCAL_EPOCH_COLUMNS if _topology(config) else ()))
    files.append_rows(directory / run_directory.EPOCHS, columns, evaluated)
    if not stopped:
        result = _result(status, reason, steps, evaluated)
        if topology := _topology(config):
            last = evaluated[-1] if evaluated else {}
            result |= {
                "spectral_gap": _GAP[topology],
                "degree": _DEGREE[topology],
                "messages_per_step": float(_DEGREE[topology]),
            }
            result |= {"local_accuracy": last.get("local_test_accuracy")}
            result |= {"local_accuracy_least": last.get("local_test_accuracy_least")}
            result |= {"consensus_distance": last.get("consensus_distance")}
        if config.get("network", {}).get("name", "none") != "none":
            result["network"] = network(config)
        files.write_json(directory / run_directory.RESULT, result)
    return directory


def network(
    config: Mapping[str, Any], marks: Iterable[str] = (), problems: Iterable[str] = (), **measured: float
) -> dict[str, Any]:
    """What a run says of its network, which is as it should be but for what is `measured`."""
    is_real = config["network"]["name"] == "real"
    wanted = {"latency_s": 200e-6, "bandwidth": 0.956e9, "ring_bandwidth": 0.956e9}
    return {
        "format": 1,
        "network": dict(config["network"]),
        "emulation": None if is_real else {"format": 1, "problems": list(problems)},
        "hosts": config["workers"],
        "measured": {**wanted, "busy_cores": 0.4, "busiest_core": 0.3, "cores": CORES, **measured},
        "expected": None if is_real else wanted,
        "marks": list(marks),
    }


def yardstick(slow: float = 1.0, others: float | None = 0.0, host: str = "node7", best: float = 1e-3) -> dict[str, Any]:
    """What a run says of its yardstick, which took its best of a sweep, in seconds, times `slow`."""
    seconds = {"best_s": best, "median_s": best * slow, "slow_s": best * slow, "spread": 0.02}
    return {**seconds, "cores_of_others": others, "readings": 20, "by_host": {host: best}}


def _topology(config: Mapping[str, Any]) -> str:
    """Of a decentralised run."""
    is_central = config.get("algorithm", {}).get("name", "sgd") in ("sgd", "local_sgd")
    return "" if is_central else str(config["topology"]["name"])


def _local(config: Mapping[str, Any], epoch: int, row: Mapping[str, Any], own: random.Random) -> dict[str, Any]:
    """What a decentralised run's epochs.csv has besides."""
    if not (topology := _topology(config)):
        return {}
    share = 0.0 if topology == "complete" else (1 - _GAP[topology]) / _GAP[topology]
    distance = 0.6 * share * math.exp(-epoch / 6) * own.lognormvariate(0, 0.1)
    distance *= 1 if config["compressor"]["name"] == "none" else 2.5
    loss = min(0.08, distance / 60)
    mean = row["test_accuracy"] - loss
    values = (row["test_loss"] * (1 + loss), mean, mean - loss, min(1.0, mean + loss / 2), distance)
    return dict(zip(csv_columns.LOCAL_EPOCH_COLUMNS, values, strict=True))


def _training(
    config: Mapping[str, Any], epochs: int, draw: random.Random
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    name, workers = config["compressor"]["name"], config["workers"]
    ratio, share = _RATIO.get(name, 4.0), CORES / max(workers, CORES)
    payload = round(GRADIENT_BYTES / ratio)
    sent = payload * (2 * (workers - 1) / workers if name == "none" else workers - 1)
    if topology := _topology(config):
        sent = payload * _DEGREE[topology]
    phases = {"data": 0.0001, "forward": 0.0021 / workers / share, "backward": 0.0042 / workers / share}
    phases |= {"encode": _ENCODE_S.get(name, 0.001) / share, "communicate": 4e-9 * sent + 0.0006 * workers / share}
    phases |= {"decode": _ENCODE_S.get(name, 0.001) * workers / 3 / share, "update": 0.0004 / share}
    steps: list[dict[str, Any]] = []
    evaluated: list[dict[str, Any]] = []
    time_s = 0.0
    final = _FINAL.get(name, 0.96) - 0.002 * math.log2(workers) + draw.gauss(0, 0.002)
    own = random.Random(draw.random())  # what differs between two runs as a whole, such as those of two seeds
    pace, descent = own.lognormvariate(0, 0.03), own.lognormvariate(0, 0.03)
    for epoch in range(1, epochs + 1):
        accuracy = final - (final - 0.1) * math.exp(-epoch / 1.7) + draw.gauss(0, 0.012 / epoch)
        lr = config["optimizer"]["lr"] * 0.5 * (1 + math.cos(math.pi * (epoch - 1) / config["epochs"]))
        for _ in range(STEPS_PER_EPOCH):
            noisy = {f"{phase}_s": value * pace * draw.lognormvariate(0, 0.1) for phase, value in phases.items()}
            step_s = sum(noisy.values()) * 1.03
            time_s += step_s
            steps.append(
                {"step": len(steps) + 1, "epoch": epoch, "time_s": time_s, "samples": config["batch"]["size"], "lr": lr}
                | {"loss": 2.3 * math.exp(-descent * epoch / 2), "accuracy": accuracy, **noisy, "step_s": step_s}
                | {"payload_bytes": payload, "sent_bytes": sent, "compression_ratio": GRADIENT_BYTES / payload}
            )
            if len(steps) % _MEASURED_EVERY == 1:
                error = _ERROR.get(name, 0.5) * own.lognormvariate(0, 0.05) * (1 + 0.2 * epoch / epochs)
                steps[-1] |= {"compression_error": error, "memory_norm": 3 * error * (1 - math.exp(-epoch / 3))}
        evaluated.append(
            {"epoch": epoch, "step": len(steps), "time_s": time_s, "lr": lr, "train_loss": steps[-1]["loss"]}
            | {"train_accuracy": 1 - (1 - accuracy) * 0.8, "test_loss": 0.03 + 2.4 * math.exp(-descent * epoch / 2.2)}
            | {"test_accuracy": accuracy}
            | {"sent_bytes": sent * len(steps), "evaluate_s": 0.013}
        )
        evaluated[-1] |= _local(config, epoch, evaluated[-1], own)
    return steps, evaluated


def _result(
    status: str, reason: str | None, steps: list[dict[str, Any]], epochs: list[dict[str, Any]]
) -> dict[str, Any]:
    warm = steps[10:]
    means = {column: sum(row[column] for row in warm) / len(warm) for column in ("samples", "step_s")}
    last, diverged = epochs[-1], status == run_directory.DIVERGED
    result = {"format": 1, "status": status, "reason": reason, "steps": len(steps), "epochs": len(epochs)}
    result |= {"parameters": GRADIENT_BYTES // 4, "accuracy": None if diverged else last["test_accuracy"]}
    result |= {"best_accuracy": max(row["test_accuracy"] for row in epochs), "loss": last["test_loss"]}
    result |= {"train_loss": last["train_loss"], "iterations_per_second": 1 / means["step_s"]}
    result |= {"samples_per_second": means["samples"] / means["step_s"], "warmup_steps": 10, "time_s": last["time_s"]}
    result |= {"evaluate_s": 0.2, "total_s": last["time_s"] + 1, "compression_error": 0.0, "hosts": ["node7"]}
    result |= {name: steps[0][name] for name in ("payload_bytes", "sent_bytes", "compression_ratio")}
    phases = {phase: sum(row[f"{phase}_s"] for row in warm) / len(warm) for phase in csv_columns.PHASES}
    return result | {"phases_s": phases, "versions": {"torch": "2.13.0", "mpi": "Open MPI v5.0.11"}}


def nine(directory: Path, **info: Any) -> Path:
    """The main job: three compressors with 2, 4 and 8 workers, all done."""
    grid = [config(name, workers) for name in ("qsgd", "svd", "none") for workers in (2, 4, 8)]
    return sweep(directory, grid, **{"swept": ["compressor", "workers"], **info})


if __name__ == "__main__":
    {"nine": nine, "methods": methods}[sys.argv[2] if len(sys.argv) > 2 else "nine"](Path(sys.argv[1]))
