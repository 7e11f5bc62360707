"""Write a sweep of very many finished runs as files, with made-up numbers in files like those of real runs.

Compressors by workers by learning rates by seeds. Configs are composed as a sweep composes them, so that they have the
keys of today's runs. One run of a hundred has diverged, one has failed.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml
from pyarrow import csv

from benchmarks.measuring import load_hydra
from gradsweep import csv_columns, files, run_directory
from gradsweep.signature import signature
from gradsweep.yaml_files import Dumper

COMPRESSORS = ("none", "fp16", "int8", "natural", "onebit", "powersgd", "qsgd", "svd", "terngrad", "topk")
WORKERS = (2, 4, 8, 16)
RATES = (0.02, 0.05, 0.1, 0.2, 0.5)
CELLS = len(COMPRESSORS) * len(WORKERS) * len(RATES)
GRADIENT_BYTES = 310_248
EPOCHS = 20
VERSIONS = {"python": "3.11.7", "torch": "2.13.0+cpu", "mpi": "Open MPI v5.0.11", "numpy": "2.4.6", "mpi4py": "4.1.2"}
CALIBRATION = {"copy_gb_s": 10.08, "matmul_gflop_s": 84.98, "loop_mops": 14.52, "steadiness": 0.944, "host": "n7"}
BEGAN, ENDED = "2026-11-20T14:03:25.000+00:00", "2026-11-20T14:05:01.123+00:00"


def write_sweep(directory: Path, runs: int, steps: int) -> None:
    """Write a sweep's directory with so many runs of so many steps each."""
    configs = {name: _compose_config(name) for name in COMPRESSORS}
    columns = {(name, workers): _make_steps(name, workers, steps) for name in COMPRESSORS for workers in WORKERS}
    about = {"format": 1, "swept": ["compressor", "workers", "optimizer.lr", "seed"], "created": BEGAN}
    (directory / run_directory.RUNS).mkdir(parents=True)
    (directory / run_directory.SWEEP).write_text(yaml.safe_dump(about))
    for number in range(runs):
        config = make_config(configs, number)
        write_run(directory, config, columns[config["compressor"]["name"], config["workers"]], number)


def add_run(directory: Path, number: int, steps: int) -> None:
    """Write the run of this number beside the existing ones."""
    config = make_config({name: _compose_config(name) for name in COMPRESSORS}, number)
    write_run(directory, config, _make_steps(config["compressor"]["name"], config["workers"], steps), number)


def make_config(configs: dict[str, dict[str, Any]], number: int) -> dict[str, Any]:
    """Return the config of a point of the grid; seeds vary slowest."""
    seed, cell = divmod(number, CELLS)
    rest, name = divmod(cell, len(COMPRESSORS))
    rate, workers = divmod(rest, len(WORKERS))
    config = dict(configs[COMPRESSORS[name]])
    config |= {"workers": WORKERS[workers], "seed": seed, "epochs": EPOCHS}
    return config | {"optimizer": {**config["optimizer"], "lr": RATES[rate]}}


def write_run(sweep: Path, config: dict[str, Any], steps: np.ndarray, number: int) -> None:
    """Write a run's directory."""
    status = {17: run_directory.DIVERGED, 71: run_directory.FAILED}.get(number % 100, run_directory.DONE)
    reason = {
        run_directory.DIVERGED: "loss is nan at step 61",
        run_directory.FAILED: "rank 1 was killed by signal 9",
    }.get(status)
    text = yaml.dump(config, Dumper=Dumper, sort_keys=False, allow_unicode=True)
    full = signature(config)
    name, workers, lr = config["compressor"]["name"], config["workers"], config["optimizer"]["lr"]
    swept = [f"compressor={name}", f"workers={workers}", f"optimizer.lr={lr}", f"seed={config['seed']}"]
    directory = sweep / run_directory.RUNS / f"{','.join(swept)}-{full[:8]}"
    (directory / "attempt-1").mkdir(parents=True)
    (directory / run_directory.CONFIG).write_text(text)
    attempt = {"number": 1, "status": status, "reason": reason, "cause": None, "exit_code": 0, "started": BEGAN}
    attempt |= {"ended": ENDED, "host": "n7", "pid": 10536 + number, "cores": [0, 1], "gpus": []}
    state = {"format": 1, "status": status, "reason": reason, "signature": full, "workers": workers}
    state |= {"overrides": swept, "oversubscribed": workers > 4, "shared_cores": False, "updated": ENDED}
    _write_json(directory / run_directory.STATE, {**state, "attempts": [attempt]})
    record = {"command": "python multirun.py -m " + " ".join(swept), "overrides": swept, "calibration": CALIBRATION}
    record |= {"git": {"commit": "3f9a2c1e0b7d", "branch": "main", "dirty": []}, "packages": VERSIONS, "gpus": []}
    record |= {"host": "n7", "cpu": {"model": "AMD EPYC 7B13", "cores": 4}, "environment": config["mpi"]["environment"]}
    _write_json(directory / "attempt-1" / run_directory.PROVENANCE, record)
    (directory / "attempt-1" / run_directory.STDOUT).write_text(
        "".join(f"epoch {epoch}/{EPOCHS}\n" for epoch in range(EPOCHS))
    )
    (directory / "attempt-1" / run_directory.STDERR).write_text("")
    _write_steps(directory / run_directory.STEPS, steps, number)
    count = steps.shape[1]
    epochs = list(_make_epochs(config, count, random.Random(number)))
    files.append_rows(directory / run_directory.EPOCHS, csv_columns.EPOCH_COLUMNS, epochs)
    if status != run_directory.FAILED:
        _write_json(directory / run_directory.RESULT, _make_result(config, status, reason, count, epochs))


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def _compose_config(compressor: str) -> dict[str, Any]:
    """Return the config of a run with this compressor, and defaults for all else."""
    import hydra

    from sweep.config.composer import build_plain_config

    with load_hydra():
        composed = hydra.compose("config", [f"compressor={compressor}"], return_hydra_config=True)
        return build_plain_config(composed, composed.hydra.launcher)


