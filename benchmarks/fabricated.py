"""Write a sweep of very many finished runs: real runs, copied with other options and figures a little different.

Compressors by workers by learning rates by seeds. One run of a hundred has diverged, one has failed.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import yaml
from pyarrow import csv

from benchmarks.measuring import PROGRAM, time_command
from gradsweep import files, run_directory
from gradsweep.run_directory import Run, runs_of
from gradsweep.signature import signature
from gradsweep.yaml_files import Dumper, read_mapping

COMPRESSORS = ("none", "fp16", "int8", "natural", "onebit", "powersgd", "qsgd", "svd", "terngrad", "topk")
WORKERS = (2, 4, 8, 16)
RATES = (0.02, 0.05, 0.1, 0.2, 0.5)
SAMPLES, EPOCHS = 1437, 20  # of the digits' training set; of a run
ENDS = {
    17: (run_directory.DIVERGED, "loss is nan at step 61"),
    71: (run_directory.FAILED, "rank 1 was killed by signal 9"),
}
"""Status and reason of the runs that are not done, by the last two digits of their numbers."""


def write_sweep(directory: Path, runs: int, steps: int) -> None:
    """Train a run of so many steps with each compressor, and write a sweep of so many copies of them."""
    options = ["model=mlp", f"epochs={EPOCHS}", f"batch.size={SAMPLES * EPOCHS // steps}", f"max_steps={steps}"]
    with tempfile.TemporaryDirectory() as folder:
        command = [*PROGRAM, "-m", f"compressor={','.join(COMPRESSORS)}", *options, "hydra.sweep.dir=s"]
        time_command(command, Path(folder))
        (directory / run_directory.RUNS).mkdir(parents=True)
        about = read_mapping(Path(folder, "s", run_directory.SWEEP))
        about["swept"] = ["compressor", "workers", "optimizer.lr", "seed"]
        (directory / run_directory.SWEEP).write_text(yaml.safe_dump(about))
        trained = runs_of(Path(folder, "s"))
        for number in range(runs):
            copy_run(trained[number % len(trained)], directory, number)


def add_run(directory: Path, number: int) -> None:
    """Write the run of this number beside the existing ones, as a copy of one of them."""
    copy_run(runs_of(directory)[0], directory, number)


def copy_run(trained: Run, sweep: Path, number: int) -> None:
    """Write a copy of a run as the point of this number of the grid, in which seeds vary slowest."""
    seed, cell = divmod(number // len(COMPRESSORS), len(WORKERS) * len(RATES))
    workers, rate = WORKERS[cell % len(WORKERS)], RATES[cell // len(WORKERS)]
    config = _read_config(trained)
    config = {**config, "workers": workers, "seed": seed, "optimizer": {**config["optimizer"], "lr": rate}}
    points = {"compressor": config["compressor"]["name"], "workers": workers, "optimizer.lr": rate, "seed": seed}
    overrides = [f"{key}={value}" for key, value in points.items()]
    full = signature(config)
    copy = Run(sweep / run_directory.RUNS / f"{','.join(overrides)}-{full[:8]}")
    shutil.copytree(trained.directory / "attempt-1", copy.directory / "attempt-1")
    text = yaml.dump(config, Dumper=Dumper, sort_keys=False, allow_unicode=True)
    copy.path(run_directory.CONFIG).write_text(text)
    status, reason = ENDS.get(number % 100, (run_directory.DONE, None))
    state = {**trained.state(), "status": status, "reason": reason, "signature": full, "workers": workers}
    attempt = {**state["attempts"][0], "status": status, "reason": reason}
    state |= {"overrides": overrides, "attempts": [attempt]}
    files.write_json(copy.path(run_directory.STATE), state, durable=False)
    draw = np.random.default_rng(number)
    slower, worse = draw.lognormal(0, 0.05), draw.uniform(0.97, 1)
    steps = {name: values * slower if name.endswith("_s") else values for name, values in _read_steps(trained).items()}
    text_options = csv.WriteOptions(quoting_style="none", quoting_header="none")
    csv.write_csv(pa.table(steps), copy.path(run_directory.STEPS), text_options)
    epochs = pd.read_csv(trained.path(run_directory.EPOCHS))
    epochs["time_s"] *= slower
    epochs["test_accuracy"] *= worse
    epochs.to_csv(copy.path(run_directory.EPOCHS), index=False)
    result = trained.result()
    if status != run_directory.FAILED and result is not None:
        last = epochs.iloc[-1]
        accuracy = float(last["test_accuracy"]) if status == run_directory.DONE else None
        result |= {"status": status, "reason": reason, "accuracy": accuracy, "time_s": float(last["time_s"])}
        result |= {"best_accuracy": float(epochs["test_accuracy"].max())}
        result |= {name: result[name] / slower for name in ("iterations_per_second", "samples_per_second")}
        result["phases_s"] = {phase: seconds * slower for phase, seconds in result["phases_s"].items()}
        files.write_json(copy.path(run_directory.RESULT), result, durable=False)


@functools.cache
def _read_config(trained: Run) -> dict[str, Any]:
    return read_mapping(trained.path(run_directory.CONFIG))


@functools.cache
def _read_steps(trained: Run) -> dict[str, pd.Series]:
    """Return the columns of steps.csv."""
    table = pd.read_csv(trained.path(run_directory.STEPS))
    return {name: table[name] for name in table}