def _make_phases(compressor: str, workers: int) -> dict[str, float]:
    """Return the seconds of a step's phases."""
    cost = COMPRESSORS.index(compressor)
    phases = {"data": 0.0002, "forward": 0.035 / workers, "backward": 0.056 / workers, "encode": 0.0003 * cost}
    return phases | {"communicate": 0.003 * workers / (1 + cost), "decode": 0.0001 * cost * workers, "update": 0.0002}


def _get_ratio(compressor: str) -> float:
    return 1.0 + 3.1 * COMPRESSORS.index(compressor)


def _make_steps(compressor: str, workers: int, count: int) -> np.ndarray:
    """Return columns of steps.csv, (columns, steps)."""
    draw = np.random.default_rng([COMPRESSORS.index(compressor), workers])
    step = np.arange(1, count + 1)
    phases = [seconds * draw.lognormal(0, 0.1, count) for seconds in _make_phases(compressor, workers).values()]
    step_s = 1.03 * np.sum(phases, axis=0)
    loss = 2.3 * np.exp(-4 * step / count) * draw.lognormal(0, 0.05, count)
    payload = GRADIENT_BYTES / _get_ratio(compressor)
    sizes = (np.full(count, size) for size in (payload, payload * (workers - 1), _get_ratio(compressor)))
    measured = (np.where(step % 50 == 1, draw.random(count), np.nan) for _ in range(2))
    epoch = 1 + (step - 1) * EPOCHS // count
    rate = 0.1 * (1 - step / count)
    first = (step, epoch, np.cumsum(step_s), np.full(count, 128), loss, np.exp(-loss), rate)
    return np.stack([*first, *phases, step_s, *sizes, *measured])


def _write_steps(path: Path, columns: np.ndarray, seed: int) -> None:
    """Write steps.csv, with times, losses and errors that differ a little between seeds."""
    factor = np.random.default_rng(seed).lognormal(0, 0.05)
    counts = ("step", "epoch", "samples")
    table = {
        name: pa.array(values.astype(int)) if name in counts else pa.array(values * factor, from_pandas=True)
        for name, values in zip(csv_columns.STEP_COLUMNS, columns, strict=True)
    }
    csv.write_csv(pa.table(table), path, csv.WriteOptions(quoting_style="none", quoting_header="none"))


def _make_epochs(config: dict[str, Any], steps: int, draw: random.Random) -> Iterator[dict[str, Any]]:
    name, workers = config["compressor"]["name"], config["workers"]
    step_s, final = 1.03 * sum(_make_phases(name, workers).values()), 0.985 - 0.002 * COMPRESSORS.index(name)
    sent = GRADIENT_BYTES / _get_ratio(name) * (workers - 1)
    for epoch in range(1, EPOCHS + 1):
        accuracy = final - (final - 0.1) * math.exp(-epoch / 2.5) + draw.gauss(0, 0.012 / epoch)
        done = steps * epoch // EPOCHS
        row = {"epoch": epoch, "step": done, "time_s": step_s * done, "lr": 0.1, "train_loss": 2.3 * math.exp(-epoch)}
        row |= {"train_accuracy": accuracy, "test_loss": 2.4 * math.exp(-epoch / 2), "test_accuracy": accuracy}
        yield row | {"sent_bytes": sent * done, "evaluate_s": 0.091}


def _make_result(
    config: dict[str, Any], status: str, reason: str | None, steps: int, epochs: list[dict[str, Any]]
) -> dict[str, Any]:
    name, workers, last = config["compressor"]["name"], config["workers"], epochs[-1]
    phases = _make_phases(name, workers)
    step_s = 1.03 * sum(phases.values())
    result = {"format": 1, "status": status, "reason": reason, "parameters": GRADIENT_BYTES // 4, "device": "cpu"}
    result |= {"precision": "fp32", "kernels": {name: "numba"}, "steps": steps, "epochs": len(epochs)}
    result |= {"accuracy": last["test_accuracy"] if status == run_directory.DONE else None, "loss": last["test_loss"]}
    result |= {"best_accuracy": max(each["test_accuracy"] for each in epochs), "train_loss": last["train_loss"]}
    result |= {"iterations_per_second": 1 / step_s, "samples_per_second": 128 / step_s, "warmup_steps": 10}
    result |= {"resumed_after": [], "time_s": last["time_s"], "evaluate_s": 1.82, "total_s": last["time_s"] + 3}
    payload = GRADIENT_BYTES / _get_ratio(name)
    result |= {"payload_bytes": payload, "sent_bytes": payload * (workers - 1), "compression_ratio": _get_ratio(name)}
    return result | {"compression_error": 0.235, "phases_s": phases, "hosts": ["n7"], "versions": VERSIONS}
